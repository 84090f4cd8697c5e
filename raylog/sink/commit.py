"""One micro-batch as one transaction: decides what the sink's driver does next.

| effect | on success | notes |
|---|---|---|
| `CheckRegistration` | `TakeIdentity`, or `Register` for a new sink | the first effect |
| `Register` | `TakeIdentity` | from now on, a missing state is a lost one |
| `TakeIdentity` | `ReadState` | fences earlier writers and ends their transaction |
| `ReadState` | `Finished` if the batch is written, else `Write` | only committed state counts |
| `Write` | `Compare`, or `WriteState` if no row was written | the tasks write |
| `Compare` | `WriteState` | compares the leaders' last sequences with those of the tasks |
| `WriteState` | `AddOffsets`, `CommitOffsets` | the batch's mark, and the offsets it has read |
| `AddOffsets` | `CommitOffsets` | transaction version 1 only |
| `CommitOffsets` | `End` | for tools that show lag; some errors are ignored |
| `End` | `Finished` | |

After a lost answer or a retriable error, the same effect is repeated unchanged, after a pause. An
EndTxn without an answer never counts as aborted. An error that means "not committed" (`_FENCED`), a
failed write, or inconsistent task reports lead back to `TakeIdentity`, and from there to
`ReadState`, which shows whether the batch is written. So nothing depends on the driver's memory.
Under transaction version 2, the next batch starts with the identity that the last EndTxn returned
and the state that it committed: if another driver has fenced it since, every later request fails.
`continuity` decides what a state means for a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from raylog.client.cluster import TopicPartition
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.retries import MEMBERSHIP_ENDED, backoff_ms
from raylog.client.transactions import Protocol
from raylog.sink.batches import Batch as Batch
from raylog.sink.batches import BatchFailed as BatchFailed
from raylog.sink.batches import SourceMismatch as SourceMismatch
from raylog.sink.batches import StateLost as StateLost
from raylog.sink.continuity import is_written
from raylog.sink.state import SinkState
from raylog.wire.errors import ErrorCode

TIMEOUT_MS_MAX = 900_000
"""The brokers' default `transaction.max.timeout.ms`."""
_PAUSE_MS = 20
_PAUSE_MS_MAX = 1_000
_FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Errors after which this driver has not committed the transaction."""
_PASSED_OVER = frozenset(
    {
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
"""Errors of AddOffsets and CommitOffsets that are ignored: nothing relies on these offsets."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task wrote to its partition."""

    partition: TopicPartition
    count: int
    last_sequence: int
    """-1: nothing was written."""
    failure: str | None = None
    is_final: bool = False
    """Whether the same rows would fail again."""


# -- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckRegistration:
    """Create or check the state topic; look for the sink there and at the coordinator."""


@dataclass(frozen=True, slots=True)
class Register:
    """Write the sink's registration to the state topic, outside of any transaction."""


@dataclass(frozen=True, slots=True)
class TakeIdentity:
    """Send InitProducerId."""

    timeout_ms: int
    """The transaction timeout."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state topic to its end, and the group's offsets with require_stable."""


@dataclass(frozen=True, slots=True)
class Write:
    """Have the tasks write under this identity, which no other run of the batch gets."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Compare:
    """Send DescribeProducers for these partitions."""

    identity: ProducerIdentity
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class WriteState:
    """Produce the state that holds after the transaction."""

    identity: ProducerIdentity
    state: SinkState


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """Send AddOffsetsToTxn."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Send TxnOffsetCommit."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class End:
    """Send EndTxn to commit."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Finished:
    """The batch is written, by this run or before."""

    is_new: bool
    identity: ProducerIdentity | None
    """For the next batch; None: take a new one."""
    state: SinkState
    """What the sink has written so far."""


Effect = (
    CheckRegistration
    | Register
    | TakeIdentity
    | ReadState
    | Write
    | Compare
    | WriteState
    | AddOffsets
    | CommitOffsets
    | End
    | Finished
)

# -- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegistrationChecked:
    """The lookup of the sink's registration succeeded."""

    is_new: bool
    """Whether neither the state topic nor the coordinator has the sink."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The registration is written."""


@dataclass(frozen=True, slots=True)
class Identified:
    """InitProducerId was answered."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class StateRead:
    """The sink's state was read."""

    state: SinkState


@dataclass(frozen=True, slots=True)
class Written:
    """All tasks have reported."""

    reports: Sequence[TaskReport]


@dataclass(frozen=True, slots=True)
class WriteLost:
    """Not all tasks have reported, and some may still run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Compared:
    """DescribeProducers was answered: the last sequence under our identity, by partition."""

    last_sequences: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StateWritten:
    """The state is written, or its write has failed."""

    report: TaskReport


@dataclass(frozen=True, slots=True)
class OffsetsAdded:
    """AddOffsetsToTxn was answered."""


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """TxnOffsetCommit was answered."""


@dataclass(frozen=True, slots=True)
class Ended:
    """EndTxn was answered with the identity to continue with."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker returned an error."""

    code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class AnswerLost:
    """It is unknown whether the request took effect."""

    reason: str


Event = (
    RegistrationChecked
    | Registered
    | Identified
    | StateRead
    | Written
    | WriteLost
    | Compared
    | StateWritten
    | OffsetsAdded
    | OffsetsCommitted
    | Ended
    | Refused
    | AnswerLost
)


@dataclass(frozen=True, slots=True)
class Next:
    """The next effect, after a pause."""

    effect: Effect
    pause_ms: int = 0


# -- the machine ----------------------------------------------------------------------------------


@dataclass(slots=True)
class BatchMachine:
    """Writes one batch. For the transitions, see the table in the module's docstring."""

    batch: Batch
    protocol: Protocol
    identity: ProducerIdentity | None = None
    """From the end of the previous batch."""
    state: SinkState | None = None
    """From the end of the previous batch."""
    is_registered: bool = False
    """Whether the sink is known to be registered."""
    timeout_ms: int = 60_000
    """The transaction timeout; doubled when a write took longer."""
    runs_max: int = 5
    patience_ms: int = 120_000
    """How long one effect is retried."""
    runs: int = 0
    _effect: Effect = field(default_factory=ReadState)
    _since_ms: int = 0
    _retries: int = 0
    """Retries of the current effect."""
    _reports: Sequence[TaskReport] = ()
    _timeout_ms_asked: int = 0
    """The original `timeout_ms`."""

    def start(self, now_ms: int) -> Next:
        """Return the first effect; raise SourceMismatch or StateLost."""
        self._timeout_ms_asked = self.timeout_ms
        if not self.is_registered:
            return self._next(CheckRegistration(), now_ms)
        if self.identity is None or self.state is None or not self.protocol.keeps_identity:
            return self._next(TakeIdentity(self.timeout_ms), now_ms)
        return self._next(self._decide(self.state), now_ms)

    def handle(self, event: Event, now_ms: int) -> Next:
        """Return the next effect; raise BatchFailed."""
        match event:
            case Refused(code, reason):
                return self._refused(code, reason, now_ms)
            case AnswerLost(reason):
                return self._again(reason, now_ms)
            case WriteLost(reason):
                return self._run_again(reason, now_ms)
            case Written(reports):
                return self._written(reports, now_ms)
            case Compared(last_sequences):
                return self._compared(last_sequences, now_ms)
            case StateWritten(report) if report.failure is not None:
                return self._failed(report, report.failure, now_ms)
            case _:
                return self._next(self._after(event), now_ms)

    def _after(
        self,
        event: RegistrationChecked
        | Registered
        | Identified
        | StateRead
        | StateWritten
        | OffsetsAdded
        | OffsetsCommitted
        | Ended,
    ) -> Effect:
        """Return what follows a success."""
        match event:
            case RegistrationChecked(is_new=True):
                return Register()
            case RegistrationChecked() | Registered():
                self.is_registered = True
                return TakeIdentity(self.timeout_ms)
            case Identified(identity):
                self.identity = identity
                return ReadState()
            case StateRead(state):
                return self._decide(state)
            case StateWritten():
                return AddOffsets(self._held) if self.protocol.registers else self._commit()
            case OffsetsAdded():
                return self._commit()
            case OffsetsCommitted():
                return End(self._held)
            case Ended(identity):
                kept = identity if self.protocol.keeps_identity else None
                return Finished(True, kept, self._state_after())
            case _:
                assert_never(event)

    @property
    def _held(self) -> ProducerIdentity:
        assert self.identity is not None, "an identity is taken before anything is written"
        return self.identity

    def _commit(self) -> Effect:
        return CommitOffsets(self._held)

    def _state_after(self) -> SinkState:
        assert self.state is not None, "the state is read before anything is written"
        return self.state.after(self.batch)

    def _decide(self, state: SinkState) -> Effect:
        """Skip a batch that is written; raise SourceMismatch or StateLost."""
        self.state = state
        if is_written(state, self.batch):
            return Finished(False, self._held if self.protocol.keeps_identity else None, state)
        return Write(self._held)

    def _written(self, reports: Sequence[TaskReport], now_ms: int) -> Next:
        """Check the tasks' reports: each partition exactly once, without gaps in its sequence."""
        for report in reports:
            if report.failure is not None:
                return self._failed(report, report.failure, now_ms)
        found = sorted(report.partition for report in reports)
        if found != sorted(self.batch.partitions):
            return self._run_again(f"tasks report {len(found)} partitions, not each once", now_ms)
        for report in reports:
            if report.last_sequence != report.count - 1:
                return self._run_again(
                    f"{report.partition}: {report.count} rows, "
                    f"but last sequence {report.last_sequence}",
                    now_ms,
                )
        self._reports = [report for report in reports if report.count]
        written = [report.partition for report in self._reports]
        return self._next(Compare(self._held, written) if written else self._note(), now_ms)

    def _failed(self, report: TaskReport, failure: str, now_ms: int) -> Next:
        """Handle a writer's failure: final, or only under this identity."""
        text = f"{report.partition}: {failure}"
        if report.is_final:
            raise BatchFailed(text)
        return self._run_again(text, now_ms)

    def _compared(self, last_sequences: Mapping[TopicPartition, int], now_ms: int) -> Next:
        """Check the leaders' sequences: no other writer used our identity."""
        for report in self._reports:
            found = last_sequences.get(report.partition)
            if found != report.last_sequence:
                return self._run_again(
                    f"{report.partition}: the task's last sequence is {report.last_sequence}, "
                    f"the leader's {found}",
                    now_ms,
                )
        return self._next(self._note(), now_ms)

    def _note(self) -> Effect:
        return WriteState(self._held, self._state_after())

    def _refused(self, code: ErrorCode, reason: str, now_ms: int) -> Next:
        """Handle an error: retry, run the batch again, or fail it."""
        text = f"{type(self._effect).__name__}: {code.name} {reason}"
        if code in _FENCED and not isinstance(self._effect, TakeIdentity):
            return self._run_again(text, now_ms)
        if code in _PASSED_OVER and isinstance(self._effect, AddOffsets | CommitOffsets):
            return self._next(End(self._held), now_ms)
        if code.retriable:
            return self._again(text, now_ms)
        if code in MEMBERSHIP_ENDED:
            text += "; a sink's group is its own and has no members"
        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            if self.timeout_ms > self._timeout_ms_asked:  # longer than the broker allows
                self.timeout_ms = self._timeout_ms_asked
                return self._next(TakeIdentity(self.timeout_ms), now_ms)
            text += f"; {self.timeout_ms} ms is above the broker's transaction.max.timeout.ms"
        raise BatchFailed(text)

    def _again(self, reason: str, now_ms: int) -> Next:
        """Repeat the effect unchanged."""
        if now_ms - self._since_ms >= self.patience_ms:
            raise BatchFailed(f"{reason} (repeated for {self.patience_ms} ms)")
        self._retries += 1
        return Next(self._effect, int(backoff_ms(_PAUSE_MS, _PAUSE_MS_MAX, self._retries - 1)))

    def _run_again(self, reason: str, now_ms: int) -> Next:
        """Run the whole batch again, under an identity that fences this run's tasks."""
        if isinstance(self._effect, Write) and now_ms - self._since_ms >= self.timeout_ms:
            self.timeout_ms = max(self.timeout_ms, min(2 * self.timeout_ms, TIMEOUT_MS_MAX))
        if self.runs >= self.runs_max:
            raise BatchFailed(f"{reason} (run {self.runs} of {self.runs_max})")
        self.identity = None
        return self._next(TakeIdentity(self.timeout_ms), now_ms)

    def _next(self, effect: Effect, now_ms: int) -> Next:
        """Switch to another effect."""
        self.runs += isinstance(effect, Write)
        self._effect, self._since_ms, self._retries = effect, now_ms, 0
        return Next(effect)
