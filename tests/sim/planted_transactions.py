"""Mistakes about transactions that replicated logs have made, planted like those of `planted`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group.rules.offset_store import OffsetStore
from raylog.actors.group.rules.shard import Shard
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.verifying import Held, Verifying
from raylog.actors.transaction.hosting import TransactionHost
from raylog.actors.transaction.markers import MarkerSender
from raylog.actors.transaction.rules import adding, ending, starting
from raylog.actors.transaction.rules.ids import Ids
from raylog.actors.transaction.rules.shard import TransactionShard
from raylog.actors.transaction.rules.state import Transaction
from raylog.actors.transaction.rules.step import TransactionStep
from raylog.storage.producers import ProducerStates
from raylog.wire.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
)
from raylog.wire.records import BatchHeader
from tests.sim.planting import Plant, plants_into, replace

TRANSACTION_PLANTS: dict[str, Plant] = {}


plant = plants_into(TRANSACTION_PLANTS)


# ---- the coordinator -------------------------------------------------------------------------


@plant
def ends_whatever_the_epoch(stack: ExitStack) -> None:
    """EndTxn is not fenced by its epoch, so a late one ends the next transaction."""
    replace(stack, ending, "_check_holder", lambda *_, **__: None)


@plant
def sends_markers_too_early(stack: ExitStack) -> None:
    """Markers are sent before the decision is durable."""

    def mistaken(host: TransactionHost, step: TransactionStep) -> None:
        if step.coordinator_epoch is not None:
            host.coordinator_epoch = step.coordinator_epoch
        for markers in step.markers:
            host._sender.send(host, markers)

    replace(stack, TransactionHost, "_stepped", mistaken)


@plant
def forgets_what_it_decided(stack: ExitStack) -> None:
    """A loading coordinator does not complete what its predecessor had decided."""
    replace(stack, TransactionShard, "loaded", lambda *_: None)


@plant
def one_marker_is_enough(stack: ExitStack) -> None:
    """A transaction is complete when one of its partitions has the marker."""
    settled = MarkerSender._settled

    def mistaken(sender: MarkerSender, piece: Any) -> None:
        if piece.sending.left:
            piece.sending.left.clear()
            settled(sender, piece)

    replace(stack, MarkerSender, "_settled", mistaken)


@plant
def repeats_markers_as_they_were(stack: ExitStack) -> None:
    """A marker without an answer is repeated with the same coordinator epoch."""

    def mistaken(sender: MarkerSender, piece: Any) -> None:
        sender._unanswered.discard(piece)
        if not piece.sending.dropped:
            sender._again(piece)

    replace(stack, MarkerSender, "_uncertain", mistaken)


@plant
def successors_use_the_same_coordinator_epoch(stack: ExitStack) -> None:
    """A loading coordinator sends markers with the coordinator epoch in the log."""
    send = Ids.send_markers

    def mistaken(ids: Ids, step: TransactionStep, decided: Any) -> None:
        if not ids._epoch_is_own and ids.coordinator_epoch >= 0:
            ids._epoch_is_own = True
            step.coordinator_epoch = ids.coordinator_epoch
        send(ids, step, decided)

    replace(stack, Ids, "send_markers", mistaken)


@plant
def never_aborts_by_itself(stack: ExitStack) -> None:
    """Transactions have no timeout."""
    replace(stack, TransactionShard, "abort_timed_out", lambda *_: None)


@plant
def instances_share_an_epoch(stack: ExitStack) -> None:
    """InitProducerId fences nobody."""
    replace(stack, starting, "_next", lambda _ids, _request, found: found)


@plant
def answers_before_it_is_durable(stack: ExitStack) -> None:
    """EndTxn is answered when it is decided, not when the decision is durable."""
    replace(stack, TransactionStep, "answer", Step.answer_now)


# ---- haste -----------------------------------------------------------------------------------


@plant
def fences_early_end_txn(stack: ExitStack) -> None:
    """An EndTxn 5 that arrives while markers are being written is refused for good."""

    def mistaken(found: Transaction) -> KafkaError:
        return ProducerFenced(f"{found.transactional_id!r} is being completed")

    replace(stack, ending, "completing", mistaken)


@plant
def opens_while_markers_are_written(stack: ExitStack) -> None:
    """Partitions are added to a transaction while the previous one is being completed."""
    held = Ids.held

    def mistaken(ids: Ids, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        try:
            return held(ids, transactional_id, producer_id, epoch)
        except ConcurrentTransactions:
            return ids.find(transactional_id)

    replace(stack, Ids, "held", mistaken)
    replace(stack, adding, "PREPARED", frozenset())


@plant
def forgets_to_stop_waiting(stack: ExitStack) -> None:
    """A request that waited in vain for the end of a transaction is answered twice."""

    def mistaken(ids: Ids, transactional_id: str, asked: Any) -> bool:
        return asked in ids._parked.get(transactional_id, [])

    replace(stack, Ids, "unpark", mistaken)


# ---- leaders ---------------------------------------------------------------------------------


@plant
def takes_markers_of_older_coordinators(stack: ExitStack) -> None:
    """A marker may have a lower coordinator epoch than the previous one."""

    def mistaken(states: ProducerStates, header: BatchHeader, coordinator_epoch: int) -> None:
        if header.producer_epoch < states.epoch_of(header.producer_id):
            raise InvalidProducerEpoch("older")

    replace(stack, ProducerStates, "check_marker", mistaken)


@plant
def stable_is_what_is_replicated(stack: ExitStack) -> None:
    """The last stable offset passes open transactions."""
    replace(stack, ProducerStates, "last_stable_offset", lambda _, high_watermark: high_watermark)


@plant
def markers_count_before_they_are_replicated(stack: ExitStack) -> None:
    """A transaction is stable when its marker is in the leader's log."""
    end = ProducerStates.end_transaction

    def mistaken(states: ProducerStates, *args: Any, **named: Any) -> Any:
        aborted = end(states, *args, **named)
        states._ended.clear()
        return aborted

    replace(stack, ProducerStates, "end_transaction", mistaken)


@plant
def takes_late_writes(stack: ExitStack) -> None:
    """Leaders do not check that the transaction of a write is open."""
    must_ask = Verifying._must_ask

    def mistaken(verifying: Verifying, partition: Partition, header: Any, held: Held) -> bool:
        return held.transaction.adds and must_ask(verifying, partition, header, held)

    replace(stack, Verifying, "_must_ask", mistaken)


@plant
def does_not_tell_who_aborted(stack: ExitStack) -> None:
    """Readers of committed records are not told about aborted transactions."""
    read = Partition._read

    def mistaken(partition: Partition, *asked: Any) -> Any:
        return read(partition, *asked)._replace(aborted=[])

    replace(stack, Partition, "_read", mistaken)


# ---- offsets of groups -----------------------------------------------------------------------


@plant
def offsets_count_at_once(stack: ExitStack) -> None:
    """Offsets of a transaction count as soon as they are written."""
    replace(stack, Shard, "replay_in", lambda shard, _request: shard.replay)


@plant
def offsets_outlive_an_abort(stack: ExitStack) -> None:
    """Offsets of an aborted transaction count."""
    end = OffsetStore.end_transaction

    def mistaken(store: OffsetStore, producer_id: int, before: int, *, committed: bool) -> None:
        end(store, producer_id, before, committed=True)

    replace(stack, OffsetStore, "end_transaction", mistaken)
