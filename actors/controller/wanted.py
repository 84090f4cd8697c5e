"""Which brokers shall run where, and which data directories are taken for theirs.

| a broker that comes with           | where its directory is known | is not known yet             |
|------------------------------------|------------------------------|------------------------------|
| that directory                     | is registered                |                              |
| another one                        | is refused                   | is registered, and known now |
| one that was given up (`replaced`) | is refused                   | is refused                   |

So an empty directory, where a disk is not mounted, never takes the place of what is on the disk,
and the disk of a broker that was replaced does not come back. Brokers that nobody has placed
register as they come.
"""

from __future__ import annotations

from collections.abc import Sequence

from raylog.actors.controller.api import RegisterBroker, WantedBrokers
from raylog.actors.controller.decision import Decision
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import BrokerUnwanted, BrokerWanted, Record
from raylog.wire.errors import InvalidRegistration, InvalidRequest

NAMED_MAX = 3
"""Partitions that a refusal names."""


class WantedControl:
    """Decides about desired brokers against the image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def want(self, changes: Sequence[BrokerWanted | BrokerUnwanted]) -> Decision[None]:
        """Change which brokers shall run where; what is so already changes nothing."""
        records: list[Record] = []
        for change in changes:
            known = self._image.wanted.get(change.broker_id)
            if isinstance(change, BrokerWanted):
                change = self._with_directory(change)
            if change != known and (known is not None or isinstance(change, BrokerWanted)):
                records.append(change)
        return Decision(records, None)

    def _with_directory(self, wanted: BrokerWanted) -> BrokerWanted:
        """A broker that has registered already keeps its directory, unless that was given up."""
        broker = self._image.brokers.get(wanted.broker_id)
        if broker is None or wanted.directory_id or broker.directory_id in wanted.replaced:
            return wanted
        return wanted._replace(directory_id=broker.directory_id)

    def replace(self, broker_id: int, directory_id: str) -> Decision[None]:
        """Give a broker's directory up: it begins anew with an empty one.

        A repetition changes nothing. Raises InvalidRequest for a broker that nobody has placed, one
        that is live, another directory than the one that is known, and where no other broker is
        known to hold all of what is committed.
        """
        wanted = self._image.wanted.get(broker_id)
        if wanted is None:
            raise InvalidRequest(f"broker {broker_id} is not wanted anywhere")
        if directory_id in wanted.replaced:
            return Decision([], None)
        if directory_id != wanted.directory_id:
            raise InvalidRequest(
                f"broker {broker_id} has the directory {wanted.directory_id}, not {directory_id}"
            )
        broker = self._image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            raise InvalidRequest(f"broker {broker_id} is live: there is nothing to replace")
        self._require_others(broker_id)
        replaced = (*wanted.replaced, directory_id)
        return Decision([wanted._replace(directory_id="", replaced=replaced)], None)

    def _require_others(self, broker_id: int) -> None:
        """Raise InvalidRequest where nobody else is known to hold all of a partition."""
        only = [
            f"{self._image.topics[topic_id].name}:{index}"
            for topic_id, index, one in self._image.partitions_on(broker_id)
            if not {*one.isr, *one.elr} - {broker_id}
        ]
        if only:
            more = "" if len(only) <= NAMED_MAX else f" and {len(only) - NAMED_MAX} more"
            raise InvalidRequest(
                f"no other broker is known to hold all of {', '.join(only[:NAMED_MAX])}{more}"
            )

    def answer(self) -> WantedBrokers:
        """All of them, and the voters they found one another by."""
        brokers = tuple([self._image.wanted[one] for one in sorted(self._image.wanted)])
        return WantedBrokers(self._image.offset, self._image.voters, brokers)

    def register(self, asked: RegisterBroker) -> list[Record]:
        """What a registration makes known; raises InvalidRegistration for another directory."""
        wanted = self._image.wanted.get(asked.broker_id)
        if wanted is None or wanted.directory_id == asked.directory_id:
            return []
        if asked.directory_id in wanted.replaced:
            raise InvalidRegistration(
                f"broker {asked.broker_id} comes with the directory {asked.directory_id}, which "
                "was replaced: its records are old. Expected is "
                f"{wanted.directory_id or 'a new one'}"
            )
        if wanted.directory_id:
            raise InvalidRegistration(
                f"broker {asked.broker_id} comes with the directory {asked.directory_id}, expected "
                f"is {wanted.directory_id}. Is its disk mounted at {wanted.directory}? If it is "
                f"lost: raylog brokers replace {asked.broker_id}"
            )
        return [wanted._replace(directory_id=asked.directory_id)]
