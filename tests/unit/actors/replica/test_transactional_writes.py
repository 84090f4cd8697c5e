"""Transactional batches are appended if their transaction includes the partition (KIP-890)."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.replica.messages import ProduceAnswer
from raylog.actors.replica.verifying import HELD_MAX
from raylog.actors.transaction.client import DEADLINE_MS
from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.wire.errors import ErrorCode
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.replica.scripted_transactions import ended
from tests.worlds.storage.logs import batch

PRODUCER = 7


def written(
    sequence: int = 0, count: int = 1, *, epoch: int = 0, producer_id: int = PRODUCER
) -> bytearray:
    return batch(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        transactional=True,
    )


def results(outcomes: list[ProduceAnswer | ErrorCode]) -> list[Any]:
    return [getattr(one, "base_offset", one) for one in outcomes]


@in_world(run_world)
async def test_the_first_batch_of_a_transaction_is_added_and_the_next_is_not(
    world: ReplicaWorld,
) -> None:
    first = world.produce_in_transaction(1, written(0, 2))
    await world.pass_ms(1)
    second = world.produce_in_transaction(1, written(2))
    await world.pass_ms(1)
    assert results(await first) + results(await second) == [0, 2]
    assert world.transactions.asked == [
        AddPartitions("x", PRODUCER, 0, False, [TopicPartitions("t", [0])])
    ]
    assert world.replica(1).log.producers.transaction_start(PRODUCER) == 0


@in_world(run_world)
async def test_every_transaction_is_asked_about_anew(world: ReplicaWorld) -> None:
    for epoch in range(2):
        answer = world.produce_in_transaction(1, written(epoch=epoch))
        await world.pass_ms(1)
        assert results(await answer) == [2 * epoch]
        marked = world.write_markers(1, ended(PRODUCER, epoch + 1))
        await world.pass_ms(1)
        assert await marked == [[0]]
    assert [one.producer_epoch for one in world.transactions.asked] == [0, 1]


@in_world(run_world, partitions=2)
async def test_partitions_of_a_request_are_added_together(world: ReplicaWorld) -> None:
    answer = world.produce_in_transaction(1, written(), written(), partitions=(0, 1))
    await world.pass_ms(1)
    assert results(await answer) == [0, 0]
    (asked,) = world.transactions.asked
    assert asked.topics == [TopicPartitions("t", [0]), TopicPartitions("t", [1])]


@in_world(run_world, partitions=2)
async def test_one_partition_may_be_refused_alone(world: ReplicaWorld) -> None:
    world.transactions.codes = {1: ErrorCode.TRANSACTION_ABORTABLE}
    answer = world.produce_in_transaction(1, written(), written(), partitions=(0, 1))
    await world.pass_ms(1)
    assert results(await answer) == [0, ErrorCode.TRANSACTION_ABORTABLE]


@in_world(run_world)
async def test_transactional_writes_wait_in_order_during_verification(world: ReplicaWorld) -> None:
    world.transactions.holding = True
    answers = [world.produce_in_transaction(1, written(one)) for one in range(3)]
    await world.pass_ms(1)
    assert not any(one.done() for one in answers)
    other = world.produce(1)
    await world.pass_ms(1)
    assert results(await other) == [0], "who writes in no transaction does not wait"
    world.transactions.answer()
    await world.pass_ms(1)
    assert [results(await one) for one in answers] == [[1], [2], [3]]
    assert len(world.transactions.asked) == 1
    assert not world.replica(1).verifying


@in_world(run_world)
async def test_nothing_is_asked_for_batches_without_a_transaction(world: ReplicaWorld) -> None:
    """Also in a request that names one."""

    answer = world.produce_in_transaction(1, batch(1), batch(1, producer_id=9))
    await world.pass_ms(1)
    assert results(await answer) == [0, 1]
    assert not world.transactions.asked


@pytest.mark.parametrize("needed", [True, False])
@in_world(run_world)
async def test_earlier_versions_are_verified_as_long_as_that_is_set(
    world: ReplicaWorld, *, needed: bool
) -> None:
    await world.configure(transaction_partition_verification_enable=str(needed).lower())
    answer = world.produce_in_transaction(1, written(), adds=False)
    await world.pass_ms(1)
    assert results(await answer) == [0]
    assert [one.verify_only for one in world.transactions.asked] == [True] * needed


NONE, ABORTABLE = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
ENOUGH = ErrorCode.NOT_ENOUGH_REPLICAS
STATE, FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH
CONCURRENT, MAPPING = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("said", "version_9", "version_11", "version_12"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, STATE, ABORTABLE, ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, STATE, STATE, STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ENOUGH, ENOUGH, CONCURRENT),
        (ErrorCode.PRODUCER_FENCED, FENCED, FENCED, FENCED),
        (ErrorCode.INVALID_PRODUCER_EPOCH, FENCED, FENCED, FENCED),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, MAPPING, MAPPING, MAPPING),
        (ErrorCode.NOT_COORDINATOR, ENOUGH, ENOUGH, ENOUGH),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ENOUGH, ENOUGH, ENOUGH),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ENOUGH, ENOUGH, ENOUGH),
        (ErrorCode.NETWORK_EXCEPTION, ENOUGH, ENOUGH, ENOUGH),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ENOUGH, ENOUGH, ENOUGH),
    ],
)
@in_world(run_world)
async def test_refusals_of_the_coordinator_are_reported_as_clients_understand_them(
    world: ReplicaWorld,
    *,
    said: ErrorCode,
    version_9: ErrorCode,
    version_11: ErrorCode,
    version_12: ErrorCode,
) -> None:
    world.transactions.code = said
    found = []
    for adds, knows in ((False, False), (False, True), (True, True)):
        answer = world.produce_in_transaction(1, written(), adds=adds, knows_abortable=knows)
        await world.pass_ms(1)
        found += results(await answer)
    assert found == [version_9, version_11, version_12]
    assert world.replica(1).log.log_end_offset == 0


@in_world(run_world)
async def test_a_coordinator_that_nobody_finds_is_no_reason_to_give_up(world: ReplicaWorld) -> None:
    world.transactions.gone = True
    answer = world.produce_in_transaction(1, written())
    await world.pass_ms(1)
    assert results(await answer) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.transactions.gone = False
    again = world.produce_in_transaction(1, written())
    await world.pass_ms(1)
    assert results(await again) == [0]


@in_world(run_world)
async def test_a_silent_coordinator_is_given_up(world: ReplicaWorld) -> None:
    world.transactions.holding = True
    answer = world.produce_in_transaction(1, written())
    await world.pass_ms(DEADLINE_MS + 100)
    assert results(await answer) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.transactions.answer()
    await world.pass_ms(1)
    assert world.replica(1).log.log_end_offset == 0


@in_world(run_world)
async def test_behind_a_batch_that_was_refused_nothing_is_written(world: ReplicaWorld) -> None:
    """Its producer is unknown here: it might begin anywhere otherwise."""

    world.transactions.code = ErrorCode.NOT_COORDINATOR
    first = world.produce_in_transaction(1, written(0, 3), adds=False)
    await world.pass_ms(1)
    assert results(await first) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.transactions.code = ErrorCode.NONE
    second = world.produce_in_transaction(1, written(3), adds=False)
    await world.pass_ms(1)
    assert results(await second) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    both = world.produce_in_transaction(1, written(0, 3), written(3), adds=False)
    await world.pass_ms(1)
    assert results(await both) == [0, 3]


@in_world(run_world)
async def test_an_unknown_producer_of_version_2_begins_at_sequence_0(world: ReplicaWorld) -> None:
    for sequence in (5, 5, 6):
        answer = world.produce_in_transaction(1, written(sequence))
        await world.pass_ms(1)
        assert results(await answer) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    answer = world.produce_in_transaction(1, written(5), adds=False)
    await world.pass_ms(1)
    assert results(await answer) == [0], "before version 2 it may have expired"


@in_world(run_world)
async def test_a_repeat_within_the_transaction_is_not_written_again(world: ReplicaWorld) -> None:
    world.transactions.holding = True
    answer = world.produce_in_transaction(1, written(0, 2), written(0, 2))
    await world.pass_ms(1)
    world.transactions.answer()
    await world.pass_ms(1)
    later = world.produce_in_transaction(1, written(0, 2))
    await world.pass_ms(1)
    assert results(await answer) + results(await later) == [0, 0, 0]
    assert world.replica(1).log.log_end_offset == 2


@pytest.mark.parametrize(("version", "epoch"), [(1, 0), (1, 1), (2, 1)])
@in_world(run_world)
async def test_a_marker_that_comes_between_voids_the_answer(
    world: ReplicaWorld, *, version: int, epoch: int
) -> None:
    """The coordinator may have told of the transaction that ends with it."""

    world.transactions.holding = True
    answer = world.produce_in_transaction(1, written(), written(1), adds=version == 2)
    await world.pass_ms(1)
    marked = world.write_markers(1, ended(PRODUCER, epoch, committed=False, version=version))
    await world.pass_ms(1)
    assert await marked == [[0]]
    assert results(await answer) == [ErrorCode.INVALID_TXN_STATE] * 2
    world.transactions.answer()
    await world.pass_ms(1)
    assert world.replica(1).log.producers.transaction_start(PRODUCER) == -1
    assert world.replica(1).log.log_end_offset == 1


@in_world(run_world)
async def test_the_marker_of_the_transaction_before_does_not(world: ReplicaWorld) -> None:
    """In version 2 that has the epoch of the next one, which waits for it at the coordinator."""

    before = world.produce_in_transaction(1, written(0))
    await world.pass_ms(1)
    world.transactions.holding = True
    after = world.produce_in_transaction(1, written(0, epoch=1))
    await world.pass_ms(1)
    marked = world.write_markers(1, ended(PRODUCER, 1))
    await world.pass_ms(1)
    world.transactions.answer()
    await world.pass_ms(1)
    assert results(await before) + results(await after) == [0, 2]
    assert await marked == [[0]]
    assert world.replica(1).log.producers.transaction_start(PRODUCER) == 2


@in_world(run_world)
async def test_markers_that_are_refused_void_nothing(world: ReplicaWorld) -> None:
    before = world.produce_in_transaction(1, written(0, epoch=4))
    await world.pass_ms(1)
    world.transactions.holding = True
    after = world.produce_in_transaction(1, written(0, epoch=5))
    await world.pass_ms(1)
    marked = world.write_markers(1, ended(PRODUCER, 3, version=1))
    await world.pass_ms(1)
    assert await marked == [[ErrorCode.INVALID_PRODUCER_EPOCH]]
    world.transactions.answer()
    await world.pass_ms(1)
    assert results(await before) + results(await after) == [0, 1]


@in_world(run_world)
async def test_a_newer_epoch_fences_what_waits_and_an_older_one_is_fenced(
    world: ReplicaWorld,
) -> None:
    world.transactions.holding = True
    zombie = world.produce_in_transaction(1, written(epoch=3))
    successor = world.produce_in_transaction(1, written(epoch=4))
    late = world.produce_in_transaction(1, written(epoch=3))
    await world.pass_ms(1)
    assert results(await zombie) == results(await late) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    world.transactions.answer()
    await world.pass_ms(1)
    assert results(await successor) == [0]


@in_world(run_world)
async def test_a_producer_waits_for_one_transactional_id(world: ReplicaWorld) -> None:
    world.transactions.holding = True
    first = world.produce_in_transaction(1, written())
    other = world.produce_in_transaction(1, written(1), transactional_id="y")
    await world.pass_ms(1)
    assert results(await other) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    world.transactions.answer()
    await world.pass_ms(1)
    assert results(await first) == [0]


@in_world(run_world)
async def test_only_so_many_wait(world: ReplicaWorld) -> None:
    world.transactions.holding = True
    answers = [world.produce_in_transaction(1, written(one)) for one in range(HELD_MAX + 1)]
    await world.pass_ms(1)
    assert results(await answers[-1]) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.transactions.answer()
    await world.pass_ms(1)
    assert [results(await one) for one in answers[:-1]] == [[at] for at in range(HELD_MAX)]


@in_world(run_world)
async def test_waiting_transactional_produce_fails_when_leadership_moves(
    world: ReplicaWorld,
) -> None:
    world.transactions.holding = True
    answers = [world.produce_in_transaction(1, written(one)) for one in range(2)]
    await world.pass_ms(1)
    await world.elect(2)
    await world.pass_ms(1)
    assert [results(await one) for one in answers] == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]] * 2
    world.transactions.answer()
    await world.pass_ms(100)
    assert world.ends() == [(0, 0)] * 3


@in_world(run_world)
async def test_a_replica_that_does_not_lead_asks_nobody(world: ReplicaWorld) -> None:
    answer = world.produce_in_transaction(2, written())
    await world.pass_ms(1)
    assert results(await answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not world.transactions.asked


@in_world(run_world)
async def test_unknown_partition_of_a_transactional_write_fails_alone(world: ReplicaWorld) -> None:
    answer = world.produce_in_transaction(1, written(), written(), partitions=(7, 0))
    await world.pass_ms(1)
    assert results(await answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
