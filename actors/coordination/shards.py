"""The partitions of an internal topic that this broker leads, and their shards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from raylog.actors.common_messages import Route, RouteUpdate
from raylog.actors.coordination.counts import CoordinatorCounts
from raylog.actors.coordination.hosting import Host
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metrics.families import coordinators as families
from raylog.actors.metrics.samples import Samples
from raylog.actors.reopening import Reopening
from raylog.actors.runtime.base import Link, PeerLost, Runtime
from raylog.actors.runtime.link_table import Links
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)

log = logging.getLogger(__name__)
HostT = TypeVar("HostT", bound=Host[Any, Any])
MOVED = "leadership has moved"


class LedShards(Generic[HostT]):
    """Opens and closes shards as the Broker's routes and the metadata require.

    A link may break while both ends are alive. It is then reopened until there is another route.
    """

    def __init__(
        self,
        runtime: Runtime,
        image: MetadataImage,
        broker_id: int,
        topic: str,
        open_host: Callable[[Link, Route], HostT],
    ) -> None:
        self._image = image
        self._broker_id = broker_id
        self._topic = topic
        self._open_host = open_host
        self.counts = CoordinatorCounts()
        """Counts of all shards so far."""
        self._links = Links(runtime, self._link_lost)
        self._hosts: dict[int, HostT] = {}
        self._wanted: dict[int, Route] = {}
        self._reopening = Reopening(runtime, self._open_wanted, _nothing)
        """By partition."""

    def __iter__(self) -> Iterator[HostT]:
        return iter(tuple(self._hosts.values()))

    @property
    def partitions(self) -> list[int]:
        """Partitions that have a shard."""
        return sorted(self._hosts)

    def sample(self, samples: Samples) -> None:
        """Sample the counts and the states of the shards."""
        self.counts.sample(samples)
        active = sum(host.is_active for host in self)
        samples.add(families.SHARDS, active, "active")
        samples.add(families.SHARDS, len(self._hosts) - active, "loading")

    def check_complete(self) -> None:
        """Raise CoordinatorNotAvailable if a partition led by this broker has no shard yet."""
        topic = self._image.topic(self._topic)
        states = () if topic is None else topic.partitions
        for index, state in enumerate(states):
            if state.leader == self._broker_id and index not in self._hosts:
                raise CoordinatorNotAvailable(f"{self._topic}-{index} is not open yet")

    def get(self, partition: int) -> HostT | None:
        """Return the shard of a partition, if it is here."""
        return self._hosts.get(partition)

    def close_lost(self) -> None:
        """Close the shards that other brokers or newer epochs lead according to the metadata."""
        topic = self._image.topic(self._topic)
        for index, host in tuple(self._hosts.items()):
            state = None
            if topic is not None and topic.topic_id == host.route.topic_id:
                state = topic.partitions[index]
            if (
                state is None
                or state.leader != self._broker_id
                or state.leader_epoch != host.route.leader_epoch
            ):
                self._wanted.pop(index, None)
                self._close(index, MOVED)

    async def apply_routes(self, update: RouteUpdate) -> None:
        """Apply changes of the served partitions and of their Replica processes."""
        for topic_id, index in update.removed:
            known = self._wanted.get(index)
            if known is not None and known.topic_id == topic_id:
                del self._wanted[index]
                if index in self._hosts:
                    self._close(index, MOVED)
        for route in update.added:
            self._wanted[route.partition] = route
            if not await self._open(route):
                self._reopening.again(route.partition)

    async def _open_wanted(self, index: int) -> bool:
        route = self._wanted.get(index)
        return route is None or await self._open(route)

    async def _open(self, route: Route) -> bool:
        """Open a route's shard; return whether it is open, or no longer wanted."""
        index = route.partition
        if self._wanted.get(index) != route:
            return True
        host = self._hosts.get(index)
        if host is not None:
            if host.route == route and host.link.is_open:
                return True
            self._close(index, MOVED)
        try:
            link = await self._links.to(route.replica_address)
        except PeerLost as lost:
            log.warning("no link to %s of %s-%d: %s", route.replica_name, self._topic, index, lost)
            return self._wanted.get(index) != route
        if self._wanted.get(index) != route or index in self._hosts:
            return True
        if not link.is_open:
            return False
        opened = self._hosts[index] = self._open_host(link, route)
        opened.counts = self.counts
        return True

    def _link_lost(self, _address: str, link: Link) -> None:
        for host in self:
            if host.link is link:
                self._reopening.again(host.route.partition)

    def _close(self, partition: int, why: str) -> None:
        self._hosts.pop(partition).close(why)

    def close(self, why: str) -> None:
        """Close all shards and links."""
        self._reopening.close()
        self._wanted.clear()
        for partition in tuple(self._hosts):
            self._close(partition, why)
        self._links.close()

    def host_of(self, key: str, place: tuple[int, PartitionState]) -> HostT:
        """Return the shard that holds a key; raises the reason if it is not here.

        `place` is the key's partition in the metadata.
        """
        index, partition = place
        host = self._hosts.get(index)
        if host is not None:
            return host
        if partition.leader == self._broker_id:
            raise CoordinatorLoadInProgress(f"{self._topic}-{index} is not open yet")
        raise NotCoordinator(
            f"broker {partition.leader} leads {self._topic}-{index}, which has {key!r}"
        )


def _nothing() -> None:
    """Do nothing: nobody waits for a shard to open."""
