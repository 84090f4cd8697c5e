"""One micro-batch as one transaction: what the sink's driver does next, without I/O or Spark.

| effect | on success | |
|---|---|---|
| `CheckRegistration` | `TakeIdentity`, or `Register` if nobody knows the sink | a driver's first |
| `Register` | `TakeIdentity` | from now on a missing state is a lost one |
| `TakeIdentity` | `ReadState` | fences whoever wrote before and ends what they left open |
| `ReadState` | `Finished` if it says so, else `Write` | only what is committed counts |
| `Write` | `Compare`, or `WriteState` if no row was written | the tasks write |
| `Compare` | `WriteState` | the leaders' last sequences against those of the tasks |
| `WriteState` | `AddOffsets`, `CommitOffsets` | which batch it was, and up to where it has read |
| `AddOffsets` | `CommitOffsets` | transaction version 1 only |
| `CommitOffsets` | `End` | for those who watch lag; some refusals are passed over |
| `End` | `Finished` | |

A lost answer or a refusal for now repeats the same effect as it was, after a pause; that an EndTxn
without an answer has aborted is never concluded. A refusal that says "not committed" (`_FENCED`), a
write that failed and tasks that do not agree lead back to `TakeIdentity`, and from there to
`ReadState`, which knows whether the batch is written. So nothing depends on what the driver
remembers. Under transaction version 2 the next batch begins with the identity that the last EndTxn
told and the state that it has committed: were it fenced since, every later request would be
refused. `continuity` decides what a state means for a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from raylog.client.cluster import TopicPartition
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.raydp_jobs.batches import Batch as Batch
from raylog.raydp_jobs.batches import BatchFailed as BatchFailed
from raylog.raydp_jobs.batches import SourceMismatch as SourceMismatch
from raylog.raydp_jobs.batches import StateLost as StateLost
from raylog.raydp_jobs.continuity import is_written
from raylog.raydp_jobs.protocol import Protocol
from raylog.raydp_jobs.sink_state import SinkState
from raylog.wire.errors import ErrorCode

TIMEOUT_MS_MAX = 900_000
"""`transaction.max.timeout.ms` of a broker that was not told otherwise."""
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
"""Refusals after which the transaction is not committed by us."""
_FOR_NOW = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})
"""Refusals that pass, beside those that Kafka calls retriable."""
_PASSED_OVER = frozenset(
    {
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
"""Of AddOffsets and CommitOffsets: nothing rests on the group's offsets."""
_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task wrote; the only writer of its partition."""

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
    """Make or check the state topic; look for the sink in it, and at the coordinator."""


@dataclass(frozen=True, slots=True)
class Register:
    """Write the sink's registration to the state topic, outside of any transaction."""


@dataclass(frozen=True, slots=True)
class TakeIdentity:
    """InitProducerId."""

    timeout_ms: int
    """Of the transaction."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state topic to its end, and the group's offsets with require_stable."""


@dataclass(frozen=True, slots=True)
class Write:
    """Let the tasks write under this identity, which no other run of the batch gets."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Compare:
    """DescribeProducers of these partitions."""

    identity: ProducerIdentity
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class WriteState:
    """Produce the state that the transaction leaves."""

    identity: ProducerIdentity
    state: SinkState


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """AddOffsetsToTxn."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """TxnOffsetCommit."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class End:
    """EndTxn, committing."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Finished:
    """The batch is written, now or before."""

    is_new: bool
    identity: ProducerIdentity | None
    """To begin the next batch with; None: take one."""
    state: SinkState
    """What the sink has written by now."""


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
    """Whether the sink is known was answered."""

    is_new: bool
    """Whether neither the state topic nor the coordinator knows it."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The registration is written."""


@dataclass(frozen=True, slots=True)
class Identified:
    """InitProducerId was answered."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class StateRead:
    """What the sink has written so far."""

    state: SinkState


@dataclass(frozen=True, slots=True)
class Written:
    """All tasks have reported."""

    reports: Sequence[TaskReport]


@dataclass(frozen=True, slots=True)
class WriteLost:
    """The tasks did not all come to an end, and some may still run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Compared:
    """DescribeProducers was answered: last sequence by partition, of our identity."""

    last_sequences: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StateWritten:
    """The state is written, or refused."""

    report: TaskReport


@dataclass(frozen=True, slots=True)
class OffsetsAdded:
    """AddOffsetsToTxn was answered."""


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """TxnOffsetCommit was answered."""


@dataclass(frozen=True, slots=True)
class Ended:
    """EndTxn was answered with the identity to go on with."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker said no."""

    code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class AnswerLost:
    """Whether the request took effect is unknown."""

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
    """What to do, after a pause."""

    effect: Effect
    pause_ms: int = 0


# -- the machine ----------------------------------------------------------------------------------


@dataclass(slots=True)
class BatchMachine:
    """One batch until it is written. Transitions: the table above."""

    batch: Batch
    protocol: Protocol
    identity: ProducerIdentity | None = None
    """That the batch before ended with."""
    state: SinkState | None = None
    """That the batch before ended with."""
    is_registered: bool = False
    """Whether the sink is known to be registered."""
    timeout_ms: int = 60_000
    """Of the transaction; doubled when a write took longer."""
    runs_max: int = 5
    patience_ms: int = 120_000
    """How long one effect is repeated."""
    runs: int = 0
    _effect: Effect = field(default_factory=ReadState)
    _since_ms: int = 0
    _pause_ms: int = _PAUSE_MS
    _reports: Sequence[TaskReport] = ()
    _timeout_ms_asked: int = 0
    """What `timeout_ms` was at first."""

    def start(self, now_ms: int) -> Next:
        """The first effect; raises SourceMismatch, StateLost."""
        self._timeout_ms_asked = self.timeout_ms
        if not self.is_registered:
            return self._next(CheckRegistration(), now_ms)
        if self.identity is None or self.state is None or not self.protocol.keeps_identity:
            return self._next(TakeIdentity(self.timeout_ms), now_ms)
        return self._next(self._decide(self.state), now_ms)

    def handle(self, event: Event, now_ms: int) -> Next:
        """The next effect; raises BatchFailed."""
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
        """What follows a success."""
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
        """Skip what is written; raises SourceMismatch, StateLost."""
        self.state = state
        if is_written(state, self.batch):
            return Finished(False, self._held if self.protocol.keeps_identity else None, state)
        return Write(self._held)

    def _written(self, reports: Sequence[TaskReport], now_ms: int) -> Next:
        """The tasks' word: each partition once, without a gap."""
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
        """A writer was refused, for good or under this identity."""
        text = f"{report.partition}: {failure}"
        if report.is_final:
            raise BatchFailed(text)
        return self._run_again(text, now_ms)

    def _compared(self, last_sequences: Mapping[TopicPartition, int], now_ms: int) -> Next:
        """The leaders' word: nobody else wrote under our identity."""
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
        """A refusal passes, or the run is over, or the batch has failed."""
        text = f"{type(self._effect).__name__}: {code.name} {reason}"
        if code in _FENCED and not isinstance(self._effect, TakeIdentity):
            return self._run_again(text, now_ms)
        if code in _PASSED_OVER and isinstance(self._effect, AddOffsets | CommitOffsets):
            return self._next(End(self._held), now_ms)
        if code.retriable or code in _FOR_NOW:
            return self._again(text, now_ms)
        if code in _MEMBERS:
            text += "; a sink's group is its own and has no members"
        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            if self.timeout_ms > self._timeout_ms_asked:  # the broker allows no longer one
                self.timeout_ms = self._timeout_ms_asked
                return self._next(TakeIdentity(self.timeout_ms), now_ms)
            text += f"; {self.timeout_ms} ms is above the broker's transaction.max.timeout.ms"
        raise BatchFailed(text)

    def _again(self, reason: str, now_ms: int) -> Next:
        """The same effect, as it was."""
        if now_ms - self._since_ms >= self.patience_ms:
            raise BatchFailed(f"{reason} (repeated for {self.patience_ms} ms)")
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, _PAUSE_MS_MAX)
        return Next(self._effect, pause_ms)

    def _run_again(self, reason: str, now_ms: int) -> Next:
        """The whole batch, under an identity that fences what is left of this run."""
        if isinstance(self._effect, Write) and now_ms - self._since_ms >= self.timeout_ms:
            self.timeout_ms = max(self.timeout_ms, min(2 * self.timeout_ms, TIMEOUT_MS_MAX))
        if self.runs >= self.runs_max:
            raise BatchFailed(f"{reason} (run {self.runs} of {self.runs_max})")
        self.identity = None
        return self._next(TakeIdentity(self.timeout_ms), now_ms)

    def _next(self, effect: Effect, now_ms: int) -> Next:
        """Go on to another effect."""
        self.runs += isinstance(effect, Write)
        self._effect, self._since_ms, self._pause_ms = effect, now_ms, _PAUSE_MS
        return Next(effect)
