"""A gateway's view of the cluster: the metadata image, the routes to its broker's replicas.

The Broker pushes both. A partition is served here when this broker leads it and a route to its
Replica actor is there; consumers may also read from a follower (KIP-392).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.actors.metadata.records import ConfigChanged, Record
from raylog.actors.ports import PartitionKey, RouteUpdate, TopicId
from raylog.actors.replica.links import ReplicaLinks
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.errors import (
    KafkaError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


@dataclass(frozen=True, slots=True, eq=False)
class OpenRoute:
    """The way to the Replica actor of one partition."""

    link: Link
    leader_epoch: int
    directory: str
    leads: bool


class LeaderStarting(NotLeaderOrFollower):
    """This broker is to lead, and its replica is just being (re)started."""


class ClusterView:
    """What the gateway knows; changed only by the Broker's pushes and by lost links."""

    def __init__(self, runtime: Runtime, broker_id: int) -> None:
        self.image = MetadataImage()
        self.broker_id = broker_id
        self.configs_version = 0
        """Moves on with every change of a configuration."""
        self._routes: dict[PartitionKey, OpenRoute] = {}
        self._links = ReplicaLinks(runtime, self._lost)
        self._changed: list[Callable[[], None]] = []

    async def apply_metadata(
        self, from_offset: int, to_offset: int, records: Sequence[Record]
    ) -> None:
        """Apply records of the metadata log; from_offset -1 brings a whole snapshot."""
        if not self.image.apply_update(from_offset, to_offset, records):
            if to_offset > self.image.offset:
                raise ValueError(
                    f"metadata from offset {from_offset} came, {self.image.offset} was expected"
                )
            return
        if from_offset < 0 or any(isinstance(record, ConfigChanged) for record in records):
            self.configs_version += 1
        self._tell()

    async def apply_routes(self, update: RouteUpdate) -> list[str]:
        """Take in routes, opening links to Replica actors not met before.

        Returns the directories of partitions that are no longer served.
        """
        gone = [r.directory for key in update.removed if (r := self._routes.pop(key, None))]
        for route in update.added:
            link = await self._links.to(route)
            if link is not None:
                key = (route.topic_id, route.partition)
                self._routes[key] = OpenRoute(
                    link, route.leader_epoch, route.directory, route.leads
                )
        self._tell()
        return gone

    def _lost(self, link: Link) -> None:
        for key in [key for key, route in self._routes.items() if route.link is link]:
            del self._routes[key]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` after each change; returns what takes it off again."""
        self._changed.append(callback)
        return lambda: self._changed.remove(callback)

    def _tell(self) -> None:
        for callback in tuple(self._changed):
            callback()

    def topic(self, topic_id: TopicId) -> Topic:
        """A topic by id; raises UnknownTopicId."""
        topic = self.image.topics.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {topic_id.hex()}")
        return topic

    def topic_named(self, name: str) -> Topic:
        """A topic by name; raises UnknownTopicOrPartition."""
        topic_id = self.image.topic_ids.get(name)
        if topic_id is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return self.image.topics[topic_id]

    def route(self, topic: Topic, partition: int) -> OpenRoute:
        """The way to a partition that this broker leads.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower when another broker leads, or
        LeaderStarting.
        """
        route = self._routes.get((topic.topic_id, partition))
        if route is not None and route.leads:
            return route
        raise self._not_served(topic, partition)

    def any_route(self, topic: Topic, partition: int) -> OpenRoute:
        """The way to a partition that this broker leads or follows; raises as `route` does."""
        route = self._routes.get((topic.topic_id, partition))
        if route is not None:
            return route
        raise self._not_served(topic, partition)

    def _not_served(self, topic: Topic, partition: int) -> KafkaError:
        if not 0 <= partition < len(topic.partitions):
            return UnknownTopicOrPartition(
                f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {partition}"
            )
        leader = topic.partitions[partition].leader
        refusal = LeaderStarting if leader == self.broker_id else NotLeaderOrFollower
        return refusal(
            f"broker {self.broker_id} does not serve {topic.name}-{partition}, {leader} leads it"
        )

    def serves(self, topic: Topic) -> bool:
        """Whether every partition is served, as far as this gateway knows.

        Those led here have a route; leaders elsewhere have opened their logs.
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
        self._links.close()
