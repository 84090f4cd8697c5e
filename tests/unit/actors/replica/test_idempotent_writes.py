"""Idempotent writes at the leader: what its log alone does not show."""

from __future__ import annotations

from typing import Any

from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.storage.logs import batch

PRODUCER = 7


def numbered(sequence: int, producer_id: int = PRODUCER) -> Any:
    return batch(1, producer_id=producer_id, sequence=sequence)


async def produced(world: ReplicaWorld, *batches: Any) -> list[Any]:
    """Base offsets, or errors."""
    outcomes = world.produce(1, *batches)
    await world.pass_ms(100)
    return [getattr(one, "base_offset", one) for one in await outcomes]


@in_world(run_world)
async def test_a_repeat_is_answered_when_the_first_one_is_replicated(world: ReplicaWorld) -> None:
    await world.kill(2)
    first, second = (world.produce(1, numbered(0)) for _ in range(2))
    await world.pass_ms(100)
    assert not first.done()
    assert not second.done()
    await world.start(2)
    await world.pass_ms(1_000)
    assert await first == await second


@in_world(run_world, partitions=2)
async def test_each_producer_and_partition_has_its_sequence(world: ReplicaWorld) -> None:
    other = numbered(0, producer_id=PRODUCER + 1)
    assert await produced(world, numbered(0), other, numbered(1)) == [0, 1, 2]
    elsewhere = world.produce(1, numbered(0), partition=1)
    await world.pass_ms(100)
    assert [getattr(one, "base_offset", one) for one in await elsewhere] == [0]


@in_world(run_world)
async def test_two_sends_of_equal_content_are_two_records(world: ReplicaWorld) -> None:
    assert await produced(world, numbered(0), numbered(1), batch(1), batch(1)) == [0, 1, 2, 3]


@in_world(run_world)
async def test_a_producer_that_nobody_heard_of_for_long_is_forgotten_but_not_in_a_transaction(
    world: ReplicaWorld,
) -> None:
    assert await produced(world, numbered(0)) == [0]
    opened = world.produce_in_transaction(1, batch(1, producer_id=8, transactional=True))
    await world.pass_ms(100)
    await opened
    log = world.replica(1).log
    log.retention(world.clock.now_ms() + 2 * log.state.config.producer_expiration_ms, 0)
    assert (log.producers.epoch_of(PRODUCER), log.producers.epoch_of(8)) == (-1, 0)
    assert log.producers.transaction_start(8) == 1
