"""Fetch in edge cases: just enough bytes, waits that just ended, topics just deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.gateway.context import TURN
from raylog.actors.gateway.handlers.fetch import REPLICA_GRACE_MS
from raylog.actors.metadata.records import PartitionChanged, TopicDeleted
from raylog.actors.replica.messages import FETCH, FETCH_END
from raylog.wire.errors import ErrorCode
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.gateway.fetching import (
    CONTENT,
    Cluster,
    T,
    by_partition,
    errors,
    fetch,
    opened,
    part,
    records,
)
from tests.worlds.runtime import settle

# ---- bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_bytes", "expected"),
    [
        (-1, {0: CONTENT[10:70]}),
        (0, {0: CONTENT[10:70]}),
        (1, {0: CONTENT[10:70]}),
        (60, {0: CONTENT[10:70]}),
        (61, {0: CONTENT[10:70], 1: CONTENT[10:40]}),
    ],
)
@in_world(run)
async def test_one_partition_is_always_answered_and_others_as_long_as_there_is_room(
    world: World, *, max_bytes: int, expected: dict[int, bytes], tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    cluster.send(fetch((0, 3), (1, 3), max_bytes=max_bytes))
    cluster.even.take(FETCH).reply([part(0, 60), part(1, 30)])
    assert records(cluster.answer()) == expected


@pytest.mark.parametrize(
    ("max_bytes", "min_bytes", "asked"),
    [(800, 1, (800, 1)), (2_000, 2_000, (2_000, 2_000)), (5_000, 5_000, (2_000, 2_000))],
)
@in_world(run, fetch_max_bytes="2000")
async def test_the_brokers_own_limit_bounds_an_answer(
    world: World, *, max_bytes: int, min_bytes: int, asked: tuple[int, int], tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 3), max_bytes=max_bytes, min_bytes=min_bytes))
    header = cluster.even.take(FETCH).header
    assert (header.max_bytes, header.min_bytes) == asked


@in_world(run)
async def test_a_partition_that_there_was_no_room_for_comes_with_the_next_fetch(
    world: World, *, tmp_path: Path
) -> None:
    """In a session, where the replica tells of it again."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve(3)
    session = await opened(cluster, part(0), part(1), part(2))
    cluster.send(fetch(session=(session, 1), max_bytes=60))
    cluster.even.take(FETCH).reply([part(0, 60), part(1, 30), part(2, end=12)])
    first = cluster.answer()
    assert records(first) == {0: CONTENT[10:70]}
    assert set(by_partition(first)) == {0, 2}, "high watermarks are told all the same"
    cluster.send(fetch(session=(session, 2), max_bytes=60))
    cluster.even.take(FETCH).reply([part(0, 60), part(1, 30)])
    assert records(cluster.answer()) == {1: CONTENT[10:40], 0: CONTENT[10:70]}
    cluster.send(fetch(session=(session, 3), max_bytes=60))
    cluster.even.take(FETCH).reply([part(0, 60), part(1, 30)])
    cluster.answer()
    cluster.send(fetch(session=(session, 4), max_bytes=60))
    cluster.even.take(FETCH).reply([part(0, 20)])
    assert set(by_partition(cluster.answer())) == {0}, "there is nothing of the other any more"


# ---- waits -----------------------------------------------------------------------------------


async def waiting_for(cluster: Cluster, min_bytes: int, max_wait_ms: int = 500) -> None:
    """Two replicas that have nothing are waited for."""
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 9), (1, 9), min_bytes=min_bytes, max_wait_ms=max_wait_ms))
    cluster.even.take(FETCH).reply([part(0)])
    cluster.odd.take(FETCH).reply([part(1)])


@pytest.mark.parametrize(("share", "answered"), [(49, True), (50, False)])
@in_world(run)
async def test_a_replica_that_has_just_its_share_may_have_room_for_more(
    world: World, *, share: int, answered: bool, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await waiting_for(cluster, 100)
    cluster.even.take(FETCH).reply([part(0, share)])
    assert bool(cluster.client.received()) == answered


@pytest.mark.parametrize(("second", "answered"), [(39, False), (40, True)])
@in_world(run)
async def test_the_wait_ends_with_just_enough(
    world: World, *, second: int, answered: bool, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await waiting_for(cluster, 100)
    cluster.even.take(FETCH).reply([part(0, 60)])
    await world.runtime.advance(0)
    assert cluster.unanswered()
    cluster.odd.take(FETCH).reply([part(1, second)])
    assert bool(cluster.client.received()) == answered


@in_world(run)
async def test_replicas_that_answer_together_are_not_called_in_again(
    world: World, *, tmp_path: Path
) -> None:
    """They are asked for what is missing already, and may take their time for that."""

    cluster = Cluster(world, tmp_path)
    await waiting_for(cluster, 200)
    cluster.even.take(FETCH).reply([part(0, 100)])
    cluster.odd.take(FETCH).reply([part(1, 40)])
    asked = [one for one in (*cluster.even.requests, *cluster.odd.requests) if one.open]
    assert [(one.kind, one.header.wait) for one in asked] == [(FETCH, True)] * 2
    await world.runtime.advance(1)
    open_now = [one for one in (*cluster.even.requests, *cluster.odd.requests) if one.open]
    assert open_now == asked
    assert cluster.unanswered()


@pytest.mark.parametrize("max_wait_ms", [-(2**31), -1, 0])
@in_world(run)
async def test_without_time_to_wait_several_replicas_are_asked_once(
    world: World, *, max_wait_ms: int, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await waiting_for(cluster, 1, max_wait_ms=max_wait_ms)
    assert errors(cluster.answer()) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    for link in (cluster.even, cluster.odd):
        assert not link.requests[0].header.wait
        assert not link.requests[0].header.once, "who else could it be waited for with"
        assert [(one.kind, one.header[1]) for one in link.requests[1:]] == [(FETCH_END, True)]
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_nobody_is_waited_for_when_the_client_is_gone(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 9), (1, 9)))
    cluster.client.transport.closed = True
    cluster.even.take(FETCH).reply([part(0)])
    cluster.odd.take(FETCH).reply([part(1)])
    assert cluster.even.kinds() == cluster.odd.kinds() == [FETCH, FETCH_END]
    assert world.runtime.pending_timers() == 0
    assert world.gateway.memory.held == 0


@in_world(run)
async def test_a_replica_that_hangs_is_left_out_and_others_are_notified(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await waiting_for(cluster, 1, max_wait_ms=500)
    await world.runtime.advance(500)
    cluster.even.requests[1].reply([part(0, end=12)])
    assert cluster.unanswered()
    await world.runtime.advance(REPLICA_GRACE_MS)
    answer = cluster.answer()
    assert errors(answer) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}, "as they were before"
    assert by_partition(answer)[0].high_watermark == 12
    assert by_partition(answer)[1].high_watermark == 9


# ---- what is just gone -----------------------------------------------------------------------


@in_world(run)
async def test_nothing_is_read_of_a_topic_that_is_just_deleted(
    world: World, *, tmp_path: Path
) -> None:
    """Its interceptors are gone with it, and what they would have hidden is not known."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 3)))
    await world.apply(TopicDeleted(T))
    cluster.even.take(FETCH).reply([part(0, 20)])
    answer = cluster.answer()
    assert (errors(answer), records(answer)) == ({0: ErrorCode.NONE}, {})


@in_world(run)
async def test_an_error_of_a_topic_that_is_just_deleted_has_no_hint(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 3)), 16)
    await world.apply(TopicDeleted(T))
    cluster.even.take(FETCH).reply([part(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
    answer = cluster.answer()
    assert errors(answer) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (by_partition(answer)[0].current_leader, answer.node_endpoints) == (None, [])


@in_world(run)
async def test_error_unrelated_to_leadership_has_no_leader_hint(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    await world.apply(PartitionChanged(T, 1, leader=2))
    cluster.send(fetch((0, 3), (1, 3)), 16)
    cluster.even.take(FETCH).reply([part(0, error=ErrorCode.OFFSET_OUT_OF_RANGE), part(1, 20)])
    answer = cluster.answer()
    assert [one.current_leader for one in by_partition(answer).values()] == [None, None]
    assert answer.node_endpoints == []


@in_world(run)
async def test_the_records_of_a_replica_that_is_lost_as_it_answers_are_left_out(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    cluster.send(fetch((0, 3), (1, 3)))
    cluster.even.take(FETCH).reply([part(0, 20)])
    cluster.odd.lose()
    await settle()
    answer = cluster.answer()
    assert records(answer) == {0: CONTENT[10:30]}
    assert errors(answer) == {0: ErrorCode.NONE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}


# ---- two connections go on with one session --------------------------------------------------

MANY = 2 * TURN + 1
UNKNOWN = TopicId(b"u" * 16)


async def large_session(cluster: Cluster, version: int, **named: Any) -> int:
    """A session with more partitions than are handled in one turn; its id."""
    cluster.send(fetch(*((at, 9) for at in range(MANY)), session=(0, 0), **named), version)
    await settle()
    for request in [one for one in cluster.even.requests if one.open]:
        request.reply([part(at) for at in range(MANY)])
    await settle()
    answer = cluster.answer()
    assert len(by_partition(answer)) == MANY
    assert answer.session_id
    return answer.session_id


@pytest.mark.parametrize("version", [12, 13])
@in_world(run)
async def test_partitions_may_be_forgotten_while_they_are_looked_for_again(
    world: World, *, version: int, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    session = await large_session(cluster, version, by_id=UNKNOWN)
    other = world.client()
    cluster.send(fetch(session=(session, 1), max_wait_ms=0), version)
    last = fetch(
        session=(session, 2), max_wait_ms=0, by_id=UNKNOWN, forgotten=tuple(range(TURN, MANY))
    )
    other.send(last, version)
    for _ in range(3):
        await settle()
    assert [len(by_partition(one)) for one in other.received()] == [TURN]
    assert len(cluster.client.received()) == 1


@in_world(run)
async def test_a_topic_may_be_found_by_its_name_by_two_requests_together(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    session = await large_session(cluster, 12)
    await world.brokers(1)
    await world.topic("t", MANY)
    other = world.client()
    cluster.send(fetch(session=(session, 1), max_wait_ms=0), 12)
    other.send(fetch(session=(session, 2), max_wait_ms=0), 12)
    for _ in range(3):
        await settle()
    for client in (cluster.client, other):
        (answer,) = client.received()
        assert set(errors(answer).values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    kept = world.gateway.fetch_sessions.resume(session, 3, by_names=True)
    assert sorted(kept.interests) == [(T, at) for at in range(MANY)]


@in_world(run)
async def test_partitions_may_be_forgotten_while_they_are_reported(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await world.brokers(1)
    await world.topic("t", MANY)
    keys = [(T, at) for at in range(MANY)]
    await world.route("even", *keys, directory=str(tmp_path))
    session = await large_session(cluster, 13)
    other = world.client()
    cluster.send(fetch(session=(session, 1), max_wait_ms=0))
    cluster.even.take(FETCH).reply([part(at, end=10) for at in range(MANY)])
    gone = fetch(session=(session, 2), max_wait_ms=0, forgotten=(MANY - 1,))
    other.send(gone, 13)
    cluster.even.take(FETCH).reply([])
    await settle()
    assert set(by_partition(cluster.answer())) == set(range(MANY - 1))
    assert [one.error_code for one in other.received()] == [0]
