"""Appends that the log refuses, or that take too long: who is told, and the groups' state.

For example with fewer replicas in sync than min.insync.replicas, or on a full disk.
"""

from __future__ import annotations

import pytest

from raylog.actors.coordination.hosting import REPEAT_MS
from raylog.actors.metadata.records import TopicDeleted
from raylog.actors.replica import messages as api
from raylog.wire.errors import (
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
)
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupResponse
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.actors.group.test_actor import code, fetching, offsets, offsets_in
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_shard import heartbeat, joining
from tests.unit.actors.group.test_transactional_appends import unstable
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.group.pending_offsets import committing_in, marker
from tests.worlds.group.shard import assignment_blob
from tests.worlds.metadata import id_of
from tests.worlds.runtime import settle

TOO_FEW = NotEnoughReplicas("1 in sync of 2")
LATEST = 9
SESSION_MS = REBALANCE_MS = 10_000
EFFORT_MAX = 60
"""Appends in two minutes of outage, with two members: waits between two double up to 5 s."""
ALL = assignment_blob({"t": [0, 1, 2]})


def loads(world: CoordinatorWorld) -> int:
    """How often the log was read."""
    return world.link.kinds().count(api.CLAIM)


def appends(world: CoordinatorWorld) -> int:
    """How often something was to be appended."""
    return world.link.kinds().count(api.PRODUCE)


def syncing(joined: JoinGroupResponse, group: str = "classic") -> SyncGroupRequest:
    """The leader's, who keeps everything."""
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=ALL)
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[mine],
    )


def beating(joined: JoinGroupResponse, group: str = "classic") -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
    )


async def stable(world: CoordinatorWorld, **fields: object) -> JoinGroupResponse:
    """A classic member that has its assignment."""
    joined: JoinGroupResponse = await world.ask(joining(**fields), 3)  # type: ignore[arg-type]
    assert (await world.ask(syncing(joined), 3)).assignment == ALL
    return joined


async def states(world: CoordinatorWorld) -> dict[str, str]:
    found = await world.ask(ListGroupsRequest(), 5)
    return {one.group_id: one.group_state for one in found.groups}


# ---- offsets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [(TOO_FEW, "COORDINATOR_NOT_AVAILABLE"), (KafkaStorageError("disk full"), "NOT_COORDINATOR")],
)
@in_world(run, TMP_PATH)
async def test_a_refused_commit_fails_and_nothing_else(
    world: CoordinatorWorld, *, refusal: KafkaError, expected: str
) -> None:
    await world.begin()
    assert code(await world.ask(committing({0: 1}), LATEST)) == "NONE"
    world.log.failure = refusal
    for offset in range(2, 12):
        assert code(await world.ask(committing({0: offset}), LATEST)) == expected
        assert await offsets(world) == {0: 1}
        assert await offsets(world, "other") == {}
    assert await states(world) == {"g": "Empty"}
    assert loads(world) == 1, "at the beginning"
    world.log.failure = None
    assert code(await world.ask(committing({1: 5}), LATEST)) == "NONE"
    assert await offsets(world) == {0: 1, 1: 5}


@in_world(run, TMP_PATH)
async def test_requests_queued_behind_a_refused_append_fail_too(world: CoordinatorWorld) -> None:
    """It was decided on a state that never came to be."""

    await world.begin()
    await world.ask(committing({0: 1}), LATEST)
    world.link.holding = True
    first = world.send(committing({0: 2}, group="new"), LATEST)
    await world.runtime.advance(0)
    behind = [
        world.send(committing({0: 3}), LATEST),
        world.send(committing_in({0: 4}), 5),
        world.send(ListGroupsRequest(), 5),
    ]
    await world.runtime.advance(0)
    reading = world.send(fetching(), 8)
    assert offsets_in(reading.answer) == {0: 1}
    world.log.refusals.append(TOO_FEW)
    world.link.release()
    for one in (first, *behind):
        assert code(one.answer) == "COORDINATOR_NOT_AVAILABLE"
    await world.runtime.advance(1)
    assert world.log.batches == [1], "nothing of it is tried"
    assert await states(world) == {"g": "Empty"}
    assert await offsets(world) == {0: 1}
    assert await unstable(world) == set()


@in_world(run, TMP_PATH, offsets_commit_timeout_ms="1000")
async def test_a_commit_that_takes_too_long_may_count_later(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), LATEST)
    world.link.holding = True
    slow = world.send(committing({0: 2}), LATEST)
    await world.runtime.advance(999)
    assert not slow.is_answered
    await world.runtime.advance(1)
    assert code(slow.answer) == "COORDINATOR_NOT_AVAILABLE"
    assert offsets_in(world.send(fetching(), 8).answer) == {0: 1}, "told at once, as in Kafka"
    for request, version, expected in (
        (committing({0: 3}), LATEST, "COORDINATOR_NOT_AVAILABLE"),
        (fetching(require_stable=True), 8, "NOT_COORDINATOR"),
        (joining(), 3, "COORDINATOR_NOT_AVAILABLE"),
        (heartbeat(), 1, "COORDINATOR_NOT_AVAILABLE"),
    ):
        asked = world.send(request, version)
        assert code(asked.answer) == expected, "it would wait behind the one that waits"
    await world.runtime.advance(60_000)
    world.link.release()
    await settle()
    assert await offsets(world) == {0: 2}
    assert code(await world.ask(committing({0: 4}), LATEST)) == "NONE"
    assert loads(world) == 1


@in_world(run, TMP_PATH, offsets_commit_timeout_ms="1000")
async def test_offsets_in_a_transaction_that_take_too_long_may_count_later(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    world.link.holding = True
    slow = world.send(committing_in({0: 2}), 5)
    await world.runtime.advance(1_000)
    assert code(slow.answer) == "COORDINATOR_NOT_AVAILABLE"
    marking = world.mark(marker())
    world.link.release()
    await world.runtime.advance(1)
    assert marking.codes == [[0]]
    assert await offsets(world) == {0: 2}


@in_world(run, TMP_PATH)
async def test_a_marker_in_front_of_a_refused_commit_counts(world: CoordinatorWorld) -> None:
    """The commit would have overtaken the transaction's offset."""

    await world.begin()
    await world.ask(committing({0: 1}), LATEST)
    assert code(await world.ask(committing_in({0: 5}), 5)) == "NONE"
    world.link.holding = True
    marking = world.mark(marker())
    await world.runtime.advance(0)
    behind = world.send(committing({0: 7}), LATEST)
    world.link.release_one()
    assert marking.codes == [[0]]
    assert offsets_in(world.send(fetching(), 8).answer) == {0: 5}
    await world.runtime.advance(0)
    world.log.refusals.append(TOO_FEW)
    world.link.release()
    assert code(behind.answer) == "COORDINATOR_NOT_AVAILABLE"
    assert await offsets(world) == {0: 5}


@in_world(run, TMP_PATH)
async def test_a_refused_marker_is_said_to_be_refused(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing_in({0: 5}), 5)
    world.log.failure = TOO_FEW
    assert await world.end(marker()) == [["NOT_ENOUGH_REPLICAS"]]
    world.log.failure = None
    assert await offsets(world) == {}
    assert await world.end(marker()) == [["NONE"]]
    assert await offsets(world) == {0: 5}


@in_world(run, TMP_PATH)
async def test_offsets_of_a_deleted_topic_go_as_soon_as_the_log_takes_it(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), LATEST)
    world.log.failure = TOO_FEW
    before = appends(world)
    await world.apply(TopicDeleted(id_of("t")))
    await world.runtime.advance(120_000)
    assert 5 < appends(world) - before < EFFORT_MAX
    world.log.failure = None
    await world.runtime.advance(5_000)
    assert world.log.batches == [1, 1]
    await world.runtime.advance(60_000)
    assert world.log.batches == [1, 1]


# ---- classic groups ----------------------------------------------------------------------


@in_world(run, TMP_PATH, group_initial_rebalance_delay_ms="100")
async def test_a_classic_group_that_is_refused_is_none(world: CoordinatorWorld) -> None:
    """Who has begun to wait in it is told."""

    await world.begin()
    world.log.failure = TOO_FEW
    waiting = world.send(joining(), 3)
    await world.runtime.advance(1)
    assert code(waiting.answer) == "COORDINATOR_NOT_AVAILABLE"
    assert await states(world) == {}
    world.log.failure = None
    await world.runtime.advance(60_000)
    waiting = world.send(joining(), 3)
    await world.runtime.advance(100)
    assert (code(waiting.answer), waiting.answer.generation_id) == ("NONE", 1)


@in_world(run, TMP_PATH)
async def test_members_whose_assignment_was_refused_join_again(world: CoordinatorWorld) -> None:
    await world.begin()
    joined = await world.ask(joining(), 3)
    world.log.failure = TOO_FEW
    refused = await world.ask(syncing(joined), 3)
    assert (code(refused), refused.assignment) == ("COORDINATOR_NOT_AVAILABLE", b"")
    assert await states(world) == {"classic": "PreparingRebalance"}
    assert code(await world.ask(beating(joined), 4)) == "REBALANCE_IN_PROGRESS"
    again = await world.ask(joining(member_id=joined.member_id), 3)
    assert again.generation_id == joined.generation_id + 1
    assert code(await world.ask(syncing(again), 3)) == "COORDINATOR_NOT_AVAILABLE"
    world.log.failure = None
    again = await world.ask(joining(member_id=joined.member_id), 3)
    assert (await world.ask(syncing(again), 3)).assignment == ALL
    assert code(await world.ask(beating(again), 4)) == "NONE"
    assert loads(world) == 1


@in_world(run, TMP_PATH)
async def test_a_static_member_whose_return_was_refused_has_its_place(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    fields = {"group_instance_id": "i"}
    joined = await world.ask(joining(**fields), 7)
    assert not (await world.ask(syncing(joined), 3)).error_code
    world.log.failure = TOO_FEW
    back = await world.ask(joining(**fields), 7)
    assert code(back) == "COORDINATOR_NOT_AVAILABLE"
    assert await states(world) == {"classic": "Stable"}
    world.log.failure = None
    assert code(await world.ask(beating(joined), 4)) == "NONE"
    back = await world.ask(joining(**fields), 7)
    assert (code(back), back.generation_id) == ("NONE", joined.generation_id)
    assert (await world.ask(syncing(back), 3)).assignment == ALL
    assert code(await world.ask(beating(joined), 4)) == "UNKNOWN_MEMBER_ID"
    await world.runtime.advance(SESSION_MS)
    assert await states(world) == {"classic": "Empty"}, "its session is counted"


@in_world(run, TMP_PATH)
async def test_a_classic_group_whose_end_is_refused_is_there(world: CoordinatorWorld) -> None:
    await world.begin()
    joined = await stable(world)
    identity = MemberIdentity(member_id=joined.member_id)
    await world.ask(LeaveGroupRequest(group_id="classic", members=[identity]), 4)
    await world.ask(committing({0: 1}, group="classic"), LATEST)
    world.log.failure = TOO_FEW
    deleted = await world.ask(DeleteGroupsRequest(groups_names=["classic"]), 2)
    assert code(deleted) == "COORDINATOR_NOT_AVAILABLE"
    assert await states(world) == {"classic": "Empty"}
    assert await offsets(world, "classic") == {0: 1}
    world.log.failure = None
    assert code(await world.ask(DeleteGroupsRequest(groups_names=["classic"]), 2)) == "NONE"
    assert await states(world) == {}


@in_world(run, TMP_PATH)
async def test_timer_of_a_deleted_group_does_not_fire_in_the_next_group_of_its_name(
    world: CoordinatorWorld,
) -> None:
    """A refused end of a rebalance is repeated after a delay."""
    await world.begin()
    asks = [world.send(joining(session_timeout_ms=60_000), 3) for _ in range(2)]
    await world.runtime.advance(1)
    first, second = (one.answer for one in asks)
    for one in (first, second):
        assert code(await world.ask(syncing(one), 3)) == "NONE"
    leaving = MemberIdentity(member_id=first.member_id)
    await world.ask(LeaveGroupRequest(group_id="classic", members=[leaving]), 4)
    world.log.refusals.append(TOO_FEW)
    await world.runtime.advance(REBALANCE_MS)  # the second does not join again
    assert await states(world) == {"classic": "Empty"}
    assert code(await world.ask(DeleteGroupsRequest(groups_names=["classic"]), 2)) == "NONE"
    assert code(await world.ask(heartbeat("classic"), 1)) == "NONE"
    await world.runtime.advance(REPEAT_MS[1])
    assert list(await states(world)) == ["classic"]
    assert loads(world) == 1, "at the beginning"


@in_world(run, TMP_PATH)
async def test_silent_members_are_noticed_once_while_nothing_can_be_written(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await stable(world)
    world.log.failure = TOO_FEW
    before = appends(world)
    await world.runtime.advance(120_000)
    assert appends(world) - before < EFFORT_MAX
    world.log.failure = None
    assert await states(world) == {"classic": "Empty"}
    await stable(world)


# ---- groups of KIP-848 -------------------------------------------------------------------


@in_world(run, TMP_PATH, group_consumer_assignment_interval_ms="0")
async def test_a_consumer_group_that_is_refused_is_none(world: CoordinatorWorld) -> None:
    await world.begin()
    world.log.failure = TOO_FEW
    for _ in range(3):
        assert code(await world.ask(heartbeat(), 1)) == "COORDINATOR_NOT_AVAILABLE"
        assert await states(world) == {}
    world.log.failure = None
    joined = await world.ask(heartbeat(), 1)
    assert (code(joined), joined.member_epoch) == ("NONE", 2)
    assert sum(len(one.partitions) for one in joined.assignment.topic_partitions) == 3
    assert loads(world) == 1


@in_world(run, TMP_PATH, group_consumer_assignment_interval_ms="0")
async def test_a_member_that_was_refused_leaves_the_others_as_they_were(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    first = await world.ask(heartbeat(), 1)
    described = ConsumerGroupDescribeRequest(group_ids=["consumer"])
    before = await world.ask(described, 1)
    world.log.failure = TOO_FEW
    assert code(await world.ask(heartbeat(member="n"), 1)) == "COORDINATOR_NOT_AVAILABLE"
    assert code(await world.ask(heartbeat(epoch=-1), 1)) == "COORDINATOR_NOT_AVAILABLE"
    assert await world.ask(described, 1) == before
    lives = await world.ask(heartbeat(epoch=first.member_epoch), 1)
    assert (code(lives), lives.member_epoch) == ("NONE", first.member_epoch)
    world.log.failure = None
    await world.runtime.advance(45_000)
    assert await states(world) == {"consumer": "Empty"}, "its session is counted all the same"


@in_world(run, TMP_PATH, group_consumer_assignment_interval_ms="0")
async def test_a_session_that_ends_while_nothing_can_be_written_ends_later(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await world.ask(heartbeat(), 1)
    alive = await world.ask(heartbeat(member="n"), 1)
    world.log.failure = TOO_FEW
    before = appends(world)
    await world.runtime.advance(45_000 + 120_000)
    assert 5 < appends(world) - before < EFFORT_MAX
    beat = heartbeat(epoch=alive.member_epoch, member="n")
    refused = await world.ask(beat, 1)
    assert code(refused) == "COORDINATOR_NOT_AVAILABLE", "it was heard all the same"
    world.log.failure = None
    await world.runtime.advance(6_000)
    (group,) = (await world.ask(ConsumerGroupDescribeRequest(group_ids=["consumer"]), 1)).groups
    assert [member.member_id for member in group.members] == ["n"], "who was heard of stays"


@in_world(run, TMP_PATH, group_consumer_assignment_interval_ms="0")
async def test_patterns_are_resolved_when_the_log_takes_it(world: CoordinatorWorld) -> None:
    await world.begin()
    joining_all = heartbeat()
    joining_all.subscribed_topic_names = []
    joining_all.subscribed_topic_regex = "t.*"
    world.link.holding = True
    joined = world.send(joining_all, 1)
    world.link.release()
    await world.runtime.advance(0)
    assert code(joined.answer) == "NONE"
    world.log.failure = TOO_FEW
    before = appends(world)
    await world.runtime.advance(30_000)
    assert appends(world) - before < EFFORT_MAX
    world.log.failure = None
    await world.runtime.advance(6_000)
    beat = await world.ask(heartbeat(epoch=joined.answer.member_epoch), 1)
    assert sum(len(one.partitions) for one in beat.assignment.topic_partitions) == 3


# ---- from one protocol to the other ------------------------------------------------------


@in_world(run, TMP_PATH)
async def test_a_refused_migration_leaves_the_classic_group(world: CoordinatorWorld) -> None:
    await world.begin()
    joined = await stable(world)
    world.log.failure = TOO_FEW
    upgrading = await world.ask(heartbeat("classic"), 1)
    assert code(upgrading) == "COORDINATOR_NOT_AVAILABLE"
    assert await states(world) == {"classic": "Stable"}
    assert code(await world.ask(beating(joined), 4)) == "NONE"
    world.log.failure = None
    await world.runtime.advance(SESSION_MS + 1)
    assert await states(world) == {"classic": "Empty"}, "its session is counted"
    assert code(await world.ask(heartbeat("classic"), 1)) == "NONE"


@in_world(run, TMP_PATH)
async def test_members_of_a_refused_migration_have_their_time_to_sync(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    slow = joining(session_timeout_ms=600_000, rebalance_timeout_ms=20_000)
    assert code(await world.ask(slow, 3)) == "NONE"
    world.log.failure = TOO_FEW
    upgrading = await world.ask(heartbeat("classic"), 1)
    assert code(upgrading) == "COORDINATOR_NOT_AVAILABLE"
    assert await states(world) == {"classic": "CompletingRebalance"}
    world.log.failure = None
    await world.runtime.advance(19_000)
    assert await states(world) == {"classic": "CompletingRebalance"}
    await world.runtime.advance(1_001)
    assert await states(world) == {"classic": "Empty"}


@in_world(run, TMP_PATH, group_consumer_assignment_interval_ms="0")
async def test_a_refused_return_leaves_the_consumer_group(world: CoordinatorWorld) -> None:
    """Its last member of KIP-848 wants to leave: only a classic one would stay."""

    await world.begin()
    await world.ask(heartbeat("classic"), 1)
    first = await world.ask(joining(member_id=""), 3)
    assert code(first) == "NONE"
    world.log.failure = TOO_FEW
    leaving = await world.ask(heartbeat("classic", epoch=-1), 1)
    assert code(leaving) == "COORDINATOR_NOT_AVAILABLE"
    described = await world.ask(DescribeGroupsRequest(groups=["classic"]), 5)
    assert described.groups[0].group_state == "Dead", "it is no classic group"
    world.log.failure = None
    await world.runtime.advance(120_000)
    assert await states(world) == {"classic": "Empty"}, "sessions of both are counted"


@in_world(run, TMP_PATH)
async def test_a_marker_that_comes_before_the_log_is_read_is_to_come_again(
    world: CoordinatorWorld,
) -> None:
    answering, world.link.answering = world.link.answering, None
    await world.begin()
    assert await world.end(marker()) == [["NOT_LEADER_OR_FOLLOWER"]]
    assert world.log.batches == []
    world.link.answering = answering
    world.restart()
    await world.begin()
    assert await world.end(marker()) == [["NONE"]]
