"""The metadata that a broker's directory has followed, and checks against other metadata.

Metadata has an id, which is created when the cluster is founded or the metadata is rebuilt. Under
one id committed records never change. So at the offset up to which a broker has followed the
metadata, there is always a record of the controller epoch that the broker recorded, with the nonce
that this controller drew. Metadata that ends before that offset, or differs there, comes from a
lost or an older copy. A broker that followed it would treat its own topics as strays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raylog.actors.message import distinct
from raylog.wire.errors import InconsistentClusterId

if TYPE_CHECKING:
    from raylog.actors.metadata.image import MetadataImage

WAYS_OUT = (
    "Restore the directory that held the metadata, or run `raylog metadata rebuild` "
    "(docs/operations.md, Lost directories)"
)


class MetadataRefused(InconsistentClusterId):
    """Metadata that contradicts what a broker's directory has followed.

    It may be accepted later, once a directory has been restored.
    """


class MetadataLost(MetadataRefused):
    """No voter has any metadata, but a broker's directory has followed some."""


@distinct
class Followed(NamedTuple):
    """The metadata that a broker has followed, and how far."""

    metadata_id: str = ""
    """Empty if unknown: nothing was followed, or an older build wrote the metadata."""
    epoch: int = -1
    """Controller epoch of the last record; -1 if nothing was followed."""
    offset: int = 0
    """The offset after the last record."""
    nonce: int = 0
    """Nonce of that controller epoch; 0 if an older build wrote or recorded it."""

    def __str__(self) -> str:
        """Return the form for people."""
        return f"metadata {self.metadata_id} up to offset {self.offset} in epoch {self.epoch}"


@distinct
class DirectoryHistory(NamedTuple):
    """What a broker's data directory records about its cluster."""

    broker_id: int
    broker_epoch: int = -1
    """The last epoch that a controller assigned; -1 if none."""
    followed: Followed = Followed()
    replicas: int = 0
    """Number of partition directories, including strays."""

    @property
    def is_blank(self) -> bool:
        """Whether this directory has never been part of a cluster."""
        nothing = DirectoryHistory(self.broker_id)
        return self == nothing

    def __str__(self) -> str:
        """Return the form for people."""
        known = []
        if self.replicas:
            known.append(f"{self.replicas} partition{'' if self.replicas == 1 else 's'}")
        if self.followed.offset:
            known.append(f"metadata up to offset {self.followed.offset}")
        elif self.broker_epoch >= 0:
            known.append(f"broker epoch {self.broker_epoch}")
        return f"broker {self.broker_id}: {', '.join(known) or 'new'}"


def contradiction(noted: Followed, image: MetadataImage) -> str | None:
    """Say how an image contradicts what a broker has followed; None if it does not.

    The image is of a controller whose epoch is not below the recorded one, so it must have
    everything that was committed before.
    """
    found = image.followed
    if noted.metadata_id and found.metadata_id and noted.metadata_id != found.metadata_id:
        return f"it is metadata {found.metadata_id}, not {noted.metadata_id}"
    if noted.epoch > found.epoch or noted.offset > found.offset:
        return f"it is {found}; the broker has followed {noted}"
    term = image.terms.at(noted.offset - 1)
    if term is None:
        return _unknown(noted, image)
    if term.epoch != noted.epoch:
        return (
            f"its record at offset {noted.offset - 1} is of controller epoch {term.epoch}, not "
            f"{noted.epoch}: it was made anew from an older copy"
        )
    if term.nonce != noted.nonce:
        return (
            f"its record at offset {noted.offset - 1} is of another controller epoch {term.epoch} "
            f"(nonce {term.nonce}, not {noted.nonce}): it was made anew from an older copy"
        )
    return None


def _unknown(noted: Followed, image: MetadataImage) -> str | None:
    """Say why an image is refused that does not show who wrote the record at the broker's offset.

    Return None for a record without a nonce, which is older than the first known term: the cluster
    was upgraded from an older build while the broker was away.
    """
    if not noted.nonce:
        return None
    if image.terms.is_cut:
        return (
            f"it names the last {len(image.terms)} controllers, and the broker has followed "
            f"{noted}, before them: nobody can tell whether it is the same metadata. If it is, and "
            "the broker was away all the time, remove followed.json from its directory"
        )
    return f"the broker has followed {noted}, of which it has no controller"


def require_agreement(broker_id: int, noted: Followed, image: MetadataImage) -> None:
    """Raise MetadataRefused if an image contradicts what a broker has followed."""
    why = contradiction(noted, image)
    if why is not None:
        raise refusal(broker_id, why)


def refusal(broker_id: int, why: str) -> MetadataRefused:
    """Build the error for metadata that a broker refuses to follow."""
    return MetadataRefused(
        f"broker {broker_id} cannot follow the metadata that it is offered. {WAYS_OUT}. "
        f"Reason: {why}"
    )
