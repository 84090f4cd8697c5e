"""Fetch: slices of segments, waits on one or several replicas."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.metadata.records import PartitionChanged
from raylog.actors.replica.messages import FETCH, FETCH_END
from raylog.wire.errors import ErrorCode, KafkaStorageError
from raylog.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchRequest
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.gateway.fetching import (
    CONTENT,
    SEGMENT,
    Cluster,
    T,
    by_partition,
    errors,
    fetch,
    offsets,
    part,
    records,
)
from tests.worlds.runtime import settle

# ---- one replica -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
@in_world(run)
async def test_a_slice_goes_from_the_segment_to_the_client(
    world: World, *, version: int, tmp_path: Path
) -> None:
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


@in_world(run)
async def test_the_client_waits_as_long_as_it_said(world: World, *, tmp_path: Path) -> None:
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


@in_world(run)
async def test_a_replica_that_answers_the_end_of_the_wait_at_once(
    world: World, *, tmp_path: Path
) -> None:
    """As within one process: the parked fetch is answered before `fetch_end` returns."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 9)))
    parked = cluster.even.take(FETCH)
    cluster.even.answering = lambda _end: parked.reply([part()])
    await world.runtime.advance(500)
    assert errors(cluster.answer()) == {0: ErrorCode.NONE}
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_a_replica_that_hangs_is_given_up(world: World, *, tmp_path: Path) -> None:
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


@in_world(run)
async def test_a_lost_replica_is_no_leader(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    cluster.send(fetch((0, 9), (1, 9)))
    cluster.even.lose()
    expected = dict.fromkeys((0, 1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert errors(cluster.answer()) == expected


@in_world(run)
async def test_max_wait_0_asks_once_and_does_not_wait(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 9), max_wait_ms=0))
    request = cluster.even.take(FETCH)
    assert not request.header.wait
    request.reply([part()])
    assert errors(cluster.answer()) == {0: ErrorCode.NONE}


@in_world(run)
async def test_an_error_of_the_replica_and_what_is_known_of_epochs_and_transactions(
    world: World, *, tmp_path: Path
) -> None:
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
    found = by_partition(cluster.answer())
    assert found[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found[0].high_watermark, found[0].current_leader) == (-1, None)
    assert found[1].diverging_epoch == EpochEndOffset(epoch=2, end_offset=5)
    assert found[2].aborted_transactions == [AbortedTransaction(producer_id=77, first_offset=4)]


@in_world(run)
async def test_a_version_without_diverging_epochs_is_told_that_its_offset_is_out_of_range(
    world: World, *, tmp_path: Path
) -> None:
    """The session may be one that a newer version began, with an epoch to compare."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 9)), 11)
    cluster.even.take(FETCH).reply([part(0)._replace(diverging=[3, 5])])
    assert by_partition(cluster.answer())[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@in_world(run)
async def test_a_replica_that_refuses_the_whole_request(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 3)))
    cluster.even.take(FETCH).fail(KafkaStorageError("disk"))
    assert errors(cluster.answer()) == {0: ErrorCode.KAFKA_STORAGE_ERROR}


@in_world(run)
async def test_a_segment_that_is_just_gone_gives_no_records(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    (tmp_path / SEGMENT).unlink()
    cluster.send(fetch((0, 3)))
    cluster.even.take(FETCH).reply([part(length=20)])
    answer = cluster.answer()
    assert (errors(answer), records(answer)) == ({0: ErrorCode.NONE}, {})


@in_world(run)
async def test_slices_that_are_not_in_memory_are_read_beside_the_loop(
    world: World, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@in_world(run)
async def test_a_slice_that_cannot_be_mapped_is_read_instead(
    world: World,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()

    def no_descriptors(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(world.gateway.maps, "slice", no_descriptors)
    cluster.send(fetch((0, 3)))
    cluster.even.take(FETCH).reply([part(0, 20)])
    await settle()
    answer = cluster.answer()
    assert (errors(answer), records(answer)) == ({0: ErrorCode.NONE}, {0: CONTENT[10:30]})
    assert "Too many open files" in caplog.text


# ---- what is not served here -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "version", "expected"),
    [
        (fetch((0, 3), topic="none"), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch((0, 3), by_id=b"u" * 16), 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (fetch((7, 3)), 13, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
@in_world(run)
async def test_fetch_of_an_unknown_partition_is_answered_at_once(
    world: World, *, request_: FetchRequest, version: int, expected: ErrorCode, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(request_, version)
    (found,) = by_partition(cluster.answer()).values()
    assert found.error_code == expected
    figures = (found.high_watermark, found.last_stable_offset, found.log_start_offset)
    assert figures == (-1, -1, -1)
    assert cluster.even.requests == []


@pytest.mark.parametrize("version", [11, 12, 15, 16])
@in_world(run)
async def test_a_client_at_the_wrong_broker_is_told_the_right_one(
    world: World, *, version: int, tmp_path: Path
) -> None:
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
    assert by_partition(answer)[1].current_leader == hint
    endpoint = NodeEndpoint(node_id=2, host="host2", port=9002, rack="r2")
    assert answer.node_endpoints == ([endpoint] if version >= 16 else [])


# ---- several replicas ------------------------------------------------------------------------


@in_world(run)
async def test_all_replicas_are_asked_first_and_waited_for_together(
    world: World, *, tmp_path: Path
) -> None:
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


@in_world(run)
async def test_the_bytes_of_all_replicas_count_for_min_bytes(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 9), (1, 9), min_bytes=100))
    cluster.even.take(FETCH).reply([part(0, 10)])
    cluster.odd.take(FETCH).reply([part(1)])
    waiting, other = cluster.even.take(FETCH), cluster.odd.take(FETCH)
    assert (waiting.header.min_bytes, other.header.min_bytes) == (55, 45)
    waiting.reply([part(0, 60)])
    assert cluster.unanswered()
    await world.runtime.advance(0)
    assert cluster.odd.take(FETCH_END).header[1] is False
    other.reply([part(1, 20)])
    waiting, other = cluster.even.take(FETCH), cluster.odd.take(FETCH)
    assert (waiting.header.min_bytes, other.header.min_bytes) == (70, 30)
    assert waiting.header.changes == other.header.changes == []
    other.reply([part(1, 40)])
    assert records(cluster.answer()) == {0: CONTENT[10:70], 1: CONTENT[10:50]}


@in_world(run)
async def test_the_time_is_up_before_all_replicas_together_have_enough(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 9), (1, 9), min_bytes=100, max_wait_ms=500))
    cluster.even.take(FETCH).reply([part(0)])
    cluster.odd.take(FETCH).reply([part(1)])
    await world.runtime.advance(300)
    cluster.even.take(FETCH).reply([part(0, 60)])
    await world.runtime.advance(0)
    cluster.odd.take(FETCH).reply([part(1, 20)])
    await world.runtime.advance(199)
    waiting, other = cluster.even.take(FETCH), cluster.odd.take(FETCH)
    asked = len(cluster.even.requests)
    assert cluster.unanswered()
    await world.runtime.advance(1)
    waiting.reply([part(0, 60)])
    assert cluster.unanswered()
    other.reply([part(1, 30)])
    assert records(cluster.answer()) == {0: CONTENT[10:70], 1: CONTENT[10:40]}
    assert [one.kind for one in cluster.even.requests[asked:]] == [FETCH_END, FETCH_END]


@in_world(run)
async def test_a_replica_without_room_for_more_ends_the_wait_for_min_bytes(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 9), (1, 9), min_bytes=1_000, max_bytes=100))
    cluster.even.take(FETCH).reply([part(0, 90)])
    cluster.odd.take(FETCH).reply([part(1)])
    waiting = cluster.even.take(FETCH)
    assert waiting.header.min_bytes == 95  # no more than max_bytes in all
    waiting.reply([part(0, 90)])  # its next batch is too large
    assert records(cluster.answer()) == {0: CONTENT[10:100]}


@pytest.mark.parametrize("replicas", [1, 2])
@in_world(run)
async def test_a_consumer_that_must_cut_its_log_is_notified_at_once(
    world: World, *, replicas: int, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=replicas)
    cluster.send(fetch((0, 9), (1, 9), min_bytes=100))
    if replicas == 2:
        cluster.odd.take(FETCH).reply([part(1)])
    cluster.even.take(FETCH).reply([part(0)._replace(diverging=[3, 5])])
    assert by_partition(cluster.answer())[0].diverging_epoch == EpochEndOffset(
        epoch=3, end_offset=5
    )


@in_world(run)
async def test_no_replica_is_asked_for_a_client_that_is_answered(
    world: World, *, tmp_path: Path
) -> None:
    """Two of them in the gateway's own process answer at once, the first with enough."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 9), (1, 9)))
    cluster.even.answering = lambda _request: [part(0, 20)]
    cluster.even.take(FETCH).reply([part(0)])
    cluster.odd.take(FETCH).reply([part(1)])
    assert records(cluster.answer()) == {0: CONTENT[10:30]}
    assert [one.kind for one in cluster.odd.requests] == [FETCH, FETCH_END]


@in_world(run)
async def test_available_records_are_answered_at_once(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 3), (1, 3)))
    cluster.odd.take(FETCH).reply([part(1, 30)])
    assert cluster.unanswered()
    cluster.even.take(FETCH).reply([part(0, 20)])
    assert records(cluster.answer()) == {0: CONTENT[10:30], 1: CONTENT[10:40]}


@in_world(run)
async def test_a_replica_that_is_lost_while_another_is_waited_for(
    world: World, *, tmp_path: Path
) -> None:
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


@in_world(run)
async def test_the_answer_stays_within_the_bytes_asked_for(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 3), (1, 3), max_bytes=50))
    cluster.even.take(FETCH).reply([part(0, 60)])
    cluster.odd.take(FETCH).reply([part(1, 30)])
    assert records(cluster.answer()) == {0: CONTENT[10:70]}
