"""The state of one transactional id, and its format in `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from raylog.wire.internal.transactions import PartitionsSchema, TransactionLogValue

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32_767
"""Never assigned to a producer, so that the coordinator can always raise the epoch to fence it."""
LAST_EPOCH = EPOCH_MAX - 1
"""The last epoch that a producer gets; after it the producer gets another id."""
NO_TIME = -1
NEVER_MS = 2**31 - 1
"""The timeout of a transaction whose outcome an external coordinator decides (KIP-939)."""
FIRST_VERSION = 0
OWN_EPOCHS = 2
"""The transaction version in which each transaction has its own epoch (KIP-890)."""
Partitions = Mapping[str, frozenset[int]]
"""By topic."""


class State(IntEnum):
    """State of a transactional id, with the numbers of its records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Never stored: it is a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """Never stored: fencing a producer stores PREPARE_ABORT at once."""

    @property
    def label(self) -> str:
        """The name that clients and tools use."""
        return "".join(word.capitalize() for word in self.name.split("_"))


LABELS = {state.label: state for state in State}
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided, and markers are being written."""
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
"""The states that may precede each state. An id without a transaction can be aborted (KIP-890)."""


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
    """While PREPARED, the epoch of the markers."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The previous producer id, by which a retry is recognized (KIP-890)."""
    next_producer_id: int = NO_PRODUCER_ID
    """While PREPARED, the producer's next id if it changes.

    While ONGOING, the id that may end a prepared transaction that was kept (KIP-939).
    """
    next_producer_epoch: int = NO_EPOCH
    """The epoch of that id; NO_EPOCH means 0."""
    timeout_ms: int = 0
    partitions: Partitions = field(default_factory=dict)
    start_ms: int = NO_TIME
    last_update_ms: int = NO_TIME
    client_version: int = FIRST_VERSION
    """The producer's transaction version."""
    last_producer_epoch: int = NO_EPOCH
    """The previous epoch, if the same producer had it. Not stored: after a failover, a retry of
    InitProducerId is fenced, as in Kafka."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer has the last epoch of its id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether a prepared transaction waits for an external decision (KIP-939)."""
        return self.state is State.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def holder(self) -> tuple[int, int]:
        """The producer id and epoch that may end the transaction."""
        if self.is_kept:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def after(self) -> tuple[int, int]:
        """The producer id and epoch once the transaction is complete."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, max(self.next_producer_epoch, 0)

    def has(self, topic: str, partition: int) -> bool:
        """Whether a partition belongs to the open transaction."""
        return partition in self.partitions.get(topic, ())

    def with_partitions(self, added: Iterable[tuple[str, Iterable[int]]]) -> Partitions:
        """Return the partitions together with the added ones."""
        merged = dict(self.partitions)
        for topic, partitions in added:
            merged[topic] = merged.get(topic, frozenset()) | frozenset(partitions)
        return merged

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether it has exceeded its timeout."""
        return (
            self.state is State.ONGOING
            and self.timeout_ms != NEVER_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def to_value(self, version: int) -> TransactionLogValue:
        """Build the record; version 0 lacks the fields of KIP-890."""
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
    """Parse a record."""
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
