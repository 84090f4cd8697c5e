"""Throttled replication with the real code of several processes (KIP-73), under virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, run_world
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import batch

KB = 1_000
RATE = 200 * KB
NO_RATE = str(2**63 - 1)
BATCHES = 100
SLICE = replace(SETTINGS, partition_bytes_max=32 * KB, response_bytes_max=64 * KB)
"""Small answers, so that the smallest step is a sixth of what a second allows."""
SIDES = ["leader", "follower"]


def throttled(side: str, replicas: str, rate: int | str = RATE) -> dict[str, str]:
    return {
        f"{side}_replication_throttled_rate": str(rate),
        f"{side}_replication_throttled_replicas": replicas,
    }


async def fill(world: ReplicaWorld, partition: int = 0, batches: int = BATCHES) -> int:
    """Write 10 KB a batch while broker 3 is away; the bytes in all."""
    for _ in range(batches):
        written = world.produce(1, batch(1, size=10 * KB), partition=partition)
        await world.pass_ms(1)
        await written
    return world.replica(1, partition).log.size


async def lose(world: ReplicaWorld, broker_id: int = 3) -> None:
    """A broker is gone with its disk, and out of the in-sync replicas."""
    await world.kill(broker_id)
    world.disks[broker_id] = FaultyDisk()
    await world.elect(1, isr=tuple(one for one in world.brokers if one != broker_id))


async def seconds_until_level(world: ReplicaWorld, *partitions: int, limit: int = 60) -> float:
    """How long broker 3 takes to hold all that the leader has."""
    begin = world.clock.monotonic_ms()
    for partition in partitions:
        while (
            world.replica(3, partition).log.log_end_offset
            < world.replica(1, partition).log.log_end_offset
        ):
            await world.pass_ms(50)
            assert world.clock.monotonic_ms() - begin < 1_000 * limit, "it takes too long"
    return (world.clock.monotonic_ms() - begin) / 1_000


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("replicas", ["0:1,0:3", "*"])
@in_world(run_world, settings=SLICE)
async def test_a_throttled_replica_is_copied_at_the_rate(
    world: ReplicaWorld, *, side: str, replicas: str
) -> None:
    await lose(world)
    size = await fill(world)
    await world.configure(**throttled(side, replicas))
    await world.start(3)
    expected = size / RATE - 1  # a window's bytes go at once
    assert expected * 0.9 <= await seconds_until_level(world, 0) <= expected * 1.1 + 0.2
    await world.pass_ms(3_000)
    assert world.isr() == (1, 2, 3), "in sync as usual"
    assert world.raw(1) == world.raw(3)


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world, settings=SLICE)
async def test_other_replicas_are_not_throttled(world: ReplicaWorld, *, side: str) -> None:
    await lose(world)
    await fill(world)
    for replicas in ("", "0:9,1:1,1:3", "0:3" if side == "leader" else "0:1"):
        await world.configure(**throttled(side, replicas))
        await world.start(3)
        assert await seconds_until_level(world, 0) < 1.0
        await lose(world)


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world, settings=SLICE)
async def test_a_rate_without_an_end_throttles_nobody(world: ReplicaWorld, *, side: str) -> None:
    await lose(world)
    await fill(world)
    await world.configure(**throttled(side, "*", NO_RATE))
    await world.start(3)
    assert await seconds_until_level(world, 0) < 1.0


@in_world(run_world, settings=SLICE)
async def test_producers_do_not_wait_while_a_replica_is_copied(world: ReplicaWorld) -> None:
    """Followers in sync are exempt on both sides: acks=all stays as quick as ever."""

    await lose(world)
    await fill(world)
    await world.configure(**throttled("leader", "*"), **throttled("follower", "*"))
    await world.start(3)
    for _ in range(100):
        written = world.produce(1, batch(1, size=KB))
        await world.pass_ms(10)
        assert written.done(), "within one round"
    assert world.replica(3).log.log_end_offset < BATCHES, "the copy is still under way"


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world)
async def test_a_follower_in_sync_is_never_kept_waiting(world: ReplicaWorld, *, side: str) -> None:
    await world.configure(**throttled(side, "*", 1))
    for _ in range(20):
        written = world.produce(1, batch(1, size=KB))
        await world.pass_ms(5)
        assert written.done()
    assert world.isr() == (1, 2, 3)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "changes", [{"rate": NO_RATE}, {"replicas": ""}], ids=["no rate", "no replicas"]
)
@in_world(run_world, settings=SLICE)
async def test_the_end_of_a_throttle_takes_effect_at_once(
    world: ReplicaWorld, *, side: str, changes: dict[str, str]
) -> None:
    await lose(world)
    await fill(world)
    await world.configure(**throttled(side, "*", 1))
    await world.start(3)
    await world.pass_ms(1_000)
    assert world.replica(3).log.log_end_offset < BATCHES / 4
    ended = {f"{side}_replication_throttled_{name}": text for name, text in changes.items()}
    await world.configure(**ended)
    assert await seconds_until_level(world, 0) < 1.0


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world, settings=SLICE)
async def test_a_throttle_takes_effect_while_a_replica_is_copied(
    world: ReplicaWorld, *, side: str
) -> None:
    await lose(world)
    await fill(world)
    await world.configure(**throttled(side, "*"))
    await world.start(3)
    await world.pass_ms(2_000)
    before = world.replica(3).log.log_end_offset
    assert 0 < before < BATCHES
    await world.configure(**throttled(side, "*", 10 * KB))
    await world.pass_ms(4_000)
    assert world.replica(3).log.log_end_offset - before <= 2 * 4
    await world.configure(**throttled(side, "*", 10_000 * KB))
    assert await seconds_until_level(world, 0) < 0.5


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world, settings=SLICE)
async def test_something_is_copied_at_any_rate(world: ReplicaWorld, *, side: str) -> None:
    await lose(world)
    await fill(world, batches=9)
    await world.configure(**throttled(side, "*", 0))
    await world.start(3)
    assert 20 < await seconds_until_level(world, 0) < 40


@pytest.mark.parametrize("side", SIDES)
def test_many_throttled_partitions_share_the_rate_and_all_arrive(side: str) -> None:
    count = 40

    async def scenario(world: ReplicaWorld) -> None:
        await lose(world)
        sizes = [await fill(world, index, batches=3) for index in range(count)]
        await world.configure(**throttled(side, "*"))
        await world.start(3)
        expected = sum(sizes) / RATE - 1
        taken = await seconds_until_level(world, *range(count))
        # A follower does not know what it will be sent: it may ask for ten partitions at a time.
        assert expected * 0.8 - 1 <= taken <= expected * 1.1 + 0.5

    run_world(scenario, partitions=count, settings=SLICE)


@in_world(run_world, partitions=4, settings=SLICE)
async def test_an_unthrottled_partition_passes_the_throttled_ones(world: ReplicaWorld) -> None:
    await lose(world)
    for index in range(4):
        await fill(world, index, batches=30)
    await world.configure(
        **throttled("leader", "0:1,1:1,2:1", 1), **throttled("follower", "0:3,1:3,2:3", 1)
    )
    await world.start(3)
    assert await seconds_until_level(world, 3) < 1.0
    assert world.replica(3, 0).log.log_end_offset < 30


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world, settings=SLICE)
async def test_processes_of_a_broker_share_the_rate(world: ReplicaWorld, *, side: str) -> None:
    world.sharers = 2
    await lose(world)
    size = await fill(world)
    await world.configure(**throttled(side, "*"))
    await world.start(3)
    expected = size / (RATE / 2) - 1
    taken = await seconds_until_level(world, 0)
    assert expected * 0.8 <= taken <= expected * 1.1 + 0.2
    assert 0 < world.shares_asked <= 2 * (taken + 2), "each process once a second"
    asked = world.shares_asked
    await world.pass_ms(10_000)
    assert world.shares_asked - asked <= 2 * 2, "nobody asks while nothing is copied"


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world, settings=SLICE)
async def test_a_leader_that_dies_does_not_keep_its_throttled_followers_waiting(
    world: ReplicaWorld, *, side: str
) -> None:
    await lose(world)
    await fill(world)
    await world.configure(**throttled(side, "*"))
    await world.start(3)
    await world.pass_ms(1_500)
    await world.kill(1)
    await world.elect(2, isr=(2,))
    begin = world.clock.monotonic_ms()
    while world.replica(3).log.log_end_offset < world.replica(2).log.log_end_offset:
        await world.pass_ms(50)
    assert world.clock.monotonic_ms() - begin < 1_000 * (1_100 * KB / RATE + 1)
    assert world.raw(2) == world.raw(3)


@pytest.mark.parametrize("side", SIDES)
@in_world(run_world, partitions=2, settings=SLICE)
async def test_a_partition_that_is_closed_while_it_waits_leaves_the_others_alone(
    world: ReplicaWorld, *, side: str
) -> None:
    await lose(world)
    for index in range(2):
        await fill(world, index, batches=30)
    await world.configure(**throttled(side, "*", RATE // 4))
    await world.start(3)
    await world.pass_ms(1_000)
    await world.nodes[3].actor.close_partitions([world.keys[0]], False)
    assert await seconds_until_level(world, 1) < 20


@in_world(run_world, settings=SLICE)
async def test_without_a_throttle_no_timer_runs_and_nobody_asks_for_shares(
    world: ReplicaWorld,
) -> None:
    await lose(world)
    await fill(world)
    await world.start(3)
    assert await seconds_until_level(world, 0) < 1.0
    assert world.shares_asked == 0
    await world.pass_ms(5_000)
    idle = world.clock.timers_run
    await world.pass_ms(10_000)
    assert world.clock.timers_run - idle < 5 * 10


@in_world(run_world, settings=replace(SETTINGS, min_bytes=5 * KB))
async def test_bytes_count_towards_the_rate_when_they_are_sent(
    world: ReplicaWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each follower, however often a response was too small to be sent."""

    await world.configure(**throttled("leader", "*"))
    counted: list[int] = []
    throttler = world.nodes[1].actor._throttler
    monkeypatch.setattr(throttler, "sent", lambda _partition, count: counted.append(count))
    for _ in range(20):
        world.produce(1, batch(1, size=KB))
        await world.pass_ms(1)
    await world.pass_ms(2_000)
    assert sum(counted) == 2 * world.replica(1).log.size


@in_world(run_world, partitions=8)
async def test_partitions_of_one_response_share_the_rate(world: ReplicaWorld) -> None:
    await lose(world)
    for index in range(8):
        await fill(world, index, batches=1)
    await world.configure(**throttled("leader", "*", KB))
    await world.start(3)
    await world.pass_ms(2_000)
    copied = [world.replica(3, index).log.log_end_offset for index in range(8)]
    assert sum(copied) == 1, copied


@pytest.mark.parametrize("silence", [PeerLost("gone"), PeerTimeout("late"), ActorGone("gone")])
@in_world(run_world, settings=SLICE)
async def test_shares_stay_as_they_are_while_the_broker_is_silent(
    world: ReplicaWorld, *, silence: Exception
) -> None:
    call = world.call
    silent = False

    async def played(peer: str, method: str, *args: object) -> object:
        found = await call(peer, method, *args)
        if silent and method == "throttle_shares":
            raise silence
        return found

    world.call = played  # type: ignore[method-assign]  # one that does not always answer
    world.sharers = 2
    await lose(world)
    size = await fill(world)
    await world.configure(**throttled("leader", "*"))
    await world.start(3)
    await world.pass_ms(1_500)
    silent = True
    asked = world.shares_asked
    taken = 1.5 + await seconds_until_level(world, 0)
    expected = size / (RATE / 2) - 1
    assert expected * 0.8 <= taken <= expected * 1.1 + 0.2
    assert world.shares_asked - asked >= taken - 4, "it is asked again"
