"""What a refused append does to the places of groups, and the limits of commits."""

from __future__ import annotations

import pytest

from raylog.actors.group.rules.offset_store import OffsetStore
from raylog.actors.group.rules.offsets import COMMIT_BYTES_MAX, too_many_bytes
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import OffsetCommitKey, OffsetCommitValue
from tests.unit.actors.group.test_offsets import codes, committing, deleting, fetched
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.group.shard import ShardWorld

KEY = OffsetCommitKey(group="g", topic="t", partition=0)
VALUE = OffsetCommitValue(offset=5, metadata="", commit_timestamp=0)


@pytest.fixture
def world() -> ShardWorld:
    made = ShardWorld()
    made.topics(t=3)
    return made


def test_a_group_that_a_refused_commit_would_have_made_never_was() -> None:
    store = OffsetStore()
    first = store.replay(KEY, VALUE)
    second = store.replay(KEY, None)
    second.revert()
    assert store.get("g", "t", 0) is not None
    first.revert()
    assert store.groups == {}


def test_a_group_keeps_its_place_where_a_later_commit_is_refused() -> None:
    store = OffsetStore()
    store.replay(KEY, VALUE).commit()
    store.replay(KEY, None).commit()
    store.replay(KEY, VALUE).revert()
    assert store.groups == {"g": {}}


def test_a_refused_tombstone_gives_a_group_the_place_that_it_had_and_no_other() -> None:
    store = OffsetStore()
    store.bury("never").revert()
    assert store.groups == {}
    store.replay(KEY, VALUE).commit()
    store.bury("g").revert()
    assert store.get("g", "t", 0) is not None
    store.replay(KEY, None).commit()
    burial = store.bury("g")
    assert store.groups == {}
    burial.revert()
    assert store.groups == {"g": {}}


@pytest.mark.parametrize(("extra", "is_refused"), [(-1, False), (0, False), (1, True)])
def test_all_names_and_metadata_of_a_commit_count(extra: int, *, is_refused: bool) -> None:
    metadata = "m" * (COMMIT_BYTES_MAX + extra - 2 * len("group") - len("t") - len("u"))
    refusal = too_many_bytes("group", [("t", None), ("u", metadata)])
    assert (refusal is not None) is is_refused


def test_a_topic_that_does_not_exist_is_answered_though_no_partition_is_named(
    world: ShardWorld,
) -> None:
    world.ask(committing({0: 1}), 9)
    answer = world.ask(deleting(topic="nothing"), 0)
    assert [(one.name, one.partitions) for one in answer.topics] == [("nothing", [])]
    assert world.ask(deleting(topic="t"), 0).topics == []


def test_a_commit_may_be_kept_for_no_time_at_all(world: ShardWorld) -> None:
    answer = world.ask(committing({0: 1}, retention_ms=0), 4)
    assert codes(answer) == [("t", 0, ErrorCode.NONE)]
    world.expire()
    assert fetched(world) == {}


@in_world(run, TMP_PATH)
async def test_all_is_closed_when_the_coordinator_stops(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    closed: list[str] = []
    monkeypatch.setattr(world.transactions, "close", lambda: closed.append("transactions"))
    monkeypatch.setattr(world.actor._processes, "close", lambda: closed.append("processes"))
    await world.actor.stop()
    assert sorted(closed) == ["processes", "transactions"]
    assert not world.link.is_open
