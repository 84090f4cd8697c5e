"""What is known of one transactional id, and how that is kept in `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from raylog.wire.internal.transactions import PartitionsSchema, TransactionLogValue

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32_767
"""Never given to a producer: the coordinator can always raise the epoch once more to fence it."""
LAST_EPOCH = EPOCH_MAX - 1
"""The last that a producer gets; then it is given another id."""
NO_TIME = -1
NEVER_MS = 2**31 - 1
"""The timeout of a transaction that somebody else decides about (KIP-939)."""
FIRST_VERSION = 0
OWN_EPOCHS = 2
"""The transaction version since which each transaction has an epoch of its own (KIP-890)."""
Partitions = Mapping[str, frozenset[int]]
"""By topic."""


class State(IntEnum):
    """Where a transactional id stands, by the numbers that its records carry."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Never stored: a tombstone stands for it."""
    PREPARE_EPOCH_FENCE = 7
    """Never stored: fencing a producer stores PREPARE_ABORT at once."""

    @property
    def label(self) -> str:
        """As clients and tools name it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


LABELS = {state.label: state for state in State}
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""Decided, while markers are being written."""
RESTING = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open."""
COMES_FROM = {
    State.EMPTY: RESTING,
    State.ONGOING: RESTING | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: RESTING | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
}
"""Which state may follow which. An id without a transaction can be aborted (KIP-890)."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id.

    | from                   | to                  | on                                        |
    |------------------------|---------------------|-------------------------------------------|
    | nothing, resting       | EMPTY               | InitProducerId                            |
    | resting, ONGOING       | ONGOING             | partitions or a group's offsets are added |
    | ONGOING                | PREPARE_COMMIT      | EndTxn                                    |
    | ONGOING                | PREPARE_ABORT       | EndTxn, InitProducerId, timeout           |
    | resting                | PREPARE_ABORT       | EndTxn that aborts, version 2             |
    | PREPARE_COMMIT, _ABORT | COMPLETE_…          | all markers are written                   |
    | resting                | nothing (tombstone) | transactional.id.expiration.ms            |

    Resting are EMPTY, COMPLETE_COMMIT and COMPLETE_ABORT.
    """

    transactional_id: str
    state: State = State.EMPTY
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    """While PREPARED, the one that the markers carry."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change: by it a retry is known (KIP-890)."""
    next_producer_id: int = NO_PRODUCER_ID
    """While PREPARED, the producer's id afterwards, if it is another.

    While ONGOING, of a prepared transaction that was kept, the id of whoever may end it (KIP-939).
    """
    next_producer_epoch: int = NO_EPOCH
    """Goes with it; NO_EPOCH: 0."""
    timeout_ms: int = 0
    partitions: Partitions = field(default_factory=dict)
    start_ms: int = NO_TIME
    last_update_ms: int = NO_TIME
    client_version: int = FIRST_VERSION
    """Transaction version that the producer works by."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before, if the same producer had it. Not stored: a retry of InitProducerId after
    another coordinator has taken over is fenced, as in Kafka."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer has the last epoch of its id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether a prepared transaction waits for somebody else's decision (KIP-939)."""
        return self.state is State.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def holder(self) -> tuple[int, int]:
        """Producer id and epoch of whom the coordinator listens to."""
        if self.is_kept:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def after(self) -> tuple[int, int]:
        """Producer id and epoch once the transaction is complete."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, max(self.next_producer_epoch, 0)

    def has(self, topic: str, partition: int) -> bool:
        """Whether a partition belongs to the open transaction."""
        return partition in self.partitions.get(topic, ())

    def with_partitions(self, added: Iterable[tuple[str, Iterable[int]]]) -> Partitions:
        """The partitions with more."""
        merged = dict(self.partitions)
        for topic, partitions in added:
            merged[topic] = merged.get(topic, frozenset()) | frozenset(partitions)
        return merged

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether it is to be aborted."""
        return (
            self.state is State.ONGOING
            and self.timeout_ms != NEVER_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def to_value(self, version: int) -> TransactionLogValue:
        """As it is stored; version 0 has no place for what KIP-890 needs."""
        partitions = None
        if self.state is not State.EMPTY:
            partitions = [
                PartitionsSchema(topic=topic, partition_ids=sorted(found))
                for topic, found in self.partitions.items()
            ]
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
        )
        if version:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.next_producer_epoch = self.next_producer_epoch
            value.client_transaction_version = self.client_version
        return value


def from_value(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """What a record says."""
    return Transaction(
        transactional_id=transactional_id,
        state=State(value.transaction_status),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        partitions={
            found.topic: frozenset(found.partition_ids)
            for found in value.transaction_partitions or ()
        },
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
