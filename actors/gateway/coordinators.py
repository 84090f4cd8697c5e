"""Links to the coordinators of a gateway's own broker."""

from __future__ import annotations

import logging
from collections.abc import Callable

from raylog.actors.coordination.rules.placement import partition_of
from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.metadata.image import MetadataImage
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

    A link that broke, or that a hanging process did not accept, is reopened as long as the Broker
    says that the coordinator runs there.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._addresses: dict[str, str] = {}
        """The addresses that the Broker has pushed, by role."""
        self._links: dict[str, Link] = {}
        self._reopening = Reopening(runtime, self._open, self._tell)
        """By role."""
        self._changed: list[Callable[[], None]] = []

    async def apply(self, role: str, address: str | None) -> None:
        """Set the address of a coordinator; None if it is not running."""
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
        """Open the link to a coordinator; return whether it is open, or no longer needed."""
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
        """Call `callback` when a coordinator becomes reachable; return a function to remove it."""
        self._changed.append(callback)
        return lambda: self._changed.remove(callback)

    def link(self, role: str) -> Link | None:
        """Return the link to a coordinator, or None if it is not running."""
        link = self._links.get(role)
        return link if link is not None and link.is_open else None

    def close(self) -> None:
        """Close all links."""
        self._reopening.close()
        for link in tuple(self._links.values()):
            link.close()


def check_none_led(image: MetadataImage, broker_id: int, role: str) -> None:
    """Raise CoordinatorNotAvailable if this broker coordinates anything in a role."""
    topic = image.topic(KINDS[role].topic)
    if topic is not None and any(state.leader == broker_id for state in topic.partitions):
        raise CoordinatorNotAvailable(f"the {role} coordinator cannot be reached")


def absent(image: MetadataImage, broker_id: int, role: str, key: str) -> KafkaError:
    """Return the error for a key while this broker's coordinator is not running.

    If the coordinator will start here soon, clients should not look for another.
    """
    topic = KINDS[role].topic
    if image.topic(topic) is None:
        return NotCoordinator(f"nobody coordinates {key!r}: there is no {topic}")
    index, partition = partition_of(image, role, key)
    if partition.leader == broker_id:
        return CoordinatorLoadInProgress(f"the coordinator of {key!r} is being started")
    return NotCoordinator(f"broker {partition.leader} leads {topic}-{index}")
