"""Which metadata a broker's directory has known, and when other metadata contradicts that.

Metadata has an id of its own, given when it is founded, and made again only with it. Within one id
committed records never change: a broker that has followed it up to an offset finds there, for ever,
a record of the controller epoch it noted, and of the nonce that this controller drew. Metadata that
ends before, or differs there, has lost records, by a lost or an older copy: whoever followed it
would take its own topics for strangers'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raylog.actors.plain import distinct
from raylog.wire.errors import InconsistentClusterId

if TYPE_CHECKING:
    from raylog.actors.metadata.image import MetadataImage

WAYS_OUT = (
    "Restore the directory that held the metadata, or run `raylog metadata rebuild` "
    "(docs/operations.md, Lost directories)"
)


class MetadataRefused(InconsistentClusterId):
    """Metadata that contradicts what a broker's directory has known.

    Asked again it may be right: a directory was restored.
    """


class MetadataLost(MetadataRefused):
    """No voter has any metadata, and a broker's directory has known some."""


@distinct
class Followed(NamedTuple):
    """How far a broker has followed which metadata."""

    metadata_id: str = ""
    """Empty if it is not known: nothing was followed, or a build that gave none."""
    epoch: int = -1
    """Controller epoch of the last record; -1 if nothing was followed."""
    offset: int = 0
    """After the last record."""
    nonce: int = 0
    """Of that controller epoch; 0 if builds followed or noted it that knew none."""

    def __str__(self) -> str:
        """For people."""
        return f"metadata {self.metadata_id} up to offset {self.offset} in epoch {self.epoch}"


@distinct
class DirectoryHistory(NamedTuple):
    """What a broker's data directory knows of its cluster."""

    broker_id: int
    broker_epoch: int = -1
    """The last one that a controller gave; -1 none."""
    followed: Followed = Followed()
    replicas: int = 0
    """Directories of partitions, strays among them."""

    @property
    def is_blank(self) -> bool:
        """Whether the broker has never been in a cluster with this directory."""
        nothing = DirectoryHistory(self.broker_id)
        return self == nothing

    def __str__(self) -> str:
        """For people."""
        known = []
        if self.replicas:
            known.append(f"{self.replicas} partition{'' if self.replicas == 1 else 's'}")
        if self.followed.offset:
            known.append(f"metadata up to offset {self.followed.offset}")
        elif self.broker_epoch >= 0:
            known.append(f"broker epoch {self.broker_epoch}")
        return f"broker {self.broker_id}: {', '.join(known) or 'new'}"


def contradiction(noted: Followed, image: MetadataImage) -> str | None:
    """Why an image is not that of metadata which a broker has followed so far; None if it may be.

    The image is of a controller whose epoch is not lower than the one noted: it holds everything
    that was committed before.
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
    """Why an image is refused that does not say who wrote its records up to where a broker was.

    None for a note without a nonce: it is older than the first term that is known, as in a cluster
    that came from an older build while the broker was away.
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
    """Raise MetadataRefused if an image contradicts what a broker has noted."""
    why = contradiction(noted, image)
    if why is not None:
        raise refusal(broker_id, why)


def refusal(broker_id: int, why: str) -> MetadataRefused:
    """What a broker says, and is told, of metadata that is not its cluster's."""
    return MetadataRefused(
        f"broker {broker_id} cannot follow the metadata that it is offered. {WAYS_OUT}. "
        f"Reason: {why}"
    )
