"""Recreated topics: offsets of the old topic are never those of the new one."""

from __future__ import annotations

from random import Random

import pytest

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.rules.pending import StoredOffset
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.shard import Shard
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import TopicDeleted
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.replica import messages as api
from raylog.wire.errors import NotEnoughReplicas, NotLeaderOrFollower
from raylog.wire.internal.offsets import OffsetCommitKey
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.cpu_time import cpu_s
from tests.unit.actors.group.test_actor import code, offsets
from tests.unit.actors.group.test_offsets import BY_ID, BY_NAME, committing
from tests.unit.actors.group.test_shard import heartbeat
from tests.unit.actors.group.test_transactional_appends import unstable
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.group.pending_offsets import committing_in, marker
from tests.worlds.group.shard import forget
from tests.worlds.metadata import id_of, topic_records
from tests.worlds.runtime import settle

TOO_FEW = NotEnoughReplicas("1 in sync of 2")
WITH_RETENTION = 4
"""A version whose commits may have a retention time of their own; they lack the topic's id."""
AGAIN = [TopicDeleted(id_of("t")), *topic_records("t", 3, number=2)]
"""Topic t is deleted and made again."""
HOUR_MS = 3_600_000


async def begin_again(world: CoordinatorWorld) -> None:
    """A process that knows the second topic only."""
    world.restart()
    records = [*topic_records(OFFSETS_TOPIC), *topic_records("t", 3, number=2)]
    await world.actor.apply_metadata(-1, len(records), records)
    await world.route()


async def fetched(world: CoordinatorWorld, version: int) -> list[int]:
    """The offsets of the topic that is there now, when it is asked for."""
    topics = [
        OffsetFetchRequestTopics(name="t", topic_id=id_of("t", 2), partition_indexes=[0, 1, 2])
    ]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    (topic,) = (await world.ask(OffsetFetchRequest(groups=groups), version)).groups[0].topics
    assert not any(one.error_code for one in topic.partitions)
    return [one.committed_offset for one in topic.partitions]


async def commit(world: CoordinatorWorld, index: int, offset: int, *, number: int = 2) -> str:
    """A commit by the topic's id."""
    request = committing({index: offset})
    request.topics[0].topic_id = id_of("t", number)
    return code(await world.ask(request, BY_ID))


@pytest.mark.parametrize("version", [8, BY_NAME, BY_ID])
@in_world(run, TMP_PATH)
async def test_while_nobody_coordinates(world: CoordinatorWorld, *, version: int) -> None:
    await world.begin()
    await world.ask(committing({0: 5, 1: 6}), BY_NAME)
    await begin_again(world)
    assert await fetched(world, version) == [-1, -1, -1]
    assert await offsets(world) == {}
    assert await commit(world, 1, 7) == "NONE"
    assert await fetched(world, version) == [-1, 7, -1]


@in_world(run, TMP_PATH)
async def test_offsets_of_the_old_topic_are_cleared_after_a_load(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 5, 1: 6}), BY_NAME)
    await begin_again(world)
    await world.runtime.advance(1)
    assert world.log.batches == [2, 2], "two tombstones"
    await world.runtime.advance(60_000)
    assert world.log.batches == [2, 2]


@in_world(
    run,
    TMP_PATH,
    group_consumer_session_timeout_ms="1000000",
    group_consumer_max_session_timeout_ms="1000000",
)
async def test_offsets_of_the_old_topic_are_cleared_after_a_refused_append(
    world: CoordinatorWorld,
) -> None:
    """The log refuses it at first; a member's subscription does not keep it."""

    await world.begin()
    await world.ask(committing({0: 5}, group="consumer"), BY_NAME)
    world.log.failure = TOO_FEW
    await begin_again(world)
    await world.runtime.advance(1)
    world.log.failure = None
    assert code(await world.ask(heartbeat(), 1)) == "NONE"
    before = len(world.log.batches)
    await world.runtime.advance(600_000 - 1)
    assert await offsets(world, "consumer") == {}
    host = world.actor._shards.get(0)
    assert host is not None
    assert host.shard.offsets.of("consumer") == {}
    assert len(world.log.batches) > before


@pytest.mark.parametrize("version", [WITH_RETENTION, BY_NAME])
@in_world(run, TMP_PATH)
async def test_while_the_shard_is_loaded(world: CoordinatorWorld, *, version: int) -> None:
    await world.begin()
    await world.ask(committing({0: 5}, retention_ms=HOUR_MS), version)
    world.restart()
    answering, world.link.answering = world.link.answering, None
    await world.begin()
    await world.apply(*AGAIN)
    world.link.answering = answering
    world.link.take(api.CLAIM).reply(world.log.end)
    await settle()
    assert await fetched(world, BY_ID) == [-1, -1, -1]
    await world.runtime.advance(10_000)
    assert world.log.batches == [1, 1]


@pytest.mark.parametrize("version", [WITH_RETENTION, BY_NAME])
@in_world(run, TMP_PATH)
async def test_while_the_log_refuses_it(world: CoordinatorWorld, *, version: int) -> None:
    """What is committed for the second topic meanwhile is not taken along."""

    await world.begin()
    await world.ask(committing({0: 5, 1: 6}, retention_ms=HOUR_MS), version)
    world.log.refusals += [TOO_FEW] * 3
    await world.apply(*AGAIN)
    await world.runtime.advance(1)
    world.log.refusals.clear()
    assert await commit(world, 1, 7) == "NONE"
    assert await commit(world, 2, 8) == "NONE"
    await world.runtime.advance(10_000)
    assert await fetched(world, BY_ID) == [-1, 7, 8]
    await begin_again(world)
    assert await fetched(world, BY_ID) == [-1, 7, 8]


@in_world(run, TMP_PATH)
async def test_while_it_is_not_known_whether_the_log_has_it(world: CoordinatorWorld) -> None:
    """The shard is loaded again: what it was to forget is not forgotten."""

    await world.begin()
    await world.ask(committing({0: 5}, retention_ms=HOUR_MS), WITH_RETENTION)
    world.log.failure = NotLeaderOrFollower("closed")
    await world.apply(*AGAIN)
    await world.runtime.advance(1)
    world.log.failure = None
    await world.runtime.advance(10_000)
    assert await fetched(world, BY_ID) == [-1, -1, -1]


@pytest.mark.parametrize("is_loaded", [False, True])
@in_world(run, TMP_PATH)
async def test_offsets_of_an_open_transaction_go_too(
    world: CoordinatorWorld, *, is_loaded: bool
) -> None:
    await world.begin()
    assert code(await world.ask(committing_in({0: 5}), 5)) == "NONE"
    if is_loaded:
        await begin_again(world)
    else:
        await world.apply(*AGAIN)
    await world.runtime.advance(1)
    assert await unstable(world) == set()
    assert await world.end(marker()) == [["NONE"]]
    assert await fetched(world, BY_ID) == [-1, -1, -1]


@in_world(run, TMP_PATH)
async def test_a_transaction_that_ends_at_once_brings_nothing_back(world: CoordinatorWorld) -> None:
    """Its marker is in the log before what takes its offsets away."""

    await world.begin()
    assert code(await world.ask(committing_in({0: 5, 1: 6}), 5)) == "NONE"
    world.log.failure = TOO_FEW
    await world.apply(*AGAIN)
    await world.runtime.advance(1)
    world.log.failure = None
    assert await commit(world, 1, 7) == "NONE"
    assert await world.end(marker()) == [["NONE"]]
    assert await fetched(world, BY_ID) == [-1, 7, -1]
    await world.runtime.advance(10_000)
    assert await fetched(world, BY_ID) == [-1, 7, -1]
    await begin_again(world)
    assert await fetched(world, BY_ID) == [-1, 7, -1]


@in_world(run, TMP_PATH)
async def test_an_open_transaction_of_the_second_topic_is_not_taken_along(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await world.ask(committing({0: 5}), BY_NAME)
    world.log.failure = TOO_FEW
    await begin_again(world)
    await world.runtime.advance(1)
    world.log.failure = None
    assert code(await world.ask(committing_in({0: 9}), 5)) == "NONE"
    await world.runtime.advance(600_000)
    assert await fetched(world, BY_NAME) == [-1, -1, -1]
    assert await world.end(marker()) == [["NONE"]]
    assert await fetched(world, BY_ID) == [9, -1, -1]


@in_world(run, TMP_PATH)
async def test_deletions_are_kept_in_mind_no_longer_than_needed(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 5}), BY_NAME)
    host = world.actor._shards.get(0)
    assert host is not None
    world.log.failure = TOO_FEW
    await world.apply(*AGAIN)
    await world.runtime.advance(1)
    assert host._deleted.keys() == {"t"}
    world.log.failure = None
    await world.runtime.advance(10_000)
    assert not host._deleted
    await world.apply(TopicDeleted(id_of("t", 2)))
    assert not host._deleted, "there was nothing to be forgotten"


def test_many_deleted_topics_are_looked_for_in_what_groups_have() -> None:
    shard = Shard(GroupSettings(), Assigning())
    image = MetadataImage()
    stored = StoredOffset(1, -1, "", 0, -1, id_of("t"))
    for number in range(5_000):
        shard.offsets.put(f"g{number}", "t", 0, stored)
    shard.offsets.put("g", "u7", 0, stored)
    gone = {f"u{number}" for number in range(2_000)}
    assert cpu_s(lambda: list(shard.walk(gone)), 0.1) < 0.1
    step = Step(0, 0.0, image, Random(1), shard.replay)
    forget(shard, step, gone)
    assert [record.key for record in step.records] == [
        OffsetCommitKey(group="g", topic="u7", partition=0)
    ]
