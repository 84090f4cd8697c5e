"""A fetching client of the gateway world, and helpers for its requests and responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raylog.actors.common_messages import TopicId
from raylog.actors.replica.messages import FETCH, FetchedPartition
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.worlds.gateway.actor import World, topic_id
from tests.worlds.runtime import FakeLink, FakeRequest

T = topic_id("t")
SEGMENT = "00000000000000000000.log"
CONTENT = bytes(range(200))


def fetch(
    *partitions: tuple[int, int],
    topic: str = "t",
    by_id: bytes = T,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1_000,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[int, ...] = (),
    isolation_level: int = 0,
) -> FetchRequest:
    """Return a fetch request for (partition, offset) pairs; without a session by default."""
    asked = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index, offset in partitions
    ]
    gone = [ForgottenTopic(topic=topic, topic_id=by_id, partitions=list(forgotten))]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=by_id, partitions=asked)] if asked else [],
        forgotten_topics_data=gone if forgotten else [],
    )


def part(
    index: int = 0,
    length: int = 0,
    *,
    error: ErrorCode = ErrorCode.NONE,
    end: int = 9,
    key: TopicId = T,
    position: int = 10,
    **more: Any,
) -> FetchedPartition:
    """Return a replica's answer for a partition: `length` bytes, high watermark `end`."""
    segment = SEGMENT if length else ""
    figures = (-1, -1, -1) if error else (end, end, 0)
    return FetchedPartition(key, index, int(error), *figures, segment, position, length, **more)


class Cluster:
    """Topic t, whose partitions are served by the replicas `even` and `odd`, and a client."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.directory = directory
        self.client = world.client()
        self.even = world.link("even")
        self.odd = world.link("odd")
        (directory / SEGMENT).write_bytes(CONTENT)

    async def serve(self, partitions: int = 1, *, replicas: int = 1, leads: bool = True) -> None:
        await self.world.brokers(1, 2)
        await self.world.topic("t", partitions)
        for index in range(partitions):
            address = "odd" if index % replicas else "even"
            await self.route(address, index, leads=leads)

    async def route(
        self, address: str, index: int, key: TopicId = T, *, leads: bool = True
    ) -> FakeLink:
        directory = str(self.directory)
        return await self.world.route(address, (key, index), directory=directory, leads=leads)

    def send(self, request: FetchRequest, version: int = 13) -> None:
        self.client.send(request, version)

    def answer(self) -> FetchResponse:
        (answer,) = self.client.received()
        assert isinstance(answer, FetchResponse)
        return answer

    def unanswered(self) -> bool:
        return self.client.received() == []


def by_partition(answer: FetchResponse) -> dict[int, PartitionData]:
    return {one.partition_index: one for topic in answer.responses for one in topic.partitions}


def errors(answer: FetchResponse) -> dict[int, ErrorCode]:
    return {index: ErrorCode(one.error_code) for index, one in by_partition(answer).items()}


def records(answer: FetchResponse) -> dict[int, bytes]:
    return {index: bytes(one.records) for index, one in by_partition(answer).items() if one.records}  # type: ignore[arg-type]  # decoded as one view


def offsets(request: FakeRequest) -> dict[int, int]:
    """Return the offsets by partition that a request asks a replica for."""
    return {one[1]: one[2] for one in request.header.changes}


async def opened(cluster: Cluster, *parts: FetchedPartition, version: int = 13) -> int:
    """Open a session by a full fetch at offset 9 of every partition in `parts`; return its id."""
    cluster.send(fetch(*((one.partition, 9) for one in parts), session=(0, 0)), version)
    for link in (cluster.even, cluster.odd):
        for request in [one for one in link.requests if one.open and one.kind == FETCH]:
            asked = offsets(request)
            request.reply([one for one in parts if one.partition in asked])
    answer = cluster.answer()
    assert answer.session_id > 0
    assert errors(answer) == {one.partition: ErrorCode.NONE for one in parts}
    return answer.session_id
