"""What a transactional producer may do next, and what an error leaves of it: no I/O (KIP-98).

| from | what happens | to |
|---|---|---|
| NEW, INITIALIZING | `begin_initializing` | INITIALIZING |
| INITIALIZING | `initialized` | READY |
| READY | `begin` | OPEN |
| OPEN, COMMITTING | `begin_end` of a commit | COMMITTING |
| OPEN, BROKEN, ABORTING | `begin_end` of an abort | ABORTING |
| COMMITTING, ABORTING | `ended` | READY |
| OPEN, COMMITTING | `broken`: what cannot be committed any more | BROKEN |
| any | `ruined`: another producer has the transactional id, or worse | UNUSABLE |

An end whose answer did not come in time stays as it is: the same call goes on with it, no other
may be made. The rules are those of Apache Kafka's producer.
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
from raylog.wire.errors import ErrorCode, KafkaError


class Phase(Enum):
    """Where a transactional producer stands; the values are told to people."""

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
"""Refusals of a batch that end the producer. INVALID_PRODUCER_EPOCH is none: aborting tells."""
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
"""Refusals by coordinators that the next transaction need not meet; all others are for good."""


@dataclass(slots=True)
class TransactionState:
    """One producer's phase, and what its open transaction consists of."""

    phase: Phase = Phase.NEW
    error: Exception | None = None
    """Why the transaction is BROKEN or the producer UNUSABLE."""
    is_started: bool = False
    """Whether a broker may know of the open transaction: it has an end then."""
    partitions: set[TopicPartition] = field(default_factory=set)
    """What was added to the open transaction, where the producer has to (version 1)."""

    @property
    def gives_up(self) -> Exception | None:
        """Why records that were not sent yet never will be; None while they may."""
        if self.phase is Phase.ABORTING and self.error is None:
            return ClientError("the transaction was aborted")
        return self.error

    @property
    def can_abort(self) -> bool:
        """Whether there is a transaction without an end, or with an abort that is not over."""
        return self.phase in (Phase.OPEN, Phase.BROKEN, Phase.ABORTING)

    # -- calls ---------------------------------------------------------------------------------

    def begin_initializing(self) -> None:
        """The producer is to have its identity."""
        self._require("init_transactions", Phase.NEW, Phase.INITIALIZING)
        self.phase = Phase.INITIALIZING

    def initialized(self) -> None:
        """It has it."""
        self.phase = Phase.READY

    def begin(self) -> None:
        """A transaction begins."""
        self._require("begin_transaction", Phase.READY)
        self.phase = Phase.OPEN

    def require_open(self, call: str) -> None:
        """Raise unless records and offsets may become part of a transaction."""
        if self.phase is not Phase.OPEN:
            self._require(call, Phase.OPEN)

    def begin_end(self, *, commit: bool) -> None:
        """The transaction is to end; nothing more becomes part of it."""
        if commit:
            self._require("commit_transaction", Phase.OPEN, Phase.COMMITTING)
            self.phase = Phase.COMMITTING
        else:
            self._require("abort_transaction", Phase.OPEN, Phase.BROKEN, Phase.ABORTING)
            self.phase = Phase.ABORTING

    def ended(self) -> None:
        """The transaction has its end."""
        self.phase = Phase.READY
        self.error = None
        self.is_started = False
        self.partitions.clear()

    def check(self) -> None:
        """Raise AbortRequired or ProducerUnusable where an error left nothing else."""
        if self.phase is Phase.UNUSABLE:
            raise ProducerUnusable(f"close this producer: {self.error}") from self.error
        if self.phase is Phase.BROKEN:
            raise AbortRequired(f"call abort_transaction: {self.error}") from self.error

    # -- errors --------------------------------------------------------------------------------

    def batch_failed(self, error: Exception) -> None:
        """Records of the transaction were given up."""
        code = error.code if isinstance(error, KafkaError) else None
        if isinstance(error, NotSupported) or code in _RUINOUS_OF_BATCHES:
            self.ruined(error)
        else:
            self.broken(error)

    def refused(self, error: KafkaError) -> None:
        """A coordinator refused what is no use to repeat."""
        if error.code in _BREAKING:
            self.broken(error)
        else:
            self.ruined(error)

    def broken(self, error: Exception) -> None:
        """The transaction cannot be committed; of an abort the last error says how to go on."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self.phase, self.error = Phase.BROKEN, error
        elif self.phase is Phase.ABORTING:
            self.error = error

    def ruined(self, error: Exception) -> None:
        """The producer is of no more use."""
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
