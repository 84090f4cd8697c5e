"""The state of a transactional producer: allowed calls, and the effect of errors (KIP-98).

| from | event | to |
|---|---|---|
| NEW, INITIALIZING | `begin_initializing` | INITIALIZING |
| INITIALIZING | `initialized` | READY |
| READY | `begin` | OPEN |
| OPEN, COMMITTING | `begin_end` of a commit | COMMITTING |
| OPEN, BROKEN, ABORTING | `begin_end` of an abort | ABORTING |
| COMMITTING, ABORTING | `ended` | READY |
| OPEN, COMMITTING | `broken`: the transaction can only be aborted | BROKEN |
| any | `ruined`: for example, another producer has taken the transactional id over | UNUSABLE |

If the answer to a commit or abort does not come in time, repeat the same call to continue; any
other call is refused. The rules are those of Apache Kafka's producer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from raylog.client.cluster import TopicPartition
from raylog.client.errors import (
    AbortRequired,
    ClientError,
    NotSupported,
    ProducerUnusable,
    WrongTransactionState,
)
from raylog.client.retries import code_of
from raylog.wire.errors import ErrorCode, KafkaError


class Phase(Enum):
    """The phase of a transactional producer; the values are for error texts."""

    NEW = "not initialized"
    INITIALIZING = "being initialized: call init_transactions again"
    READY = "outside a transaction"
    OPEN = "in a transaction"
    COMMITTING = "committing: call commit_transaction again"
    ABORTING = "aborting: call abort_transaction again"
    BROKEN = "in a transaction that must be aborted"
    UNUSABLE = "unusable"


_RUINOUS_OF_BATCHES = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Batch errors that end the producer. After INVALID_PRODUCER_EPOCH, the abort will decide."""
_BREAKING = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Coordinator errors that end only the transaction; all others end the producer."""


@dataclass(slots=True)
class TransactionState:
    """One producer's phase, and the contents of its open transaction."""

    phase: Phase = Phase.NEW
    error: Exception | None = None
    """Why the transaction is BROKEN or the producer UNUSABLE."""
    is_started: bool = False
    """Whether a broker may know about the open transaction, so that it must be ended there."""
    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions added to the open transaction (version 1)."""

    @property
    def gives_up(self) -> Exception | None:
        """Why unsent records will never be sent; None if they may be."""
        if self.phase is Phase.ABORTING and self.error is None:
            return ClientError("the transaction was aborted")
        return self.error

    @property
    def can_abort(self) -> bool:
        """Whether there is a transaction to abort, or an abort to continue."""
        return self.phase in (Phase.OPEN, Phase.BROKEN, Phase.ABORTING)

    # -- calls ---------------------------------------------------------------------------------

    def begin_initializing(self) -> None:
        """Start initializing the producer."""
        self._require("init_transactions", Phase.NEW, Phase.INITIALIZING)
        self.phase = Phase.INITIALIZING

    def initialized(self) -> None:
        """Record that the producer has its identity."""
        self.phase = Phase.READY

    def begin(self) -> None:
        """Begin a transaction."""
        self._require("begin_transaction", Phase.READY)
        self.phase = Phase.OPEN

    def require_open(self, call: str) -> None:
        """Raise unless records and offsets can be added to a transaction."""
        if self.phase is not Phase.OPEN:
            self._require(call, Phase.OPEN)

    def begin_end(self, *, commit: bool) -> None:
        """Start ending the transaction; nothing more can be added to it."""
        if commit:
            self._require("commit_transaction", Phase.OPEN, Phase.COMMITTING)
            self.phase = Phase.COMMITTING
        else:
            self._require("abort_transaction", Phase.OPEN, Phase.BROKEN, Phase.ABORTING)
            self.phase = Phase.ABORTING

    def ended(self) -> None:
        """Record that the transaction has ended."""
        self.phase = Phase.READY
        self.error = None
        self.is_started = False
        self.partitions.clear()

    def check(self) -> None:
        """Raise AbortRequired or ProducerUnusable after an error that requires it."""
        if self.phase is Phase.UNUSABLE:
            raise ProducerUnusable(f"close this producer: {self.error}") from self.error
        if self.phase is Phase.BROKEN:
            raise AbortRequired(f"call abort_transaction: {self.error}") from self.error

    # -- errors --------------------------------------------------------------------------------

    def batch_failed(self, error: Exception) -> None:
        """Handle records of the transaction that were given up."""
        if isinstance(error, NotSupported) or code_of(error) in _RUINOUS_OF_BATCHES:
            self.ruined(error)
        else:
            self.broken(error)

    def refused(self, error: KafkaError) -> None:
        """Handle a coordinator's error that is not retriable."""
        if error.code in _BREAKING:
            self.broken(error)
        else:
            self.ruined(error)

    def broken(self, error: Exception) -> None:
        """Record that the transaction cannot be committed; during an abort, keep the last error."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self.phase, self.error = Phase.BROKEN, error
        elif self.phase is Phase.ABORTING:
            self.error = error

    def ruined(self, error: Exception) -> None:
        """Record that the producer can only be closed."""
        if self.phase is not Phase.UNUSABLE:
            self.phase, self.error = Phase.UNUSABLE, error

    def _require(self, call: str, *phases: Phase) -> None:
        if self.phase in phases:
            return
        self.check()
        expected = " or ".join(phase.name for phase in phases)
        raise WrongTransactionState(
            f"{call}: expected a producer that is {expected}, found one that is {self.phase.value}"
        )
