"""Transactional batches are appended when their transaction holds the partition (KIP-890)."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.replica.api import ProduceAnswer
from raylog.actors.replica.verifying import HELD_MAX
from raylog.actors.transaction.api import AddPartitions, TopicPartitions
from raylog.actors.transaction.client import DEADLINE_MS
from raylog.wire.errors import ErrorCode
from tests.support.logs import batch
from tests.support.played_transactions import ended
from tests.support.replica_world import ReplicaWorld, run_world

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


def told(outcomes: list[ProduceAnswer | ErrorCode]) -> list[Any]:
    return [getattr(one, "base_offset", one) for one in outcomes]


def test_the_first_batch_of_a_transaction_is_added_and_the_next_is_not() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first = world.produce_in_transaction(1, written(0, 2))
        await world.pass_ms(1)
        second = world.produce_in_transaction(1, written(2))
        await world.pass_ms(1)
        assert told(await first) + told(await second) == [0, 2]
        assert world.transactions.asked == [
            AddPartitions("x", PRODUCER, 0, False, [TopicPartitions("t", [0])])
        ]
        assert world.replica(1).log.producers.transaction_start(PRODUCER) == 0

    run_world(scenario)


def test_every_transaction_is_asked_about_anew() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for epoch in range(2):
            answer = world.produce_in_transaction(1, written(epoch=epoch))
            await world.pass_ms(1)
            assert told(await answer) == [2 * epoch]
            marked = world.write_markers(1, ended(PRODUCER, epoch + 1))
            await world.pass_ms(1)
            assert await marked == [[0]]
        assert [one.producer_epoch for one in world.transactions.asked] == [0, 1]

    run_world(scenario)


def test_partitions_of_a_request_are_added_together() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        answer = world.produce_in_transaction(1, written(), written(), partitions=(0, 1))
        await world.pass_ms(1)
        assert told(await answer) == [0, 0]
        (asked,) = world.transactions.asked
        assert asked.topics == [TopicPartitions("t", [0]), TopicPartitions("t", [1])]

    run_world(scenario, partitions=2)


def test_one_partition_may_be_refused_alone() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.codes = {1: ErrorCode.TRANSACTION_ABORTABLE}
        answer = world.produce_in_transaction(1, written(), written(), partitions=(0, 1))
        await world.pass_ms(1)
        assert told(await answer) == [0, ErrorCode.TRANSACTION_ABORTABLE]

    run_world(scenario, partitions=2)


def test_what_comes_meanwhile_waits_in_its_order() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        answers = [world.produce_in_transaction(1, written(one)) for one in range(3)]
        await world.pass_ms(1)
        assert not any(one.done() for one in answers)
        other = world.produce(1)
        await world.pass_ms(1)
        assert told(await other) == [0], "who writes in no transaction does not wait"
        world.transactions.answer()
        await world.pass_ms(1)
        assert [told(await one) for one in answers] == [[1], [2], [3]]
        assert len(world.transactions.asked) == 1
        assert not world.replica(1).verifying

    run_world(scenario)


def test_nothing_is_asked_for_batches_without_a_transaction() -> None:
    """Also in a request that names one."""

    async def scenario(world: ReplicaWorld) -> None:
        answer = world.produce_in_transaction(1, batch(1), batch(1, producer_id=9))
        await world.pass_ms(1)
        assert told(await answer) == [0, 1]
        assert not world.transactions.asked

    run_world(scenario)


@pytest.mark.parametrize("needed", [True, False])
def test_earlier_versions_are_verified_as_long_as_that_is_set(needed: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.configure(transaction_partition_verification_enable=str(needed).lower())
        answer = world.produce_in_transaction(1, written(), adds=False)
        await world.pass_ms(1)
        assert told(await answer) == [0]
        assert [one.verify_only for one in world.transactions.asked] == [True] * needed

    run_world(scenario)


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
def test_refusals_of_the_coordinator_are_told_as_clients_understand_them(
    said: ErrorCode, version_9: ErrorCode, version_11: ErrorCode, version_12: ErrorCode
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.code = said
        found = []
        for adds, knows in ((False, False), (False, True), (True, True)):
            answer = world.produce_in_transaction(1, written(), adds=adds, knows_abortable=knows)
            await world.pass_ms(1)
            found += told(await answer)
        assert found == [version_9, version_11, version_12]
        assert world.replica(1).log.log_end_offset == 0

    run_world(scenario)


def test_a_coordinator_that_nobody_finds_is_no_reason_to_give_up() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.gone = True
        answer = world.produce_in_transaction(1, written())
        await world.pass_ms(1)
        assert told(await answer) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        world.transactions.gone = False
        again = world.produce_in_transaction(1, written())
        await world.pass_ms(1)
        assert told(await again) == [0]

    run_world(scenario)


def test_a_silent_coordinator_is_given_up() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        answer = world.produce_in_transaction(1, written())
        await world.pass_ms(DEADLINE_MS + 100)
        assert told(await answer) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        world.transactions.answer()
        await world.pass_ms(1)
        assert world.replica(1).log.log_end_offset == 0

    run_world(scenario)


def test_behind_a_batch_that_was_refused_nothing_is_written() -> None:
    """Its producer is unknown here: it might begin anywhere otherwise."""

    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.code = ErrorCode.NOT_COORDINATOR
        first = world.produce_in_transaction(1, written(0, 3), adds=False)
        await world.pass_ms(1)
        assert told(await first) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        world.transactions.code = ErrorCode.NONE
        second = world.produce_in_transaction(1, written(3), adds=False)
        await world.pass_ms(1)
        assert told(await second) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        both = world.produce_in_transaction(1, written(0, 3), written(3), adds=False)
        await world.pass_ms(1)
        assert told(await both) == [0, 3]

    run_world(scenario)


def test_an_unknown_producer_of_version_2_begins_at_sequence_0() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for sequence in (5, 5, 6):
            answer = world.produce_in_transaction(1, written(sequence))
            await world.pass_ms(1)
            assert told(await answer) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        answer = world.produce_in_transaction(1, written(5), adds=False)
        await world.pass_ms(1)
        assert told(await answer) == [0], "before version 2 it may have expired"

    run_world(scenario)


def test_a_repeat_within_the_transaction_is_not_written_again() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        answer = world.produce_in_transaction(1, written(0, 2), written(0, 2))
        await world.pass_ms(1)
        world.transactions.answer()
        await world.pass_ms(1)
        later = world.produce_in_transaction(1, written(0, 2))
        await world.pass_ms(1)
        assert told(await answer) + told(await later) == [0, 0, 0]
        assert world.replica(1).log.log_end_offset == 2

    run_world(scenario)


@pytest.mark.parametrize(("version", "epoch"), [(1, 0), (1, 1), (2, 1)])
def test_a_marker_that_comes_between_voids_the_answer(version: int, epoch: int) -> None:
    """The coordinator may have told of the transaction that ends with it."""

    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        answer = world.produce_in_transaction(1, written(), written(1), adds=version == 2)
        await world.pass_ms(1)
        marked = world.write_markers(1, ended(PRODUCER, epoch, committed=False, version=version))
        await world.pass_ms(1)
        assert await marked == [[0]]
        assert told(await answer) == [ErrorCode.INVALID_TXN_STATE] * 2
        world.transactions.answer()
        await world.pass_ms(1)
        assert world.replica(1).log.producers.transaction_start(PRODUCER) == -1
        assert world.replica(1).log.log_end_offset == 1

    run_world(scenario)


def test_the_marker_of_the_transaction_before_does_not() -> None:
    """In version 2 that has the epoch of the next one, which waits for it at the coordinator."""

    async def scenario(world: ReplicaWorld) -> None:
        before = world.produce_in_transaction(1, written(0))
        await world.pass_ms(1)
        world.transactions.holding = True
        after = world.produce_in_transaction(1, written(0, epoch=1))
        await world.pass_ms(1)
        marked = world.write_markers(1, ended(PRODUCER, 1))
        await world.pass_ms(1)
        world.transactions.answer()
        await world.pass_ms(1)
        assert told(await before) + told(await after) == [0, 2]
        assert await marked == [[0]]
        assert world.replica(1).log.producers.transaction_start(PRODUCER) == 2

    run_world(scenario)


def test_markers_that_are_refused_void_nothing() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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
        assert told(await before) + told(await after) == [0, 1]

    run_world(scenario)


def test_a_newer_epoch_fences_what_waits_and_an_older_one_is_fenced() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        zombie = world.produce_in_transaction(1, written(epoch=3))
        successor = world.produce_in_transaction(1, written(epoch=4))
        late = world.produce_in_transaction(1, written(epoch=3))
        await world.pass_ms(1)
        assert told(await zombie) == told(await late) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        world.transactions.answer()
        await world.pass_ms(1)
        assert told(await successor) == [0]

    run_world(scenario)


def test_a_producer_waits_for_one_transactional_id() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        first = world.produce_in_transaction(1, written())
        other = world.produce_in_transaction(1, written(1), transactional_id="y")
        await world.pass_ms(1)
        assert told(await other) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        world.transactions.answer()
        await world.pass_ms(1)
        assert told(await first) == [0]

    run_world(scenario)


def test_only_so_many_wait() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        answers = [world.produce_in_transaction(1, written(one)) for one in range(HELD_MAX + 1)]
        await world.pass_ms(1)
        assert told(await answers[-1]) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        world.transactions.answer()
        await world.pass_ms(1)
        assert [told(await one) for one in answers[:-1]] == [[at] for at in range(HELD_MAX)]

    run_world(scenario)


def test_who_waits_is_told_that_leadership_has_moved() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.transactions.holding = True
        answers = [world.produce_in_transaction(1, written(one)) for one in range(2)]
        await world.pass_ms(1)
        await world.elect(2)
        await world.pass_ms(1)
        assert [told(await one) for one in answers] == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]] * 2
        world.transactions.answer()
        await world.pass_ms(100)
        assert world.ends() == [(0, 0)] * 3

    run_world(scenario)


def test_a_replica_that_does_not_lead_asks_nobody() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        answer = world.produce_in_transaction(2, written())
        await world.pass_ms(1)
        assert told(await answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert not world.transactions.asked

    run_world(scenario)


def test_of_several_partitions_one_may_be_unknown() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        answer = world.produce_in_transaction(1, written(), written(), partitions=(7, 0))
        await world.pass_ms(1)
        assert told(await answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]

    run_world(scenario)
