"""Small requests with large answers: repeated names are answered once, the rest in turns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.coordination import requests
from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.actor import ITEMS_A_TURN
from raylog.actors.group.hosting import SWEPT_AT_ONCE
from raylog.actors.group.rules import listing
from raylog.actors.group.rules.failures import ListGroupsPart
from raylog.actors.group.rules.gathering import KINDS
from raylog.actors.group.rules.offset_store import OffsetStore
from raylog.actors.group.rules.shard import Shard
from raylog.actors.metadata.records import PartitionCreated, TopicCreated, TopicDeleted
from raylog.wire.errors import NotEnoughReplicas
from raylog.wire.internal.offsets import OffsetCommitKey, OffsetCommitValue
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_shard import joining
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.metadata import id_of

OFTEN = 3_000
"""More than what is decoded on the event loop."""


def _all_offsets(*groups: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    )


ASKING: dict[str, tuple[Any, int]] = {
    "describe": (lambda *names: DescribeGroupsRequest(groups=list(names)), 6),
    "consumers": (lambda *names: ConsumerGroupDescribeRequest(group_ids=list(names)), 1),
    "offsets": (_all_offsets, 8),
}


@pytest.mark.parametrize("kind", ASKING)
def test_a_group_that_is_named_often_is_reported_once(tmp_path: Path, kind: str) -> None:
    """Where it is named a few times it is told as often, as in Kafka."""
    asking, version = ASKING[kind]

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        world.send(joining("g"), 3)
        await world.ask(committing({0: 1}, group="g", generation=-1), 9)
        once = await world.ask(asking("g", "u"), version)
        often = await world.ask(asking("g", *["u"] * OFTEN, *["g"] * OFTEN), version)
        assert often == once
        assert [one.group_id for one in once.groups] == ["g", "u"]
        twice = await world.ask(asking("g", "u", "g"), version)
        assert twice.groups == [*once.groups, once.groups[0]]

    run(scenario, tmp_path)


@in_world(run, TMP_PATH)
async def test_partitions_that_are_named_are_reported_as_often_as_they_are_named(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    answer = await world.ask(OffsetFetchRequest(groups=[group, group]), 8)
    assert [one.group_id for one in answer.groups] == ["g", "g"]


class Turns:
    """The shard's requests, and other clients' requests in between."""

    def __init__(self, world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world = world
        self._seen: list[int] = []
        handle = Shard.handle

        def handling(shard: Shard, step: Step, call: ClientCall[Any]) -> None:
            if type(call.request) in KINDS:
                self._seen.append(len(KINDS[type(call.request)].items(call.request)))
            handle(shard, step, call)

        monkeypatch.setattr(Shard, "handle", handling)

    async def ask(self, request: Any, version: int) -> tuple[Any, list[int]]:
        """The answer, and how many groups each part was about; others are served in between."""
        await self._world.runtime.advance(1)
        self._seen.clear()
        asked = self._world.send(request, version)
        parts = []
        for _ in range(500):
            assert len(self._seen) <= 1, "one part a turn"
            parts += self._seen
            self._seen.clear()
            await asyncio.sleep(0)
        await self._world.runtime.advance(1)
        return asked.answer, parts


@pytest.mark.parametrize("kind", ["describe", "delete"])
def test_groups_of_which_there_is_much_to_report_are_handled_in_turns(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, members = 30, ITEMS_A_TURN // 10

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        names = [f"g{n}" for n in range(groups)]
        for name in names:
            if kind == "describe":
                for _ in range(members):
                    world.send(joining(name), 3)
                continue
            await world.ask(committing({0: 1}, group=name), 9)
            host = world.actor._shards.get(0)
            assert host is not None
            partitions = host.shard.offsets.groups[name]["t"]
            partitions.update(dict.fromkeys(range(members), partitions[0]))
        asking: Any = DescribeGroupsRequest(groups=names), 6
        if kind == "delete":
            asking = DeleteGroupsRequest(groups_names=names), 2
        answer, parts = await Turns(world, monkeypatch).ask(*asking)
        assert parts == [9, 9, 9, 3], "a thousand members or offsets each, the groups included"
        found = answer.results if kind == "delete" else answer.groups
        assert [one.group_id for one in found] == names
        if kind == "describe":
            assert {len(one.members) for one in found} == {members}

    run(scenario, tmp_path)


@in_world(run, TMP_PATH)
async def test_many_groups_are_listed_in_turns(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of a few bytes asks for all groups of all shards."""

    await world.begin()
    await world.ask(committing({0: 1}, group="g0"), 9)
    host = world.actor._shards.get(0)
    assert host is not None
    groups = host.shard.offsets.groups
    groups.update({f"g{number}": groups["g0"] for number in range(2 * ITEMS_A_TURN + 100)})
    seen: list[int] = []
    listed = listing.listed

    def recording(groups: Any, offsets: OffsetStore, asked: ListGroupsPart) -> Any:
        seen.append(len(asked.group_ids))
        return listed(groups, offsets, asked)

    monkeypatch.setattr(listing, "listed", recording)
    asked = world.send(ListGroupsRequest(), 5)
    turns = []
    for _ in range(50):
        turns.append(len(seen))
        await asyncio.sleep(0)
    assert seen == [ITEMS_A_TURN, ITEMS_A_TURN, 100]
    assert {1, 2, 3} <= set(turns), "others have their turn"
    assert {one.group_id for one in asked.answer.groups} == set(groups)


@in_world(run, TMP_PATH)
async def test_groups_are_listed_by_filters_that_are_decoded_in_a_thread(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "LIGHT_ELEMENTS_MAX", 0)
    await world.begin()
    world.send(joining("g"), 3)
    await world.ask(committing({0: 1}, group="u", generation=-1), 9)
    listed = await world.ask(ListGroupsRequest(states_filter=["empty"]), 5)
    assert [one.group_id for one in listed.groups] == ["u"]


@in_world(run, TMP_PATH)
async def test_group_removed_during_a_listing_is_not_listed(world: CoordinatorWorld) -> None:
    """Nor is a shard that has gone to another broker, which lists it."""

    await world.begin()
    await world.ask(committing({0: 1}, group="g0"), 9)
    host = world.actor._shards.get(0)
    assert host is not None
    groups = host.shard.offsets.groups
    groups.update({f"g{number}": groups["g0"] for number in range(2 * ITEMS_A_TURN)})
    asked = world.send(ListGroupsRequest(), 5)
    await asyncio.sleep(0)
    assert not asked.is_answered
    del groups[f"g{ITEMS_A_TURN}"]
    host.close("the leader is another")
    await world.runtime.advance(1)
    assert asked.answer.error_code == 0
    assert len(asked.answer.groups) == ITEMS_A_TURN, "what was told before"


@pytest.mark.long
@pytest.mark.parametrize(("length", "turns"), [(10, 1), (30_000, 50)])
@in_world(run, TMP_PATH)
async def test_long_ids_take_more_turns(
    world: CoordinatorWorld, *, length: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever places a group looks at each character of its id."""

    await world.begin()
    names = [f"{n}".rjust(length, "x") for n in range(100)]
    asking = DescribeGroupsRequest(groups=names), 6
    answer, parts = await Turns(world, monkeypatch).ask(*asking)
    assert (sum(parts), len(parts)) == (100, turns)
    assert [one.group_id for one in answer.groups] == names


def test_offsets_of_a_large_topic_that_is_deleted_are_forgotten_in_turns(tmp_path: Path) -> None:
    """They are all forgotten, and that they are is noted once the log has all tombstones."""
    count = 2 * SWEPT_AT_ONCE + 100

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        await world.apply(
            TopicCreated(id_of("large"), "large"),
            *(PartitionCreated(id_of("large"), at, (1,), (1,), 1) for at in range(count)),
        )
        await world.ask(committing(dict.fromkeys(range(count), 5), "large"), 9)
        await world.runtime.advance(1)
        await world.ask(committing({0: 1}), 9)
        host = world.actor._shards.get(0)
        assert host is not None
        world.link.holding = True
        world.log.batches.clear()
        await world.actor.apply_metadata(
            world.actor._image.offset,
            world.actor._image.offset + 1,
            [TopicDeleted(id_of("large"))],
        )
        left = len(host.shard.offsets.of("g")["large"])
        assert left == count - SWEPT_AT_ONCE, "others have their turn"
        await world.runtime.advance(1)
        assert set(host.shard.offsets.of("g")) == {"t"}
        assert set(host._deleted) == {"large"}, "the log does not have that yet"
        world.link.release()
        await world.runtime.advance(1)
        assert host._deleted == {}
        assert sum(world.log.batches) == count
        world.restart()
        await world.begin()
        answer = await world.ask(_all_offsets("g"), 8)
        assert [topic.name for topic in answer.groups[0].topics] == ["t"]

    run(scenario, tmp_path)


def test_a_log_that_refuses_them_is_notified_again(tmp_path: Path) -> None:
    count = 2 * SWEPT_AT_ONCE + 100

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        await world.apply(
            TopicCreated(id_of("large"), "large"),
            *(PartitionCreated(id_of("large"), at, (1,), (1,), 1) for at in range(count)),
        )
        await world.ask(committing(dict.fromkeys(range(count), 5), "large"), 9)
        await world.runtime.advance(1)
        host = world.actor._shards.get(0)
        assert host is not None
        world.log.refusals = [NotEnoughReplicas("too few")] * 2
        await world.apply(TopicDeleted(id_of("large")))
        await world.runtime.advance(60_000)
        assert host.shard.offsets.of("g") == {}
        assert host._deleted == {}

    run(scenario, tmp_path)


class _Counted(OffsetCommitKey):
    """A key that counts requests for its group."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "group":
            _Counted.looks += 1
        return super().__getattribute__(name)


def test_committed_offsets_of_one_group_are_found_without_a_full_scan() -> None:
    store = OffsetStore()
    value = OffsetCommitValue(offset=1)
    changes = [
        store.replay(_Counted(group=f"g{n % 100}", topic="t", partition=n // 100), value)
        for n in range(1_000)
    ]
    _Counted.looks = 0
    assert store.committed("g7") == {}
    assert _Counted.looks <= 10
    for change in changes[:500]:
        change.commit()
    assert sorted(store.committed("g7")["t"]) == [0, 1, 2, 3, 4]
    for change in reversed(changes[500:]):
        change.revert()
    assert store.committed("g7") == store.of("g7")
    assert sorted(store.of("g7")["t"]) == [0, 1, 2, 3, 4]


@in_world(run, TMP_PATH)
async def test_a_large_answer_to_a_small_request_is_encoded_by_a_thread(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    for _ in range(1_100):
        world.send(joining("g"), 3)
    await world.runtime.advance(1)
    aside: list[str] = []

    async def run_blocking(function: Any, *args: Any) -> Any:
        aside.append(function.__name__)
        return function(*args)

    monkeypatch.setattr(world.runtime, "run_blocking", run_blocking)
    answer = await world.ask(DescribeGroupsRequest(groups=["g"]), 6)
    assert len(answer.groups[0].members) == 1_100
    assert aside == ["_frame"]
