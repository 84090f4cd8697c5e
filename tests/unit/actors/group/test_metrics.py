"""A group coordinator's metrics of its groups and their lag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raylog.actors.common_messages import PartitionKey
from raylog.actors.group import lag
from raylog.actors.metadata.records import PartitionChanged, TopicDeleted
from raylog.actors.names import broker_name
from raylog.actors.replica import messages as api
from raylog.actors.runtime.base import PeerTimeout
from raylog.wire.errors import NotLeaderOrFollower
from raylog.wire.messages.heartbeat import HeartbeatRequest
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_shard import joining
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.metadata import id_of, topic_records
from tests.worlds.runtime import FakeLink, FakeRequest, settle

LEADER = "leader"


class Leader:
    """A broker that leads all partitions of user topics, in one process."""

    def __init__(self, world: CoordinatorWorld, ends: dict[PartitionKey, int]) -> None:
        self.ends = ends
        self.hangs = False
        self.link = FakeLink()
        self.link.answering = self._answer
        world.runtime.links[LEADER] = self.link
        world.runtime.peers[broker_name("c", 1)] = self

    async def locate_leaders(self, keys: list[PartitionKey]) -> list[str]:
        if self.hangs:
            raise PeerTimeout("took too long")
        return [LEADER] * len(keys)

    def _answer(self, request: FakeRequest) -> Any:
        assert request.kind == api.OFFSET_FOR
        topic_id, index, *_ = request.header
        if (topic_id, index) not in self.ends:
            raise NotLeaderOrFollower("led elsewhere")
        return (self.ends[topic_id, index], -1, 0)


async def scraped(world: CoordinatorWorld, name: str) -> dict[tuple[str, ...], Any]:
    """The samples of a family, by labels, as a scrape has them now."""
    answer = await world.actor.metrics()
    await settle()
    return {labels: value for family, labels, value in answer.samples if family == name}


async def lags(world: CoordinatorWorld) -> dict[tuple[str, ...], Any]:
    """What the scrape after this one tells."""
    await world.runtime.advance(lag.INTERVAL_MS)
    await world.actor.metrics()
    await settle()
    return await scraped(world, "raylog_group_lag_records")


async def skipped(world: CoordinatorWorld) -> Any:
    return (await scraped(world, "raylog_group_lag_partitions_skipped"))[()]


@in_world(run, TMP_PATH)
async def test_groups_and_members_are_reported_by_type_and_state(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 7}), 8)  # group "g", without members
    world.send(joining(), 3)
    await world.runtime.advance(1)
    assert await scraped(world, "raylog_groups") == {
        ("classic", "Empty"): 1,
        ("classic", "CompletingRebalance"): 1,
    }
    members = await scraped(world, "raylog_group_members")
    assert members == {("classic",): 1, ("consumer",): 0}
    assert await scraped(world, "raylog_group_rebalances_total") == {(): 1}
    assert await scraped(world, "raylog_coordinator_partitions") == {
        ("active",): 1,
        ("loading",): 0,
    }
    ((_, *buckets),) = (await scraped(world, "raylog_coordinator_load_seconds")).values()
    assert sum(buckets) == 1


@in_world(run, TMP_PATH)
async def test_errors_in_answers_are_counted(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(HeartbeatRequest(group_id="g", member_id="nobody"), 4)
    assert await scraped(world, "raylog_errors_total") == {("Heartbeat", "UNKNOWN_MEMBER_ID"): 1}


@in_world(run, TMP_PATH)
async def test_lag_is_the_distance_to_the_end_of_each_partition(world: CoordinatorWorld) -> None:
    await world.begin()
    leader = Leader(world, {(id_of("t"), 0): 10, (id_of("t"), 1): 20, (id_of("t"), 2): 5})
    assert await lags(world) == {}
    await world.ask(committing({0: 7}), 8)
    await world.ask(committing({1: 20}), 8)
    assert await lags(world) == {("g", "t"): 3}
    leader.ends[id_of("t"), 1] = 22
    assert await lags(world) == {("g", "t"): 5}
    await world.ask(committing({2: 9}), 8)  # beyond the end: nothing is left to be read
    assert await lags(world) == {("g", "t"): 5}
    assert await skipped(world) == 0


@in_world(run, TMP_PATH)
async def test_the_lag_is_found_once_at_a_time_and_not_without_a_scrape(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    leader = Leader(world, {(id_of("t"), 0): 10})
    await world.ask(committing({0: 7}), 8)
    await world.runtime.advance(3 * lag.INTERVAL_MS)
    assert not leader.link.requests
    for _ in range(3):
        await scraped(world, "raylog_groups")
    assert len(leader.link.requests) == 1


@in_world(run, TMP_PATH)
async def test_partitions_whose_leader_does_not_answer_are_left_out(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    leader = Leader(world, {(id_of("t"), 0): 10})
    await world.ask(committing({0: 7}), 8)
    await world.ask(committing({1: 7}), 8)
    assert await lags(world) == {("g", "t"): 3}
    assert await skipped(world) == 1
    leader.hangs = True
    assert await lags(world) == {}
    assert await skipped(world) == 2
    leader.hangs = False
    leader.link.lose()
    fresh = Leader(world, leader.ends)
    assert await lags(world) == {("g", "t"): 3}
    await world.apply(PartitionChanged(id_of("t"), 0, leader=-1))
    assert await lags(world) == {}
    assert await skipped(world) == 2
    await world.apply(TopicDeleted(id_of("t")))
    assert await lags(world) == {}
    assert await skipped(world) == 0
    assert fresh.link.requests


@in_world(run, TMP_PATH, metrics_groups_max="2")
async def test_series_of_groups_are_bounded_and_stay(world: CoordinatorWorld) -> None:
    await world.begin()
    Leader(world, {(id_of("t"), 0): 10})
    for group in ("g", "h", "i"):
        await world.ask(committing({0: 7}, group=group), 8)
    assert await lags(world) == {
        ("g", "t"): 3,
        ("h", "t"): 3,
        ("(others)", "(others)"): 3,
    }
    await world.ask(committing({0: 5}, group="a"), 8)
    assert await lags(world) == {
        ("g", "t"): 3,
        ("h", "t"): 3,
        ("(others)", "(others)"): 8,
    }


def test_topics_of_a_group_and_partitions_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "TOPICS_MAX", 1)

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        await world.apply(*topic_records("u", 1), *topic_records("v", 1))
        Leader(world, {(id_of(name), 0): 10 for name in "tuv"})
        for name, offset in (("t", 9), ("u", 3), ("v", 8)):
            await world.ask(committing({0: offset}, name), 8)
        assert await lags(world) == {("g", "u"): 7, ("g", "(others)"): 3}
        monkeypatch.setattr(lag, "PARTITIONS_MAX", 2)
        assert sum((await lags(world)).values()) < 10
        assert await skipped(world) == 1
        monkeypatch.setattr(lag, "OFFSETS_MAX", 1)
        await lags(world)
        assert await skipped(world) == 2, "those that are not looked at are told"

    run(scenario, tmp_path)
