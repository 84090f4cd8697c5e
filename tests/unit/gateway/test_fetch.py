"""Fetch: slices of segments, waits over one and several replicas, sessions (KIP-227)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raylog.actors.metadata.records import PartitionChanged, TopicDeleted
from raylog.actors.ports import TopicId
from raylog.actors.replica.api import FETCH, FETCH_END, FetchedPartition
from raylog.wire.errors import ErrorCode, KafkaStorageError
from raylog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from tests.support.gateway_world import FakeLink, FakeRequest, World, run, settle, topic_id

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
    """A fetch of (partition, offset) pairs; without a session by default."""
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
    """What a replica says of a partition: `length` bytes, high watermark `end`."""
    segment = SEGMENT if length else ""
    figures = (-1, -1, -1) if error else (end, end, 0)
    return FetchedPartition(key, index, int(error), *figures, segment, position, length, **more)


class Cluster:
    """Topic t with partitions served by replicas `even` and `odd`, and a client."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.directory = directory
        self.client = world.client()
        self.even = world.link("even")
        self.odd = world.link("odd")
        (directory / SEGMENT).write_bytes(CONTENT)

    async def serve(self, partitions: int = 1, *, replicas: int = 1) -> None:
        await self.world.brokers(1, 2)
        await self.world.topic("t", partitions)
        for index in range(partitions):
            address = "odd" if index % replicas else "even"
            await self.route(address, index)

    async def route(self, address: str, index: int, key: TopicId = T) -> FakeLink:
        return await self.world.route(address, (key, index), directory=str(self.directory))

    def send(self, request: FetchRequest, version: int = 13) -> None:
        self.client.send(request, version)

    def answer(self) -> FetchResponse:
        (answer,) = self.client.received()
        assert isinstance(answer, FetchResponse)
        return answer

    def unanswered(self) -> bool:
        return self.client.received() == []


def told(answer: FetchResponse) -> dict[int, PartitionData]:
    return {one.partition_index: one for topic in answer.responses for one in topic.partitions}


def errors(answer: FetchResponse) -> dict[int, ErrorCode]:
    return {index: ErrorCode(one.error_code) for index, one in told(answer).items()}


def records(answer: FetchResponse) -> dict[int, bytes]:
    return {index: bytes(one.records) for index, one in told(answer).items() if one.records}  # type: ignore[arg-type]  # decoded as one view


def offsets(request: FakeRequest) -> dict[int, int]:
    """Partition to offset of the interests that a replica was told."""
    return {one[1]: one[2] for one in request.header.changes}


# ---- one replica -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
def test_a_slice_goes_from_the_segment_to_the_client(version: int, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(fetch((0, 3)), version)
        request = cluster.even.take(FETCH)
        ask = request.header
        assert offsets(request) == {0: 3}
        assert (ask.once, ask.complete, ask.wait, ask.min_bytes, ask.max_bytes) == (
            True,
            True,
            True,
            1,
            1_000,
        )
        request.reply([part(length=20)])
        answer = cluster.answer()
        (topic,) = answer.responses
        assert (topic.topic, topic.topic_id) == (("", T) if version >= 13 else ("t", bytes(16)))
        (data,) = topic.partitions
        assert bytes(data.records) == CONTENT[10:30]  # type: ignore[arg-type]  # decoded as one view
        assert (data.high_watermark, data.last_stable_offset) == (9, 9)
        assert data.log_start_offset == (0 if version >= 5 else -1)
        assert answer.session_id == 0
        assert world.runtime.pending_timers() == 0
        assert cluster.even.kinds() == [FETCH]

    run(scenario)


def test_the_client_waits_as_long_as_it_said(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(fetch((0, 9), max_wait_ms=500, min_bytes=50))
        await world.runtime.advance(499)
        assert cluster.even.kinds() == [FETCH]
        await world.runtime.advance(1)
        assert cluster.even.kinds() == [FETCH, FETCH_END]
        assert cluster.unanswered()
        cluster.even.requests[0].reply([part(length=20)])
        assert records(cluster.answer()) == {0: CONTENT[10:30]}
        cluster.even.requests[1].reply()
        await world.runtime.advance(10_000)
        assert cluster.unanswered()

    run(scenario)


def test_a_replica_that_answers_the_end_of_the_wait_at_once(tmp_path: Path) -> None:
    """As within one process: the parked fetch is answered before `fetch_end` returns."""

    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(fetch((0, 9)))
        parked = cluster.even.take(FETCH)
        cluster.even.answering = lambda _end: parked.reply([part()])
        await world.runtime.advance(500)
        assert errors(cluster.answer()) == {0: ErrorCode.NONE}
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_a_replica_that_hangs_is_given_up(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(fetch((0, 9)))
        await world.runtime.advance(1_499)
        assert cluster.unanswered()
        await world.runtime.advance(1)
        assert errors(cluster.answer()) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        cluster.even.requests[0].reply([part(length=20)])
        await settle()
        assert cluster.unanswered()

    run(scenario)


def test_a_lost_replica_is_no_leader(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2)
        cluster.send(fetch((0, 9), (1, 9)))
        cluster.even.lose()
        expected = dict.fromkeys((0, 1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert errors(cluster.answer()) == expected

    run(scenario)


def test_max_wait_0_asks_once_and_does_not_wait(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(fetch((0, 9), max_wait_ms=0))
        request = cluster.even.take(FETCH)
        assert not request.header.wait
        request.reply([part()])
        assert errors(cluster.answer()) == {0: ErrorCode.NONE}

    run(scenario)


def test_an_error_of_the_replica_and_what_is_known_of_epochs_and_transactions(
    tmp_path: Path,
) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(3)
        cluster.send(fetch((0, 3), (1, 3), (2, 3), isolation_level=1))
        request = cluster.even.take(FETCH)
        assert request.header.isolation_level == 1
        request.reply(
            [
                part(0, error=ErrorCode.OFFSET_OUT_OF_RANGE),
                part(1, diverging=[2, 5]),
                part(2, 20, aborted=[[77, 4]]),
            ]
        )
        found = told(cluster.answer())
        assert found[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (found[0].high_watermark, found[0].current_leader) == (-1, None)
        assert found[1].diverging_epoch == EpochEndOffset(epoch=2, end_offset=5)
        assert found[2].aborted_transactions == [AbortedTransaction(producer_id=77, first_offset=4)]

    run(scenario)


def test_a_replica_that_refuses_the_whole_request(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(fetch((0, 3)))
        cluster.even.take(FETCH).fail(KafkaStorageError("disk"))
        assert errors(cluster.answer()) == {0: ErrorCode.KAFKA_STORAGE_ERROR}

    run(scenario)


def test_a_segment_that_is_just_gone_gives_no_records(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        (tmp_path / SEGMENT).unlink()
        cluster.send(fetch((0, 3)))
        cluster.even.take(FETCH).reply([part(length=20)])
        answer = cluster.answer()
        assert (errors(answer), records(answer)) == ({0: ErrorCode.NONE}, {})

    run(scenario)


def test_slices_that_are_not_in_memory_are_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(3)
        monkeypatch.setattr(world.gateway.maps, "slice", lambda *_: None)
        read = world.runtime.run_blocking

        async def failing(function: Any, *args: Any) -> Any:
            if args[2] == 40:
                raise OSError("bad sector")
            if args[2] == 50:
                raise FileNotFoundError("just gone")
            return await read(function, *args)

        monkeypatch.setattr(world.runtime, "run_blocking", failing)
        cluster.send(fetch((0, 3), (1, 3), (2, 3)))
        cluster.even.take(FETCH).reply(
            [part(0, 20), part(1, 20, position=40), part(2, 20, position=50)]
        )
        assert cluster.unanswered()
        await settle()
        answer = cluster.answer()
        assert records(answer) == {0: CONTENT[10:30]}
        assert errors(answer) == {
            0: ErrorCode.NONE,
            1: ErrorCode.KAFKA_STORAGE_ERROR,
            2: ErrorCode.NONE,
        }

    run(scenario)


# ---- what is not served here -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "version", "expected"),
    [
        (fetch((0, 3), topic="none"), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch((0, 3), by_id=b"u" * 16), 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (fetch((7, 3)), 13, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_nobody_knows_is_answered_at_once(
    request_: FetchRequest, version: int, expected: ErrorCode, tmp_path: Path
) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(request_, version)
        assert list(errors(cluster.answer()).values()) == [expected]
        assert cluster.even.requests == []

    run(scenario)


@pytest.mark.parametrize("version", [11, 12, 15, 16])
def test_a_client_at_the_wrong_broker_is_told_the_right_one(version: int, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2)
        await world.apply(PartitionChanged(T, 1, leader=2))
        await world.unroute((T, 1))
        cluster.send(fetch((0, 9), (1, 3)), version)
        request = cluster.even.take(FETCH)
        assert not request.header.wait  # one partition has news for the client already
        request.reply([part()])
        answer = cluster.answer()
        assert errors(answer) == {0: ErrorCode.NONE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=1) if version >= 12 else None
        assert told(answer)[1].current_leader == hint
        endpoint = NodeEndpoint(node_id=2, host="host2", port=9002, rack="r2")
        assert answer.node_endpoints == ([endpoint] if version >= 16 else [])

    run(scenario)


# ---- several replicas ------------------------------------------------------------------------


def test_all_replicas_are_asked_first_and_waited_for_together(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2, replicas=2)
        cluster.send(fetch((0, 9), (1, 9)))
        first, second = cluster.even.take(FETCH), cluster.odd.take(FETCH)
        assert not first.header.wait
        assert not second.header.wait
        first.reply([part(0)])
        second.reply([part(1)])
        assert cluster.unanswered()
        waiting, other = cluster.even.take(FETCH), cluster.odd.take(FETCH)
        assert waiting.header.wait
        assert other.header.wait
        assert waiting.header.changes == []
        waiting.reply([part(0, 20)])
        answer = cluster.answer()
        assert records(answer) == {0: CONTENT[10:30]}
        assert errors(answer) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
        ended = [one for one in cluster.odd.requests if one.kind == FETCH_END]
        assert [one.header[1] for one in ended] == [True]
        other.reply([part(1)])
        await world.runtime.advance(10_000)
        assert cluster.unanswered()

    run(scenario)


def test_what_is_there_at_once_is_answered_at_once(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2, replicas=2)
        cluster.send(fetch((0, 3), (1, 3)))
        cluster.odd.take(FETCH).reply([part(1, 30)])
        assert cluster.unanswered()
        cluster.even.take(FETCH).reply([part(0, 20)])
        assert records(cluster.answer()) == {0: CONTENT[10:30], 1: CONTENT[10:40]}

    run(scenario)


def test_a_replica_that_is_lost_while_another_is_waited_for(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2, replicas=2)
        cluster.send(fetch((0, 9), (1, 9)))
        cluster.even.take(FETCH).reply([part(0)])
        cluster.odd.take(FETCH).reply([part(1)])
        cluster.odd.lose()
        assert errors(cluster.answer()) == {
            0: ErrorCode.NONE,
            1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }

    run(scenario)


def test_the_answer_stays_within_the_bytes_asked_for(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2, replicas=2)
        cluster.send(fetch((0, 3), (1, 3), max_bytes=50))
        cluster.even.take(FETCH).reply([part(0, 60)])
        cluster.odd.take(FETCH).reply([part(1, 30)])
        assert records(cluster.answer()) == {0: CONTENT[10:70]}

    run(scenario)


# ---- sessions --------------------------------------------------------------------------------


async def opened(cluster: Cluster, *parts: FetchedPartition, version: int = 13) -> int:
    """Open a session by a full fetch of every part's partition at 9; returns its id."""
    cluster.send(fetch(*((one.partition, 9) for one in parts), session=(0, 0)), version)
    for link in (cluster.even, cluster.odd):
        for request in [one for one in link.requests if one.open and one.kind == FETCH]:
            asked = offsets(request)
            request.reply([one for one in parts if one.partition in asked])
    answer = cluster.answer()
    assert answer.session_id > 0
    assert errors(answer) == {one.partition: ErrorCode.NONE for one in parts}
    return answer.session_id


def test_a_session_tells_and_is_told_only_what_changed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2)
        session = await opened(cluster, part(0, 20), part(1))
        cluster.send(fetch((0, 12), session=(session, 1)))
        request = cluster.even.take(FETCH)
        assert offsets(request) == {0: 12}
        assert not request.header.complete
        assert not request.header.once
        request.reply([part(0, 20, end=15), part(1)])
        assert set(told(cluster.answer())) == {0}
        cluster.send(fetch((0, 15), session=(session, 2)))
        cluster.even.take(FETCH).reply([part(0, end=15)])
        answer = cluster.answer()
        assert (answer.error_code, answer.responses) == (0, [])

    run(scenario)


def test_a_partition_that_is_forgotten_is_no_longer_watched(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2)
        session = await opened(cluster, part(0, 20), part(1))
        cluster.send(fetch(session=(session, 1), forgotten=(1,)))
        request = cluster.even.take(FETCH)
        assert request.header.forgotten == [(T, 1)]
        assert request.header.changes == []
        request.reply([part(0, end=20), part(1, end=20)])
        assert set(told(cluster.answer())) == {0}

    run(scenario)


def test_a_partition_may_join_a_session(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2)
        session = await opened(cluster, part(0, 20))
        cluster.send(fetch((1, 4), session=(session, 1)))
        request = cluster.even.take(FETCH)
        assert offsets(request) == {1: 4}
        request.reply([part(1)])
        assert set(told(cluster.answer())) == {1}

    run(scenario)


def test_wrong_ids_and_epochs_of_sessions(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        session = await opened(cluster, part(0, 20))
        cluster.send(fetch(session=(session + 1, 1)))
        assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        cluster.send(fetch(session=(session, 2)))
        assert cluster.answer().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        cluster.send(fetch(session=(session, 1)), 12)
        assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    run(scenario)


def test_a_session_ends_when_the_client_says_so(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        session = await opened(cluster, part(0, 20))
        cluster.send(fetch((0, 9), session=(session, -1)))
        ended = cluster.even.take(FETCH_END)
        assert ended.header[1] is True
        cluster.even.take(FETCH).reply([part(0)])
        assert cluster.answer().session_id == 0
        cluster.send(fetch(session=(session, 1)))
        assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)


def test_the_least_recently_used_session_makes_room(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        first = await opened(cluster, part(0, 20))
        second = await opened(cluster, part(0, 20))
        assert cluster.even.take(FETCH_END).header[1] is True
        assert len(world.gateway.fetch_sessions) == 1
        cluster.send(fetch(session=(first, 1)))
        assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        cluster.send(fetch((0, 9), session=(second, 1), max_wait_ms=0))
        cluster.even.take(FETCH).reply([])
        assert cluster.answer().error_code == 0

    run(scenario, max_incremental_fetch_session_cache_slots="1")


def test_without_room_for_sessions_every_fetch_is_full(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        cluster.send(fetch((0, 9), session=(0, 0)))
        cluster.even.take(FETCH).reply([part(0, 20)])
        assert cluster.answer().session_id == 0

    run(scenario, max_incremental_fetch_session_cache_slots="0")


def test_a_partition_in_error_is_tried_again_with_every_fetch(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2)
        session = await opened(cluster, part(0, 20), part(1))
        await world.unroute((T, 1))
        cluster.send(fetch(session=(session, 1)))
        cluster.even.take(FETCH).reply([part(1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
        assert errors(cluster.answer()) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        cluster.send(fetch(session=(session, 2)))
        cluster.even.take(FETCH).reply([])
        assert errors(cluster.answer()) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await cluster.route("odd", 1)
        cluster.send(fetch(session=(session, 3)))
        assert offsets(cluster.odd.take(FETCH)) == {1: 9}
        cluster.even.take(FETCH).reply([])
        cluster.odd.take(FETCH).reply([part(1, 20)])
        assert records(cluster.answer()) == {1: CONTENT[10:30]}

    run(scenario)


def test_an_error_that_comes_too_late_is_not_lost(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve(2, replicas=2)
        session = await opened(cluster, part(0, 20), part(1))
        cluster.send(fetch(session=(session, 1)))
        cluster.even.take(FETCH).reply([])
        cluster.odd.take(FETCH).reply([])
        late = cluster.odd.take(FETCH)
        cluster.even.take(FETCH).reply([part(0, 20)])
        assert records(cluster.answer()) == {0: CONTENT[10:30]}
        await world.unroute((T, 1))
        late.reply([part(1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
        cluster.send(fetch(session=(session, 2)))
        cluster.even.take(FETCH).reply([])
        assert errors(cluster.answer()) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run(scenario)


def test_a_lost_replica_of_a_session_is_followed_by_its_successor(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        session = await opened(cluster, part(0, 20))
        cluster.even.lose()
        cluster.send(fetch((0, 12), session=(session, 1)))
        assert errors(cluster.answer()) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await cluster.route("odd", 0)
        cluster.send(fetch(session=(session, 2)))
        request = cluster.odd.take(FETCH)
        assert offsets(request) == {0: 12}
        request.reply([part(0, 20)])
        assert records(cluster.answer()) == {0: CONTENT[10:30]}

    run(scenario)


def test_a_session_by_names_follows_a_topic_that_is_created_later(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await world.brokers(1)
        cluster.send(fetch((0, 9), session=(0, 0)), 12)
        answer = cluster.answer()
        assert errors(answer) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        session = answer.session_id
        await cluster.serve()
        cluster.send(fetch(session=(session, 1)), 12)
        request = cluster.even.take(FETCH)
        assert [one.topic_id for one in request.header.changes] == [T]
        request.reply([part(0, 20)])
        assert records(cluster.answer()) == {0: CONTENT[10:30]}

    run(scenario)


def test_a_session_by_names_follows_a_topic_that_is_created_anew(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.serve()
        session = await opened(cluster, part(0, 20), version=12)
        await world.apply(TopicDeleted(T))
        await world.unroute((T, 0))
        anew = await world.topic("t", id_of="anew")
        await cluster.route("odd", 0, anew)
        cluster.send(fetch(session=(session, 1)), 12)
        cluster.even.take(FETCH).reply([part(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
        assert errors(cluster.answer()) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        cluster.send(fetch((0, 0), session=(session, 2)), 12)
        request = cluster.odd.take(FETCH)
        assert [(one.topic_id, one.offset) for one in request.header.changes] == [(anew, 0)]
        request.reply([part(0, 20, key=anew)])
        assert records(cluster.answer()) == {0: CONTENT[10:30]}

    run(scenario)
