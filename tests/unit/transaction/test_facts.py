"""The facts about transactions at their coordinator, one test or more each.

Where else facts about transactions and idempotence are tested, with more cases:

| fact | tests |
|---|---|
| sequences, repeats, epochs, writes of others | actors/test_idempotence_facts |
| the client's settings | client/test_settings |
| its sequences, their wrap, lost batches | client/test_accumulator, test_producer |
| its transactions: calls, states, errors | client/test_transactional |
| records and offsets together, fencing, exactly once | conformance/test_own_transactions |
| pending offsets, markers in `__consumer_offsets` | group/test_transaction_facts |
| committed readers, aborted and control records | client/test_fetched, replica/test_markers |
| producer ids without a transactional id | gateway/test_init_producer_id |
| every state, version and epoch of EndTxn | test_ending |
| a crash between any two durable steps | test_failpoints |
| the cleaner drops aborted records | storage/test_cleaning |
| the topics of coordinators | controller/test_internal_topics |
| who coordinates what | coordination/test_placement |
| transaction.version is announced, with a rising epoch | gateway/test_cluster_descriptions |
| version-1 write to a partition not added | replica/test_transactional_writes |
| a control bit from a client | gateway/test_produce, wire_records |
| limits that are documented | docs/transactions.md |
"""

from __future__ import annotations

import pytest

from raylog.actors.config import BROKER_KEYS
from raylog.actors.coordination.placement import java_hash
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.state import State
from raylog.wire.errors import ErrorCode
from tests.support.shards import topic_records
from tests.support.transactions import (
    FIRST,
    FIRST_PRODUCER_ID,
    INIT_VERSION,
    SECOND,
    TransactionWorld,
    add,
    add_first,
    codes_of,
    end,
    init,
    offsets,
)

PID = FIRST_PRODUCER_ID
WEEK_MS = 7 * 24 * 3_600_000
MINUTES_15_MS = 15 * 60_000


def test_init_producer_id_stores_the_id_and_raises_the_epoch() -> None:
    world = TransactionWorld()
    for epoch in range(3):
        answer = world.ask(init(), INIT_VERSION)
        assert (answer.producer_id, answer.producer_epoch) == (PID, epoch)
        world.crash()
        assert world.found.holder == (PID, epoch)


@pytest.mark.parametrize("version", [FIRST, SECOND])
@pytest.mark.parametrize(("decided", "outcome"), [(None, False), (True, True), (False, False)])
def test_init_producer_id_finishes_or_aborts_what_a_predecessor_left(
    version: int, decided: bool | None, outcome: bool
) -> None:
    world = TransactionWorld()
    holder = world.open(version)
    if decided is not None:
        world.ask(end(*holder, committed=decided), version)
    assert world.ask(init(), INIT_VERSION).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = world.write_markers()
    assert markers.committed is outcome
    assert world.ask(init(), INIT_VERSION).producer_epoch > holder[1]


def test_a_second_producer_with_the_same_id_fences_the_first() -> None:
    world = TransactionWorld()
    first = world.open()
    world.ask(init(), INIT_VERSION)
    world.write_markers()
    second = world.ask(init(), INIT_VERSION)
    assert second.producer_epoch > first[1]
    assert world.ask(end(*first), SECOND).error_code == ErrorCode.PRODUCER_FENCED
    assert world.ask(add(*first)) == [ErrorCode.PRODUCER_FENCED]


def test_before_the_first_write_a_partition_is_added() -> None:
    """By the client in version 1; by the leader, for its first batch, in version 2."""
    world = TransactionWorld()
    holder = PID, world.ask(init(), INIT_VERSION).producer_epoch
    assert world.ask(add(*holder, 0, verify=True)) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert codes_of(world.ask(add_first(*holder, 0), 3)) == [0]
    assert world.ask(add(*holder, 0, verify=True)) == [0]
    assert world.ask(add(*holder, 1)) == [0]
    assert world.found.partitions == {"t": {0, 1}}


def test_add_offsets_to_txn_adds_the_groups_offsets_partition() -> None:
    world = TransactionWorld()
    world.image.apply_all(topic_records(OFFSETS_TOPIC, 50))
    holder = PID, world.ask(init(), INIT_VERSION).producer_epoch
    assert world.ask(offsets(*holder, "hello"), 4).error_code == 0
    assert world.found.partitions == {OFFSETS_TOPIC: {java_hash("hello") % 50}}


@pytest.mark.parametrize("committed", [True, False])
def test_the_decision_is_durable_first_then_come_markers_then_the_completion(
    committed: bool,
) -> None:
    prepared = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
    completed = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
    world = TransactionWorld()
    holder = world.open()
    assert not world.markers
    world.ask(end(*holder, committed=committed), SECOND)
    assert world.state() is prepared
    world.crash()
    assert world.state() is prepared, "it was in the log before it was answered"
    (markers,) = world.write_markers()
    assert markers.committed is committed
    assert world.state() is completed
    world.crash()
    assert world.state() is completed
    assert not world.markers


def test_a_completed_transaction_is_kept_for_seven_days_then_a_tombstone() -> None:
    assert BROKER_KEYS["transactional.id.expiration.ms"].default == str(WEEK_MS)
    world = TransactionWorld()
    world.ask(end(*world.open()), SECOND)
    world.write_markers()
    world.pass_ms(WEEK_MS - 1)
    assert world.state() is State.COMPLETE_COMMIT
    world.pass_ms(1)
    assert "x" not in world.shard.ids.transactions
    assert world.log[-1].value is None
    world.crash()
    assert "x" not in world.shard.ids.transactions


def test_a_transaction_timeout_above_15_minutes_is_refused() -> None:
    world = TransactionWorld()
    assert not world.ask(init(timeout_ms=MINUTES_15_MS), INIT_VERSION).error_code
    refused = world.ask(init(timeout_ms=MINUTES_15_MS + 1), INIT_VERSION)
    assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
