"""The links to the coordinators of a gateway's own broker, and who coordinates what."""

from __future__ import annotations

import logging
from collections.abc import Callable

from raylog.actors.coordination.placement import group_partition, transaction_partition
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.names import GROUP, OFFSETS_TOPIC, TRANSACTION, TRANSACTIONS_TOPIC
from raylog.actors.reopening import Reopening
from raylog.actors.runtime.base import Link, PeerLost, Runtime
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
)

log = logging.getLogger(__name__)


class CoordinatorLinks:
    """Links to coordinators, by role.

    One that broke, or that a hanging process did not accept, is opened again for as long as the
    Broker says that the coordinator is there.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._addresses: dict[str, str] = {}
        """What the Broker says, by role."""
        self._links: dict[str, Link] = {}
        self._reopening = Reopening(runtime, self._open, self._tell)
        """By role."""
        self._changed: list[Callable[[], None]] = []

    async def apply(self, role: str, address: str | None) -> None:
        """Take in where a coordinator is now; None: nowhere."""
        self._addresses.pop(role, None)
        old = self._links.pop(role, None)
        if old is not None:
            old.close()
        if address is None:
            return
        self._addresses[role] = address
        if await self._open(role):
            self._tell()
        else:
            self._reopening.again(role)

    async def _open(self, role: str) -> bool:
        """Open the link to a coordinator; whether it is there, or not wanted any more."""
        address = self._addresses.get(role)
        if address is None or self.link(role) is not None:
            return True
        try:
            link = await self._runtime.connect(address)
        except PeerLost as lost:
            log.warning("no link to the %s coordinator: %s", role, lost)
            return False
        if self._addresses.get(role) != address or self.link(role) is not None:
            link.close()
            return True
        self._links[role] = link
        link.on_lost(lambda: self._lost(role, link))
        return True

    def _lost(self, role: str, link: Link) -> None:
        if self._links.get(role) is link:
            del self._links[role]
            self._reopening.again(role)

    def _tell(self) -> None:
        for callback in tuple(self._changed):
            callback()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` when a coordinator is there; returns what takes it off again."""
        self._changed.append(callback)
        return lambda: self._changed.remove(callback)

    def link(self, role: str) -> Link | None:
        """The link to a coordinator, if it runs."""
        link = self._links.get(role)
        return link if link is not None and link.is_open else None

    def close(self) -> None:
        """Close all links."""
        self._reopening.close()
        for link in tuple(self._links.values()):
            link.close()


def check_none_led(image: MetadataImage, broker_id: int, role: str) -> None:
    """Raise COORDINATOR_NOT_AVAILABLE if this broker coordinates anything in a role."""
    topic = image.topic(TOPICS[role])
    if topic is not None and any(state.leader == broker_id for state in topic.partitions):
        raise CoordinatorNotAvailable(f"the {role} coordinator cannot be reached")


TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""By role: where its state is kept."""
_PARTITIONS = {GROUP: group_partition, TRANSACTION: transaction_partition}


def coordinating(image: MetadataImage, role: str, key: str) -> tuple[int, PartitionState]:
    """The partition whose leader coordinates a group or a transactional id.

    Raises CoordinatorNotAvailable while there is none.
    """
    return _PARTITIONS[role](image, key)


def absent(image: MetadataImage, broker_id: int, role: str, key: str) -> KafkaError:
    """Why this broker's coordinator, which is not there, does not answer for a key.

    If it will be here soon, clients need not look for another.
    """
    topic = TOPICS[role]
    if image.topic(topic) is None:
        return NotCoordinator(f"nobody coordinates {key!r}: there is no {topic}")
    index, partition = coordinating(image, role, key)
    if partition.leader == broker_id:
        return CoordinatorLoadInProgress(f"the coordinator of {key!r} is being started")
    return NotCoordinator(f"broker {partition.leader} leads {topic}-{index}")
