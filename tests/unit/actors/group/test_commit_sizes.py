"""How much a commit may write, and how much of a large one waits for the log at a time."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.group.actor import PARTS_ASKED_MAX
from raylog.actors.group.rules.offsets import COMMIT_BYTES_MAX
from raylog.wire.error_codes import ErrorCode
from tests.unit.actors.group.test_offsets import committing
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.group.pending_offsets import committing_in
from tests.worlds.runtime import settle

COMMITS: dict[str, tuple[Any, int]] = {
    "plain": (committing, 9),
    "in a transaction": (committing_in, 5),
}
LONG = "g" * 32_000
MANY = 12_000
"""Offsets of a request that is handled in parts."""


def _many(kind: str, count: int, group: str) -> tuple[Any, int]:
    """A commit of one partition, named again and again."""
    making, version = COMMITS[kind]
    request = making({0: 7}, group=group)
    (topic,) = request.topics
    topic.partitions = topic.partitions * count
    return request, version


async def _pass(world: CoordinatorWorld) -> None:
    """Let a large request be handled, as far as it goes."""
    for _ in range(100):
        await world.runtime.advance(1)
        await settle()


def _codes(answer: Any) -> set[str]:
    return {ErrorCode(one.error_code).name for topic in answer.topics for one in topic.partitions}


@pytest.mark.parametrize("kind", COMMITS)
@in_world(run, TMP_PATH)
async def test_a_commit_that_no_batch_would_hold_is_refused(
    world: CoordinatorWorld, *, kind: str
) -> None:
    """Each record has the group's id. Apache Kafka takes 31 such offsets, and refuses 40."""

    await world.begin()
    assert _codes(await world.ask(*_many(kind, 31, LONG))) == {"NONE"}
    written = len(world.log.bytes())
    assert _codes(await world.ask(*_many(kind, 40, LONG))) == {"INVALID_COMMIT_OFFSET_SIZE"}
    asked = world.send(*_many(kind, MANY, LONG))
    await _pass(world)
    assert _codes(asked.answer) == {"INVALID_COMMIT_OFFSET_SIZE"}
    assert len(world.log.bytes()) == written


@pytest.mark.parametrize("kind", COMMITS)
@in_world(run, TMP_PATH)
async def test_a_large_commit_does_not_queue_all_that_it_writes(
    world: CoordinatorWorld, *, kind: str
) -> None:
    await world.begin()
    world.link.holding = True
    asked = world.send(*_many(kind, MANY, "g" * 4_000))
    await _pass(world)
    host = world.actor._shards.get(0)
    assert host is not None
    size = sum(
        sum(len(key) for key, _ in one.blobs) + len(one.batch or b"")
        for one in host._appends._all()
    )
    assert 0 < size < 2 * PARTS_ASKED_MAX * COMMIT_BYTES_MAX
    assert not asked.is_answered
    world.link.release()
    await _pass(world)
    assert _codes(asked.answer) == {"NONE"}
    assert sum(world.log.batches) == MANY


@pytest.mark.parametrize("kind", COMMITS)
@in_world(run, TMP_PATH)
async def test_small_commits_that_write_much_are_told_to_come_again(
    world: CoordinatorWorld, *, kind: str
) -> None:
    """33 KB of a request become a MiB of records: hundreds of them may be on their way."""

    await world.begin()
    world.link.holding = True
    asked = [world.send(*_many(kind, 31, LONG)) for _ in range(100)]
    await world.runtime.advance(1)
    refused = [one for one in asked if one.is_answered]
    assert 60 < len(refused) < 75
    assert {code for one in refused for code in _codes(one.answer)} == {"COORDINATOR_NOT_AVAILABLE"}
    world.link.release()
    await _pass(world)
    taken = [one for one in asked if one not in refused]
    assert {code for one in taken for code in _codes(one.answer)} == {"NONE"}
    assert _codes(await world.ask(*_many(kind, 31, LONG))) == {"NONE"}
