"""Names from outside are forgotten: thousands of requests about nothing leave nothing behind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.wire.messages.sync_group import SyncGroupRequest
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_shard import joining
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run

NAMES = 300
SIZES_MAX = 20
HEAP = "._heap"
"""Of timers that are no longer due: it is bounded by itself (`test_timers.py`)."""


def containers(root: object) -> Iterator[tuple[str, int]]:
    """Every collection that is reached from an object of ours, and its size."""
    seen: set[int] = set()
    left: list[tuple[str, Any]] = [("", root)]
    while left:
        path, one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict | list | set | frozenset) or hasattr(one, "popleft"):
            yield path, len(one)
            values = one.values() if isinstance(one, dict) else one
            left += [(f"{path}[]", value) for value in values]
        elif type(one).__module__.startswith("raylog.actors."):
            names = [*getattr(one, "__dict__", ()), *getattr(type(one), "__slots__", ())]
            left += [(f"{path}.{name}", getattr(one, name)) for name in names if hasattr(one, name)]


def large(world: CoordinatorWorld) -> dict[str, int]:
    """The collections that have kept something."""
    return {
        path: size
        for path, size in containers(world.actor)
        if size > SIZES_MAX and not path.endswith(HEAP)
    }


def asking(name: str) -> list[tuple[Any, int]]:
    """Requests with a name of which nothing stays."""
    beat = ConsumerGroupHeartbeatRequest(
        group_id=name, member_id=name, member_epoch=7, subscribed_topic_regex=f"{name}.*"
    )
    return [
        (beat, 1),
        (HeartbeatRequest(group_id=name, generation_id=1, member_id=name), 4),
        (SyncGroupRequest(group_id=name, generation_id=1, member_id=name), 5),
        (LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=name)]), 4),
        (joining(name, member_id=name), 3),
        (committing({0: 1}, name), 9),
        (committing({0: 1}, group=name, generation=3), 9),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None)]), 8),
        (DescribeGroupsRequest(groups=[name]), 6),
        (ConsumerGroupDescribeRequest(group_ids=[name]), 1),
        (DeleteGroupsRequest(groups_names=[name]), 2),
    ]


def test_names_of_which_nothing_stays_are_not_kept(tmp_path: Path) -> None:
    chance = random.Random(1)

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        for number in range(NAMES):
            requests = asking(f"name-{number}")
            chance.shuffle(requests)
            for request, version in requests:
                world.send(request, version)
            if number % 50 == 0:
                await world.runtime.advance(1)
        await world.runtime.advance(60_000)
        world.runtime._timers = [one for one in world.runtime._timers if one.callback]
        assert large(world) == {}

    run(scenario, tmp_path)


@in_world(run, TMP_PATH)
async def test_groups_that_came_and_went_are_not_kept(world: CoordinatorWorld) -> None:
    """Members join and their sessions end, offsets are committed, the groups are deleted."""

    await world.begin()
    names = [f"group-{number}" for number in range(NAMES)]
    for name in names:
        world.send(joining(name), 3)
        world.send(committing({0: 1}, group=name, generation=-1), 9)
        consumer = ConsumerGroupHeartbeatRequest(
            group_id=f"c-{name}",
            member_id=name,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        world.send(consumer, 1)
    await world.runtime.advance(120_000)
    world.send(DeleteGroupsRequest(groups_names=[*names, *(f"c-{one}" for one in names)]), 2)
    await world.runtime.advance(60_000)
    assert large(world) == {}
