"""The facts about idempotent and transactional writes at the leader, one test or more each.

Where else they are tested, with more cases:

| fact                                            | tests                                          |
|-------------------------------------------------|------------------------------------------------|
| sequences, repeats, epochs                      | storage/test_producers                         |
| the client's settings for idempotence           | client/test_settings, test_producer            |
| unknown producers, what was refused before      | replica/test_first_sequences                   |
| who is asked before a transactional write       | replica/test_transactional_writes              |
| markers and who reads committed records         | replica/test_markers                           |
| a control bit or two producers in one request   | gateway/test_produce, wire_records             |
"""

from __future__ import annotations

from typing import Any

import pytest

from raylog.storage.producers import BATCHES_KEPT
from raylog.wire.errors import ErrorCode
from tests.support.logs import batch
from tests.support.played_transactions import ended
from tests.support.replica_world import ReplicaWorld, run_world

PRODUCER = 7
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def numbered(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> Any:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence)


async def told(world: ReplicaWorld, *batches: Any, broker: int = 1) -> list[Any]:
    """Base offsets, or errors."""
    outcomes = world.produce(broker, *batches)
    await world.pass_ms(100)
    return [getattr(one, "base_offset", one) for one in await outcomes]


def test_the_next_sequence_is_accepted() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await told(world, numbered(0, 3), numbered(3, 2), numbered(5)) == [0, 3, 5]

    run_world(scenario)


def test_an_exact_repeat_of_one_of_the_last_five_is_answered_with_its_first_offset() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        batches = [numbered(2 * at, 2) for at in range(BATCHES_KEPT + 1)]
        offsets = await told(world, *batches)
        assert offsets == [2 * at for at in range(BATCHES_KEPT + 1)]
        assert await told(world, *batches[1:]) == offsets[1:]
        assert await told(world, batches[0]) == [OUT_OF_ORDER]
        assert world.replica(1).log.log_end_offset == 2 * len(batches)

    run_world(scenario)


def test_a_repeat_at_another_leader_is_one_as_well() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await told(world, numbered(0, 3)) == [0]
        await world.elect(2)
        await world.pass_ms(2_000)
        assert await told(world, numbered(0, 3), numbered(3), broker=2) == [0, 3]

    run_world(scenario)


def test_a_repeat_is_answered_when_the_first_one_is_replicated() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        first, second = (world.produce(1, numbered(0)) for _ in range(2))
        await world.pass_ms(100)
        assert not first.done()
        assert not second.done()
        await world.start(2)
        await world.pass_ms(1_000)
        assert await first == await second

    run_world(scenario)


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 1), (4, 1), (2, 3)])
def test_everything_else_is_out_of_order(sequence: int, count: int) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await told(world, numbered(0, 3), numbered(sequence, count)) == [0, OUT_OF_ORDER]

    run_world(scenario)


def test_each_producer_and_partition_has_its_sequence() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        other = numbered(0, producer_id=PRODUCER + 1)
        assert await told(world, numbered(0), other, numbered(1)) == [0, 1, 2]
        elsewhere = world.produce(1, numbered(0), partition=1)
        await world.pass_ms(100)
        assert [getattr(one, "base_offset", one) for one in await elsewhere] == [0]

    run_world(scenario, partitions=2)


def test_two_sends_of_equal_content_are_two_records() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await told(world, numbered(0), numbered(1), batch(1), batch(1)) == [0, 1, 2, 3]

    run_world(scenario)


def test_an_older_epoch_is_fenced_and_a_new_one_starts_at_0() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        found = await told(
            world, numbered(0), numbered(1, epoch=1), numbered(0, epoch=1), numbered(1)
        )
        assert found == [0, OUT_OF_ORDER, 1, ErrorCode.INVALID_PRODUCER_EPOCH]

    run_world(scenario)


def test_a_write_outside_of_the_producers_open_transaction_is_refused() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        opened = world.produce_in_transaction(1, batch(1, producer_id=PRODUCER, transactional=True))
        await world.pass_ms(100)
        await opened
        assert await told(world, numbered(1)) == [ErrorCode.INVALID_TXN_STATE]
        marked = world.write_markers(1, ended(PRODUCER, 1))
        await world.pass_ms(100)
        assert await marked == [[0]]
        assert await told(world, numbered(0, epoch=1)) == [2]

    run_world(scenario)


def test_fewer_in_sync_than_asked_for_is_told_before_anything_is_written() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.change(isr=(1,))
        await world.publish()
        assert await told(world, numbered(0)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert world.replica(1).log.log_end_offset == 0

    run_world(scenario, config={"min.insync.replicas": "2"})


def test_a_producer_that_nobody_heard_of_for_long_is_forgotten_but_not_in_a_transaction() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await told(world, numbered(0)) == [0]
        opened = world.produce_in_transaction(1, batch(1, producer_id=8, transactional=True))
        await world.pass_ms(100)
        await opened
        log = world.replica(1).log
        log.retention(world.clock.now_ms() + 2 * log.config.producer_expiration_ms, 0)
        assert (log.producers.epoch_of(PRODUCER), log.producers.epoch_of(8)) == (-1, 0)
        assert log.producers.transaction_start(8) == 1

    run_world(scenario)
