"""One large group is described or deleted in turns, with other requests in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.actors.coordination import hosting
from raylog.actors.group import actor
from raylog.actors.group.rules import all_offsets
from raylog.actors.group.rules.classic.members import Member, Roster
from raylog.actors.group.rules.gradual import GradualResponse
from raylog.actors.metadata.records import PartitionCreated, TopicCreated, TopicDeleted
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_shard import joining
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, host_of, run
from tests.worlds.metadata import id_of

ITEMS_A_TURN = 50
MANY = 2 * ITEMS_A_TURN + 10


@pytest.fixture(autouse=True)
def _small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "ITEMS_A_TURN", ITEMS_A_TURN)


async def large(world: CoordinatorWorld, partitions: int = MANY, group: str = "g") -> None:
    """A group with an offset of each partition of a topic."""
    await world.apply(
        TopicCreated(id_of("large"), "large"),
        *(PartitionCreated(id_of("large"), at, (1,), (1,), 1) for at in range(partitions)),
    )
    await world.ask(committing({0: 5}, "large", group=group), 9)
    offsets = host_of(world).shard.offsets
    stored = offsets.groups[group]["large"]
    stored.update(dict.fromkeys(range(partitions), stored[0]))


def fetching(version: int, *groups: str) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=groups[0], topics=None)
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    )


def offsets_in(answer: Any, version: int) -> list[tuple[bytes | str, int, int]]:
    topics = answer.topics if version < 8 else answer.groups[0].topics
    return [
        (topic.topic_id if version >= 10 else topic.name, one.partition_index, one.committed_offset)
        for topic in topics
        for one in topic.partitions
    ]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items each turn was about."""
    seen: list[int] = []
    take_turn = GradualResponse.take_turn

    def taking(gradual: GradualResponse[Any], most: int) -> bool:
        items = 0

        def counted(rest: Iterator[int]) -> Iterator[int]:
            nonlocal items
            for one in rest:
                items += one
                yield one

        rest = gradual.rest
        gradual.rest = counted(rest)
        try:
            return take_turn(gradual, most)
        finally:
            gradual.rest = rest
            seen.append(items)

    monkeypatch.setattr(GradualResponse, "take_turn", taking)
    return seen


async def first(turns: list[int], count: int = 1) -> None:
    """Wait until so many turns were taken."""
    for _ in range(1_000):
        if len(turns) >= count:
            return
        await asyncio.sleep(0)
    pytest.fail("nothing is handled in turns")


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
@in_world(run, TMP_PATH)
async def test_all_offsets_of_a_group_are_reported_in_turns(
    world: CoordinatorWorld, *, version: int, turns: list[int]
) -> None:
    await world.begin()
    await large(world)
    asked = world.send(fetching(version, "g"), version)
    other = world.send(committing({0: 1}, group="other"), 9)
    await first(turns)
    assert not asked.is_answered
    await world.runtime.advance(1)
    assert other.is_answered
    name: Any = id_of("large") if version >= 10 else "large"
    assert offsets_in(asked.answer, version) == [(name, at, 5) for at in range(MANY)]
    assert max(turns) == ITEMS_A_TURN
    if version == 2:
        assert sum(turns) == 2 * MANY, "made, and put into the older form"


@in_world(run, TMP_PATH)
async def test_all_offsets_of_several_groups(world: CoordinatorWorld, *, turns: list[int]) -> None:
    """A large one among them is told in turns of its own, and each in its place."""

    await world.begin()
    await large(world)
    for group in ("a", "z"):
        await world.ask(committing({0: 1}, group=group), 9)
    answer = await world.ask(fetching(9, "a", "g", "none", "z"), 9)
    assert [one.group_id for one in answer.groups] == ["a", "g", "none", "z"]
    assert [sum(len(topic.partitions) for topic in one.topics) for one in answer.groups] == [
        1,
        MANY,
        0,
        1,
    ]
    assert len(turns) > 2


@in_world(run, TMP_PATH)
async def test_large_offset_fetch_is_a_consistent_snapshot(
    world: CoordinatorWorld, *, turns: list[int]
) -> None:
    """But for topics that are deleted meanwhile, which have no offsets any more."""

    await world.begin()
    await large(world)
    before, after = world.send(fetching(8, "g"), 8), world.send(fetching(8, "g"), 8)
    await first(turns, 2)
    world.send(committing(dict.fromkeys(range(MANY), 9), "large"), 9)
    await world.runtime.advance(1)
    assert {offset for _, _, offset in offsets_in(before.answer, 8)} == {5}
    assert after.is_answered
    gone = world.send(fetching(8, "g"), 8)
    turns.clear()
    await first(turns)
    await world.apply(TopicDeleted(id_of("large")))
    await world.runtime.advance(1)
    assert 0 < len(offsets_in(gone.answer, 8)) < MANY


@in_world(run, TMP_PATH)
async def test_a_shard_that_is_left_meanwhile(world: CoordinatorWorld, *, turns: list[int]) -> None:
    await world.begin()
    await large(world)
    host_of(world).close("the leader is another")
    answer = await world.ask(fetching(8, "g"), 8)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", [5, 9])
@in_world(run, TMP_PATH)
async def test_an_answer_has_so_much_metadata(
    world: CoordinatorWorld, *, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 KiB for each partition it would have gigabytes."""

    await world.begin()
    await large(world)
    stored = host_of(world).shard.offsets.groups["g"]["large"]
    stored.update(dict.fromkeys(stored, stored[0]._replace(metadata="m" * 10)))
    monkeypatch.setattr(all_offsets, "METADATA_MAX", 10 * MANY)
    assert len(offsets_in(await world.ask(fetching(version, "g"), version), version)) == MANY
    monkeypatch.setattr(all_offsets, "METADATA_MAX", 10 * MANY - 1)
    answer = await world.ask(fetching(version, "g"), version)
    code = answer.error_code if version < 8 else answer.groups[0].error_code
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert offsets_in(answer, version) == []


@in_world(run, TMP_PATH)
async def test_a_partition_that_is_named_often_does_not_multiply_its_metadata(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    await large(world, 2)
    stored = host_of(world).shard.offsets.groups["g"]["large"]
    stored[0] = stored[0]._replace(metadata="m" * 4_096)
    monkeypatch.setattr(all_offsets, "METADATA_MAX", 100 * 4_096)
    for often, code in ((100, ErrorCode.NONE), (101, ErrorCode.MESSAGE_TOO_LARGE)):
        named = OffsetFetchRequestTopics(name="large", partition_indexes=[0] * often)
        more = OffsetFetchRequestTopics(name="t", partition_indexes=[0] * 2_000)
        group = OffsetFetchRequestGroup(group_id="g", topics=[named, more])
        answer = await world.ask(OffsetFetchRequest(groups=[group]), 8)
        assert answer.groups[0].error_code == code
        assert bool(answer.groups[0].topics) == (code is ErrorCode.NONE)
        topics = [
            OffsetFetchRequestTopic(name=one.name, partition_indexes=one.partition_indexes)
            for one in (named, more)
        ]
        older = OffsetFetchRequest(group_id="g", topics=topics)
        assert (await world.ask(older, 7)).error_code == code


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@in_world(run, TMP_PATH, group_consumer_max_size=str(MANY))
async def test_the_members_of_one_group_are_reported_in_turns(
    world: CoordinatorWorld, *, kind: str, turns: list[int]
) -> None:
    await world.begin()
    if kind == "classic":
        for _ in range(MANY):
            world.send(joining("g"), 3)
        await world.runtime.advance(1)
        asked = world.send(DescribeGroupsRequest(groups=["g"]), 6)
    else:
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["none"],
            topic_partitions=[],
        )
        for number in range(MANY):
            beat.member_id = f"m{number}"
            world.send(beat, 1)
            if number % 500 == 0:
                await world.runtime.advance(1)
        await world.runtime.advance(1)
        asked = world.send(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    await first(turns)
    assert not asked.is_answered
    other = world.send(committing({0: 1}, group="other"), 9)
    await world.runtime.advance(1)
    assert other.is_answered
    (group,) = asked.answer.groups
    assert len({one.member_id for one in group.members}) == MANY
    assert max(turns) == ITEMS_A_TURN


@in_world(run, TMP_PATH)
async def test_a_group_with_many_offsets_is_deleted_in_turns(world: CoordinatorWorld) -> None:
    await world.begin()
    await large(world)
    world.log.batches.clear()
    answer = await world.ask(DeleteGroupsRequest(groups_names=["none", "g"]), 2)
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("g", 0),
    ]
    assert "g" not in host_of(world).shard.offsets.groups
    assert sum(world.log.batches) == MANY + 1
    assert max(world.log.batches) <= ITEMS_A_TURN


@in_world(run, TMP_PATH)
async def test_a_member_that_joins_while_its_group_is_deleted_ends_that(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await large(world)
    world.link.holding = True
    asked = world.send(DeleteGroupsRequest(groups_names=["g"]), 2)
    await world.runtime.advance(1)
    world.send(joining("g"), 3)
    world.link.release()
    await world.runtime.advance(1)
    assert asked.answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    left = host_of(world).shard.offsets.groups["g"]["large"]
    assert len(left) == MANY - ITEMS_A_TURN


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests were answered together, where they were several."""
    monkeypatch.setattr(hosting, "ANSWERED_AT_ONCE", ITEMS_A_TURN)
    seen: list[int] = []
    answer = hosting.Host.answer

    def answering(host: Any, answers: Any) -> None:
        if 1 < len(answers) <= ITEMS_A_TURN:
            seen.append(len(answers))
        answer(host, answers)

    monkeypatch.setattr(hosting.Host, "answer", answering)
    return seen


async def all_joined(world: CoordinatorWorld) -> list[Any]:
    joins = [world.send(joining("g"), 3) for _ in range(MANY)]
    await world.runtime.advance(4_000)
    return joins


@in_world(run, TMP_PATH, group_initial_rebalance_delay_ms="2000")
async def test_the_members_of_a_generation_are_answered_in_turns(
    world: CoordinatorWorld, *, batches: list[int]
) -> None:
    await world.begin()
    joins = await all_joined(world)
    answers = [one.answer for one in joins]
    assert batches == [50, 50, 10]
    assert [len(one.members) for one in answers if one.members] == [MANY]
    batches.clear()
    leader = next(one for one in answers if one.members)
    assigned = [
        SyncGroupRequestAssignment(member_id=one.member_id, assignment=one.member_id.encode())
        for one in answers
    ]
    syncs = {
        one.member_id: world.send(
            SyncGroupRequest(
                group_id="g",
                generation_id=one.generation_id,
                member_id=one.member_id,
                assignments=assigned if one is leader else [],
            ),
            3,
        )
        for one in answers
    }
    await world.runtime.advance(1)
    assert batches[:3] == [50, 50, 10]
    assert all(one.answer.assignment == key.encode() for key, one in syncs.items())


@in_world(run, TMP_PATH, group_initial_rebalance_delay_ms="2000")
async def test_members_that_are_not_answered_when_the_shard_is_left(
    world: CoordinatorWorld, *, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    answer_some = hosting.Host._answer_some

    def leaving(host: Any, answers: Any) -> None:
        if batches:
            host.close("the leader is another")
        answer_some(host, answers)

    monkeypatch.setattr(hosting.Host, "_answer_some", leaving)
    joins = await all_joined(world)
    codes = [one.answer.error_code for one in joins]
    assert codes.count(0) == ITEMS_A_TURN
    assert codes.count(ErrorCode.NOT_COORDINATOR) == MANY - ITEMS_A_TURN


def test_names_of_protocols_are_forgotten_with_their_members() -> None:
    roster = Roster()
    for number in range(1_000):
        member = Member(f"m{number}", None, "c", "/h", 1, 1, {f"p{number}": b""})
        roster.add(member, "consumer")
        roster.change(member, {f"q{number}": b"", "same": b""}, 1, 1)
        roster.remove(member.member_id)
    assert not roster._supporters
