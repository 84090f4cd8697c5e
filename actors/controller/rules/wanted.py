"""The wanted brokers: where they should run, and the data directories accepted for them.

| a broker that registers with       | if its directory is known    | if it is not                 |
|------------------------------------|------------------------------|------------------------------|
| that directory                     | is registered                |                              |
| another one                        | is refused                   | is registered, and known now |
| one that was given up (`replaced`) | is refused                   | is refused                   |

So an empty directory, such as the mount point of a missing disk, never replaces the data on that
disk, and the disk of a replaced broker does not come back. Brokers that are not wanted may register
with any directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from raylog.actors.controller.messages import RegisterBroker, WantedBrokers
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import BrokerUnwanted, BrokerWanted, Record
from raylog.wire.errors import InvalidRegistration, InvalidRequest

NAMED_MAX = 3
"""Maximum number of partitions named in a refusal."""


class WantedControl:
    """Decides about wanted brokers from the image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def want(self, changes: Sequence[BrokerWanted | BrokerUnwanted]) -> Decision[None]:
        """Change which brokers should run where. Changes that are already in effect do nothing."""
        records: list[Record] = []
        for change in changes:
            known = self._image.wanted.get(change.broker_id)
            if isinstance(change, BrokerWanted):
                change = self._with_directory(change)
            if change != known and (known is not None or isinstance(change, BrokerWanted)):
                records.append(change)
        return Decision(records, None)

    def _with_directory(self, wanted: BrokerWanted) -> BrokerWanted:
        """Keep the directory of a broker that is registered, unless it was given up."""
        broker = self._image.brokers.get(wanted.broker_id)
        if broker is None or wanted.directory_id or broker.directory_id in wanted.replaced:
            return wanted
        return wanted._replace(directory_id=broker.directory_id)

    def replace(self, broker_id: int, directory_id: str) -> Decision[None]:
        """Give up a broker's directory, so that the broker can start with an empty one.

        Safe to repeat. Raises InvalidRequest for a broker that is not wanted, for a live one, for a
        directory other than the known one, and if no other broker is known to hold everything that
        is committed.
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
        """Raise InvalidRequest if some partition is not known to be complete on another broker."""
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
        """Return all wanted brokers and the voters."""
        brokers = tuple([self._image.wanted[one] for one in sorted(self._image.wanted)])
        return WantedBrokers(self._image.offset, self._image.voters, brokers)

    def register(self, request: RegisterBroker) -> list[Record]:
        """Return the records for what a registration reveals; raises InvalidRegistration."""
        wanted = self._image.wanted.get(request.broker_id)
        if wanted is None or wanted.directory_id == request.directory_id:
            return []
        if request.directory_id in wanted.replaced:
            raise InvalidRegistration(
                f"broker {request.broker_id} comes with the directory {request.directory_id}, "
                "which was replaced: its records are old. Expected is "
                f"{wanted.directory_id or 'a new one'}"
            )
        if wanted.directory_id:
            raise InvalidRegistration(
                f"broker {request.broker_id} comes with the directory {request.directory_id}, "
                f"expected is {wanted.directory_id}. Is its disk mounted at {wanted.directory}? "
                f"If it is lost: raylog brokers replace {request.broker_id}"
            )
        return [wanted._replace(directory_id=request.directory_id)]
