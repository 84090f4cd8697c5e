"""An operator that deletes and recreates a topic, sometimes while shards of groups are loading."""

from __future__ import annotations

from collections.abc import Callable

from raylog.simulation.asking import UNANSWERED, Asking, without_errors
from raylog.simulation.cluster import Cluster
from raylog.wire.errors import (
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

CREATE, DELETE = 7, 6
TIMEOUT_MS = 2_000


class Churner:
    """Creates a topic, deletes it, and creates another one with its name, in a loop."""

    def __init__(
        self,
        cluster: Cluster,
        number: int,
        topic: str,
        partitions: int,
        strike: Callable[[], None],
    ) -> None:
        """`strike` is called now and then just before a deletion."""
        self.asking = Asking(cluster, number)
        self.stopping = False
        self.stopped = False
        self.made = 0
        self._topic = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=2, assignments=[], configs=[]
        )
        self._strike = strike

    @property
    def label(self) -> str:
        """The name in messages."""
        return f"whoever makes {self._topic.name}"

    async def run(self, pause_s: float) -> None:
        """Create and delete the topic until told to stop. At the end it exists."""
        await self._make()
        while not self.stopping:
            await self.asking.runtime.sleep(self.asking.random.uniform(0.3, 1.5) + pause_s)
            if self.asking.random.random() < 0.6:
                self._strike()
            await self._delete()
            await self._make()
        self.stopped = True

    async def _make(self) -> None:
        request = CreateTopicsRequest(topics=[self._topic], timeout_ms=TIMEOUT_MS)
        await self._insist(request, CREATE, TopicAlreadyExists)
        self.made += 1

    async def _delete(self) -> None:
        """Delete the topic by its id, so that a repeated request never deletes its successor."""
        while True:
            try:
                topic_id = (await self.asking.topic(self._topic.name)).topic_id
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
            else:
                break
        states = [DeleteTopicState(name=None, topic_id=topic_id)]
        request = DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
        await self._insist(request, DELETE, UnknownTopicId, UnknownTopicOrPartition)

    async def _insist(self, request: object, version: int, *done: type[KafkaError]) -> None:
        """Ask any broker until it succeeds."""
        while True:
            try:
                without_errors(await self.asking.ask_any(request, version))
            except done:
                return
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
            else:
                return
