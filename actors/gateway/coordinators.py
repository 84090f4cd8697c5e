"""The links to the coordinators of a gateway's own broker, and who coordinates what."""

from __future__ import annotations

import logging
from collections.abc import Callable

from raylog.actors.coordination.placement import group_partition, transaction_partition
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.names import GROUP, OFFSETS_TOPIC, TRANSACTION, TRANSACTIONS_TOPIC
from raylog.actors.runtime.base import Link, PeerLost, Runtime
from raylog.wire.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator

log = logging.getLogger(__name__)


class CoordinatorLinks:
    """Links to coordinators, by role; changed by the Broker's pushes and by lost links."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._links: dict[str, Link] = {}
        self._changed: list[Callable[[], None]] = []

    async def apply(self, role: str, address: str | None) -> None:
        """Take in where a coordinator is now; None: nowhere."""
        old = self._links.pop(role, None)
        if old is not None:
            old.close()
        if address is None:
            return
        try:
            link = await self._runtime.connect(address)
        except PeerLost:
            log.warning("the %s coordinator is gone before a link to it was open", role)
        else:
            self._links[role] = link
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
        for link in self._links.values():
            link.close()


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
