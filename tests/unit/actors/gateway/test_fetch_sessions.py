"""Fetch sessions of clients (KIP-227): changes are sent, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

from raylog.actors.metadata.records import TopicDeleted
from raylog.actors.replica.messages import FETCH, FETCH_END
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.gateway.fetching import (
    CONTENT,
    Cluster,
    T,
    by_partition,
    errors,
    fetch,
    offsets,
    opened,
    part,
    records,
)


@in_world(run)
async def test_a_session_tells_and_is_told_only_what_changed(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    session = await opened(cluster, part(0, 20), part(1))
    cluster.send(fetch((0, 12), session=(session, 1)))
    request = cluster.even.take(FETCH)
    assert offsets(request) == {0: 12}
    assert not request.header.complete
    assert not request.header.once
    request.reply([part(0, 20, end=15), part(1)])
    assert set(by_partition(cluster.answer())) == {0}
    cluster.send(fetch((0, 15), session=(session, 2)))
    cluster.even.take(FETCH).reply([part(0, end=15)])
    answer = cluster.answer()
    assert (answer.error_code, answer.responses) == (0, [])


@in_world(run)
async def test_partitions_of_several_replicas_take_turns_where_there_is_no_room_for_all(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    session = await opened(cluster, part(0, 20), part(1, 20))
    served = []
    for epoch in range(1, 5):
        cluster.send(fetch(session=(session, epoch), max_bytes=50))
        cluster.even.take(FETCH).reply([part(0, 60)])  # always the first to answer
        cluster.odd.take(FETCH).reply([part(1, 60)])
        served.append(list(records(cluster.answer())))
    assert served == [[0], [1], [0], [1]]


@in_world(run)
async def test_a_partition_that_is_forgotten_is_no_longer_watched(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    session = await opened(cluster, part(0, 20), part(1))
    cluster.send(fetch(session=(session, 1), forgotten=(1,)))
    request = cluster.even.take(FETCH)
    assert request.header.forgotten == [(T, 1)]
    assert request.header.changes == []
    request.reply([part(0, end=20), part(1, end=20)])
    assert set(by_partition(cluster.answer())) == {0}


@in_world(run)
async def test_a_partition_may_join_a_session(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    session = await opened(cluster, part(0, 20))
    cluster.send(fetch((1, 4), session=(session, 1)))
    request = cluster.even.take(FETCH)
    assert offsets(request) == {1: 4}
    request.reply([part(1)])
    assert set(by_partition(cluster.answer())) == {1}


@in_world(run)
async def test_wrong_ids_and_epochs_of_sessions(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    session = await opened(cluster, part(0, 20))
    cluster.send(fetch(session=(session + 1, 1)))
    assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cluster.send(fetch(session=(session, 2)))
    assert cluster.answer().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    cluster.send(fetch(session=(session, 1)), 12)
    assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@in_world(run)
async def test_a_session_ends_when_the_client_says_so(world: World, *, tmp_path: Path) -> None:
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


@in_world(run, max_incremental_fetch_session_cache_slots="1")
async def test_a_session_ends_when_its_client_begins_another_one(
    world: World, *, tmp_path: Path
) -> None:
    """Its slot is free at once: clients begin anew after every error of a session."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    session = await opened(cluster, part(0, 20))
    cluster.send(fetch((0, 9), session=(session, 0)))
    assert cluster.even.take(FETCH_END).header[1] is True
    cluster.even.take(FETCH).reply([part(0)])
    assert cluster.answer().session_id not in (0, session)
    assert len(world.gateway.fetch_sessions) == 1
    cluster.send(fetch(session=(session, 1)))
    assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@in_world(run, max_incremental_fetch_session_cache_slots="1")
async def test_a_newcomer_is_served_without_a_session_while_all_slots_are_in_use(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    first = await opened(cluster, part(0, 20))
    cluster.send(fetch((0, 9), (1, 9), session=(0, 0)))
    cluster.even.take(FETCH).reply([part(0, 20), part(1)])
    newcomer = cluster.answer()
    assert (newcomer.error_code, newcomer.session_id) == (0, 0)
    assert records(newcomer) == {0: CONTENT[10:30]}
    assert len(world.gateway.fetch_sessions) == 1
    cluster.send(fetch((0, 9), session=(first, 1), max_wait_ms=0))
    cluster.even.take(FETCH).reply([])
    assert cluster.answer().error_code == 0


@in_world(run, max_incremental_fetch_session_cache_slots="1")
async def test_a_session_that_nobody_used_for_two_minutes_makes_room(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    first = await opened(cluster, part(0, 20))
    await world.runtime.advance(120_001)
    second = await opened(cluster, part(0, 20))
    assert cluster.even.take(FETCH_END).header[1] is True
    cluster.send(fetch(session=(first, 1)))
    assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cluster.send(fetch((0, 9), session=(second, 1), max_wait_ms=0))
    cluster.even.take(FETCH).reply([])
    assert cluster.answer().error_code == 0


@in_world(run, max_incremental_fetch_session_cache_slots="7", gateway_actors="2")
async def test_the_gateways_of_a_broker_share_the_slots(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    for _ in range(5):
        cluster.send(fetch((0, 9), session=(0, 0)))
        cluster.even.take(FETCH).reply([part(0, 20)])
        cluster.answer()
    assert len(world.gateway.fetch_sessions) == 3


def test_a_name_that_no_topic_can_have_is_kept_in_no_session() -> None:
    """Apart from that unknown names cost what partitions do; this one could have 32 KiB."""

    def named(length: int, session: tuple[int, int]) -> FetchRequest:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        return FetchRequest(
            max_wait_ms=0,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic="n" * length, partitions=[asked])],
        )

    async def scenario(world: World) -> None:
        client = world.client()
        sessions = world.gateway.fetch_sessions
        assert (await client.ask(named(250, (0, 0)), 12)).session_id == 0
        kept = (await client.ask(named(249, (0, 0)), 12)).session_id
        assert kept
        assert len(sessions) == 1
        answer = await client.ask(named(250, (kept, 1)), 12)
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert 250 in [len(one.topic) for one in answer.responses]
        assert len(sessions) == 0

    run(scenario)


@in_world(run)
async def test_a_session_without_partitions_ends(world: World, *, tmp_path: Path) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    session = await opened(cluster, part(0, 20))
    cluster.send(fetch(session=(session, 1), forgotten=(0,)))
    answer = cluster.answer()
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    assert cluster.even.take(FETCH_END).header[1] is True
    cluster.send(fetch((0, 9), session=(session, 2)))
    assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@in_world(run)
async def test_a_replica_process_with_nothing_left_of_a_session_forgets_it(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    session = await opened(cluster, part(0, 20), part(1))
    cluster.send(fetch(session=(session, 1), forgotten=(1,)))
    assert cluster.odd.take(FETCH_END).header[1] is True
    cluster.even.take(FETCH).reply([part(0, 20)])
    assert records(cluster.answer()) == {0: CONTENT[10:30]}


@in_world(run)
async def test_a_request_with_the_wrong_kind_of_names_leaves_the_epoch_as_it_is(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    session = await opened(cluster, part(0, 20))
    cluster.send(fetch(session=(session, 1)), 12)
    assert cluster.answer().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    cluster.send(fetch((0, 9), session=(session, 1), max_wait_ms=0))
    cluster.even.take(FETCH).reply([part(0, 20)])
    assert cluster.answer().error_code == 0


@in_world(run, max_incremental_fetch_session_cache_slots="0")
async def test_without_room_for_sessions_every_fetch_is_full(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.send(fetch((0, 9), session=(0, 0)))
    cluster.even.take(FETCH).reply([part(0, 20)])
    assert cluster.answer().session_id == 0


@in_world(run)
async def test_a_partition_in_error_is_tried_again_with_every_fetch(
    world: World, *, tmp_path: Path
) -> None:
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


@in_world(run)
async def test_an_error_that_comes_too_late_is_not_lost(world: World, *, tmp_path: Path) -> None:
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


@in_world(run)
async def test_a_lost_replica_of_a_session_is_followed_by_its_successor(
    world: World, *, tmp_path: Path
) -> None:
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


@in_world(run)
async def test_a_session_by_names_follows_a_topic_that_is_created_later(
    world: World, *, tmp_path: Path
) -> None:
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


@in_world(run)
async def test_a_session_by_names_follows_a_topic_that_is_created_anew(
    world: World, *, tmp_path: Path
) -> None:
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


@in_world(run)
async def test_nothing_stays_of_partitions_that_come_and_go(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    cluster.even.answering = lambda request: [part(0)] if request.kind == FETCH else None
    session = await opened(cluster, part(0), version=12)
    for epoch in range(1, 40):
        asked = fetch(
            (0, 0), topic=f"u{epoch}", session=(session, epoch), max_wait_ms=0, forgotten=(0,)
        )
        asked.forgotten_topics_data[0].topic = f"u{epoch - 1}"
        cluster.send(asked, 12)
        cluster.answer()
    kept = world.gateway.fetch_sessions.resume(session, 40, by_names=True)
    sizes = {len(kept.interests), len(kept.names), len(kept.sent_offsets)}
    assert sizes == {2}


@in_world(run)
async def test_a_partition_that_is_served_elsewhere_by_now_is_left_where_it_was(
    world: World, *, tmp_path: Path
) -> None:
    """Else the process before would go on telling of it, with what it may not know any more."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    session = await opened(cluster, part(0, 20), part(1))
    other = await world.route("other", (T, 1))
    cluster.send(fetch((1, 4), session=(session, 1), max_wait_ms=0))
    before, now = cluster.even.take(FETCH), other.take(FETCH)
    assert before.header.forgotten == [(T, 1)]
    assert offsets(now) == {1: 4}
    before.reply([part(0, end=20)])
    now.reply([part(1, end=4)])
    assert set(by_partition(cluster.answer())) == {0, 1}


@in_world(run)
async def test_an_answer_that_comes_too_late_leaves_the_session_as_it_is(
    world: World, *, tmp_path: Path
) -> None:
    """Its records are told again: the replica need not be told of the partition."""

    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    session = await opened(cluster, part(0, 20), part(1))
    cluster.send(fetch(session=(session, 1)))
    cluster.even.take(FETCH).reply([])
    cluster.odd.take(FETCH).reply([])
    late = cluster.odd.take(FETCH)
    cluster.even.take(FETCH).reply([part(0, 20)])
    assert records(cluster.answer()) == {0: CONTENT[10:30]}
    late.reply([part(1, 20)])
    cluster.send(fetch(session=(session, 2)))
    again = cluster.odd.take(FETCH)
    assert (again.header.changes, again.header.forgotten) == ([], [])
    again.reply([part(1, 30)])
    cluster.even.take(FETCH).reply([])
    assert records(cluster.answer()) == {1: CONTENT[10:40]}


@in_world(run)
async def test_a_replica_that_is_lost_after_the_answer_is_told_all_anew(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2, replicas=2)
    session = await opened(cluster, part(0, 20), part(1))
    cluster.send(fetch(session=(session, 1)))
    cluster.even.take(FETCH).reply([])
    cluster.odd.take(FETCH).reply([])
    cluster.even.take(FETCH).reply([part(0, 20)])
    assert set(by_partition(cluster.answer())) == {0}
    cluster.odd.lose()
    other = await cluster.route("other", 1)
    cluster.send(fetch(session=(session, 2)))
    assert offsets(other.take(FETCH)) == {1: 9}


@in_world(run)
async def test_a_later_request_of_the_session_may_forget_what_an_earlier_one_waits_for(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    session = await opened(cluster, part(0), part(1))
    cluster.send(fetch(session=(session, 1)))
    cluster.send(fetch(session=(session, 2), forgotten=(1,), max_wait_ms=0))
    first, second = (one for one in cluster.even.requests if one.kind == FETCH and one.open)
    assert second.header.forgotten == [(T, 1)]
    first.reply([part(0, 20), part(1, 20)])
    second.reply([])
    answers = cluster.client.received()
    assert [records(one) for one in answers] == [{0: CONTENT[10:30]}, {}]


@in_world(run)
async def test_recreated_topic_replaces_the_old_one_in_a_session(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    session = await opened(cluster, part(0), version=12)
    await world.apply(TopicDeleted(T))
    anew = await world.topic("t", id_of="anew")
    await cluster.route("odd", 0, anew)
    cluster.send(fetch((0, 3), session=(session, 1), max_wait_ms=0), 12)
    cluster.even.take(FETCH).reply([part(0, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    cluster.odd.take(FETCH).reply([part(0, key=anew)])
    cluster.answer()
    cluster.send(fetch(session=(session, 2), max_wait_ms=0), 12)
    assert cluster.odd.take(FETCH).header.changes == []
    kept = world.gateway.fetch_sessions.resume(session, 3, by_names=True)
    assert [(one.topic_id, one.offset) for one in kept.interests.values()] == [(anew, 3)]


@in_world(run)
async def test_a_session_is_told_again_what_it_was_told_of_a_partition_before_it_forgot_it(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve(2)
    session = await opened(cluster, part(0), part(1))
    for epoch, asked, answered in (
        (1, fetch(forgotten=(1,)), {0: 12}),
        (2, fetch((1, 9)), {1: 9}),
        (3, fetch(), {}),
    ):
        asked.session_id, asked.session_epoch, asked.max_wait_ms = session, epoch, 0
        cluster.send(asked)
        cluster.even.take(FETCH).reply([part(0, end=12), *([part(1)] * (epoch > 1))])
        found = by_partition(cluster.answer())
        assert {at: one.high_watermark for at, one in found.items()} == answered


@in_world(run)
async def test_replicas_tell_sessions_apart_and_know_one_again(
    world: World, *, tmp_path: Path
) -> None:
    cluster = Cluster(world, tmp_path)
    await cluster.serve()
    sessions = [await opened(cluster, part(0, 20)) for _ in range(2)]
    cluster.send(fetch((0, 9)))
    cluster.even.take(FETCH).reply([part(0, 20)])
    cluster.answer()
    ids = [one.header.session_id for one in cluster.even.requests]
    assert len(set(ids)) == 3
    for session, known in zip(sessions, ids, strict=False):
        cluster.send(fetch(session=(session, 1)))
        assert cluster.even.take(FETCH).header.session_id == known
        cluster.even.take(FETCH).reply([part(0, 20)])
