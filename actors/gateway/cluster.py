"""A gateway's view of the cluster: the metadata image and the routes to local replicas.

The Broker pushes both. A partition is served here if this broker leads it and there is a route to
its Replica actor. Consumers may also read from a follower (KIP-392).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raylog.actors.common_messages import PartitionKey, Route, RouteUpdate, TopicId
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.actors.metadata.records import ConfigChanged, Record
from raylog.actors.peers.metadata_copies import MetadataCopy
from raylog.actors.reopening import Reopening
from raylog.actors.runtime.base import Link, PeerLost, Runtime
from raylog.actors.runtime.link_table import Links
from raylog.wire.errors import (
    KafkaError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class OpenRoute:
    """The open route to the Replica actor of one partition."""

    link: Link
    leader_epoch: int
    directory: str
    leads: bool


class LeaderStarting(NotLeaderOrFollower):
    """This broker should lead, but its replica is still starting."""


class ClusterView:
    """The metadata and the routes. Only the Broker's pushes and the links change them.

    A link that broke, or that a hanging process did not accept, is reopened as long as the Broker's
    routes name that process.
    """

    def __init__(self, runtime: Runtime, broker_id: int) -> None:
        self.image = MetadataImage()
        self.broker_id = broker_id
        self.configs_version = 0
        """Incremented with every change of a setting."""
        self._runtime = runtime
        self._copy = MetadataCopy(runtime, self.image)
        self._known_routes: dict[PartitionKey, Route] = {}
        """All routes that the Broker has pushed, open or not."""
        self._routes: dict[PartitionKey, OpenRoute] = {}
        self._links = Links(runtime, self._lost)
        self._reopening = Reopening(runtime, self._open, self._tell)
        """By the address of the process."""
        self._changed: list[Callable[[], None]] = []

    async def apply_metadata(
        self,
        from_offset: int,
        to_offset: int,
        records: Sequence[Record],
        parts: Sequence[bytes] = (),
    ) -> None:
        """Apply metadata records; a from_offset of -1 means a whole snapshot, sent in parts."""
        if not await self._copy.take_in(from_offset, to_offset, records, parts):
            return
        if from_offset < 0 or any(isinstance(record, ConfigChanged) for record in records):
            self.configs_version += 1
        self._tell()

    async def apply_routes(self, update: RouteUpdate) -> list[str]:
        """Apply routes, and open links to new Replica actors.

        Return the directories of partitions that are no longer served.
        """
        gone = [
            old.directory for key in update.removed if (old := self._known_routes.pop(key, None))
        ]
        for key in update.removed:
            self._routes.pop(key, None)
        for one in update.added:
            key = (one.topic_id, one.partition)
            self._known_routes[key] = one
            self._routes.pop(key, None)
        for address in dict.fromkeys(one.replica_address for one in update.added):
            if not await self._open(address):
                self._reopening.again(address)
        self._tell()
        return gone

    async def _open(self, address: str) -> bool:
        """Open the routes to a process; return whether this succeeded or is no longer needed."""
        if not self._known_routes_at(address):
            return True
        try:
            link = await self._links.to(address)
        except PeerLost as lost:
            log.warning("no link to the replicas at %s: %s", address, lost)
            return False
        if not link.is_open:
            return False
        for one in self._known_routes_at(address):
            key = (one.topic_id, one.partition)
            if key not in self._routes:
                self._routes[key] = OpenRoute(link, one.leader_epoch, one.directory, one.leads)
        return True

    def _known_routes_at(self, address: str) -> list[Route]:
        return [one for one in self._known_routes.values() if one.replica_address == address]

    def _lost(self, address: str, link: Link) -> None:
        lost = [key for key, route in self._routes.items() if route.link is link]
        for key in lost:
            del self._routes[key]
        if self._known_routes_at(address):
            self._reopening.again(address)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change; return a function that removes it."""
        self._changed.append(callback)
        return lambda: self._changed.remove(callback)

    def _tell(self) -> None:
        for callback in tuple(self._changed):
            callback()

    def topic(self, topic_id: TopicId) -> Topic:
        """Return a topic by id; raises UnknownTopicId."""
        topic = self.image.topics.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {topic_id.hex()}")
        return topic

    def topic_named(self, name: str) -> Topic:
        """Return a topic by name; raises UnknownTopicOrPartition."""
        topic_id = self.image.topic_ids.get(name)
        if topic_id is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return self.image.topics[topic_id]

    def led(self, name: str, partition: int) -> tuple[Topic, Link]:
        """Return a topic by name, and the link to a partition; raises as `topic_named`, `route`."""
        topic = self.topic_named(name)
        return topic, self.route(topic, partition).link

    def route(self, topic: Topic, partition: int) -> OpenRoute:
        """Return the route to a partition that this broker leads.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower if another broker leads, or
        LeaderStarting.
        """
        route = self._routes.get((topic.topic_id, partition))
        if route is not None and route.leads:
            return route
        raise self._not_served(topic, partition)

    def any_route(self, topic: Topic, partition: int) -> OpenRoute:
        """Return the route to a partition that this broker leads or follows; raises as `route`."""
        route = self._routes.get((topic.topic_id, partition))
        if route is not None:
            return route
        raise self._not_served(topic, partition)

    def check_held(self, topic: Topic, partition: int) -> None:
        """Raise UnknownTopicOrPartition if this broker has no replica of the partition."""
        if not 0 <= partition < len(topic.partitions):
            raise _no_partition(topic, partition)
        if self.broker_id not in topic.partitions[partition].replicas:
            raise UnknownTopicOrPartition(
                f"broker {self.broker_id} has no replica of {topic.name}-{partition}"
            )

    def _not_served(self, topic: Topic, partition: int) -> KafkaError:
        if not 0 <= partition < len(topic.partitions):
            return _no_partition(topic, partition)
        leader = topic.partitions[partition].leader
        refusal = LeaderStarting if leader == self.broker_id else NotLeaderOrFollower
        return refusal(
            f"broker {self.broker_id} does not serve {topic.name}-{partition}, {leader} leads it"
        )

    def serves(self, topic: Topic) -> bool:
        """Whether every partition is served, as far as this gateway knows.

        That means that partitions led here have a route, and those led elsewhere have an open log.
        """
        return all(
            self._leads(topic.topic_id, index)
            if state.leader == self.broker_id
            else state.leader in state.incarnations
            for index, state in enumerate(topic.partitions)
        )

    def _leads(self, topic_id: TopicId, partition: int) -> bool:
        route = self._routes.get((topic_id, partition))
        return route is not None and route.leads

    def close(self) -> None:
        """Close all links."""
        self._reopening.close()
        self._links.close()


def _no_partition(topic: Topic, partition: int) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {partition}"
    )
