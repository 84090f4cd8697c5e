"""The links to the coordinators of a gateway's own broker, and who coordinates what."""

from __future__ import annotations

import logging
from collections.abc import Callable

from raylog.actors.coordination.placement import group_partition
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import OFFSETS_TOPIC
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


def absent(image: MetadataImage, broker_id: int, group_id: str) -> KafkaError:
    """Why this broker's coordinator, which is not there, does not answer for a group.

    If it will be here soon, clients need not look for another.
    """
    topic = image.topic(OFFSETS_TOPIC)
    if topic is None:
        return NotCoordinator(f"nobody coordinates {group_id!r}: there is no {OFFSETS_TOPIC}")
    index, partition = group_partition(image, group_id)
    if partition.leader == broker_id:
        return CoordinatorLoadInProgress(f"the coordinator of {group_id!r} is being started")
    return NotCoordinator(f"broker {partition.leader} leads {OFFSETS_TOPIC}-{index}")
