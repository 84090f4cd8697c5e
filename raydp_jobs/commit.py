"""One micro-batch as one transaction: what the sink's driver does next, without I/O or Spark.

| effect | on success | |
|---|---|---|
| `TakeIdentity` | `ReadOffsets` | fences whoever wrote before and ends what they left open |
| `ReadOffsets` | `Finished` if the mark says so, else `Write` | only what is stable counts |
| `Write` | `Compare`, or `AddOffsets` if no row was written | the tasks write |
| `Compare` | `AddOffsets` | the leaders' last sequences against those of the tasks |
| `AddOffsets` | `CommitOffsets` | transaction version 1 only |
| `CommitOffsets` | `End` | source offsets with the mark |
| `End` | `Finished` | |

A lost answer or a refusal for now repeats the same effect as it was, after a pause; that an EndTxn
without an answer has aborted is never concluded. A refusal that says "not committed" (`_FENCED`), a
write that failed and tasks that do not agree lead back to `TakeIdentity`, and from there to
`ReadOffsets`, which knows whether the batch is written. So nothing depends on what the driver
remembers. Under transaction version 2 the identity that the last EndTxn told starts at
`ReadOffsets`: were it fenced since, every later request would be refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from raylog.client.accumulator import ProducerIdentity
from raylog.client.cluster import TopicPartition
from raylog.client.groups import CommittedOffset
from raylog.raydp_jobs.marks import Mark, read_mark
from raylog.raydp_jobs.protocol import Protocol
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
_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class BatchFailed(Exception):
    """The batch is not known to be written; a restart finds out and goes on."""


class SourceMismatch(BatchFailed):
    """The source does not go on where the sink's transactions ended."""


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


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch: where it goes, and what is to be committed with it."""

    mark: Mark
    partitions: Sequence[TopicPartition]
    """Of the sink's topics, one for each task. The first carries the mark in any case."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Source offsets at which it begins; empty if they are not known."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Source offsets at which the next one begins."""

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """What TxnOffsetCommit says; raises MarkTooLong, SourceMismatch."""
        metadata = self.mark.encode()
        if self.partitions[0] in self.ends:
            raise SourceMismatch(f"{self.partitions[0].topic} is read, and written to")
        offsets = {self.partitions[0]: self.mark.batch_id, **self.ends}
        return {key: CommittedOffset(offset, -1, metadata) for key, offset in offsets.items()}


# -- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeIdentity:
    """InitProducerId."""

    timeout_ms: int
    """Of the transaction."""


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """OffsetFetch with require_stable."""


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


Effect = TakeIdentity | ReadOffsets | Write | Compare | AddOffsets | CommitOffsets | End | Finished

# -- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identified:
    """InitProducerId was answered."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class OffsetsRead:
    """OffsetFetch was answered."""

    offsets: Mapping[TopicPartition, CommittedOffset]


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
    Identified
    | OffsetsRead
    | Written
    | WriteLost
    | Compared
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
    timeout_ms: int = 60_000
    """Of the transaction; doubled when a write took longer."""
    runs_max: int = 5
    patience_ms: int = 120_000
    """How long one effect is repeated."""
    runs: int = 0
    _effect: Effect = field(default_factory=ReadOffsets)
    _since_ms: int = 0
    _pause_ms: int = _PAUSE_MS
    _reports: Sequence[TaskReport] = ()

    def start(self, now_ms: int) -> Next:
        """The first effect."""
        if self.identity is None or not self.protocol.keeps_identity:
            return self._next(TakeIdentity(self.timeout_ms), now_ms)
        return self._next(ReadOffsets(), now_ms)

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
            case _:
                return self._next(self._after(event), now_ms)

    def _after(
        self, event: Identified | OffsetsRead | OffsetsAdded | OffsetsCommitted | Ended
    ) -> Effect:
        """What follows a success."""
        match event:
            case Identified(identity):
                self.identity = identity
                return ReadOffsets()
            case OffsetsRead(offsets):
                return self._decide(offsets)
            case OffsetsAdded():
                return CommitOffsets(self._held)
            case OffsetsCommitted():
                return End(self._held)
            case Ended(identity):
                return Finished(True, identity if self.protocol.keeps_identity else None)
            case _:
                assert_never(event)

    @property
    def _held(self) -> ProducerIdentity:
        assert self.identity is not None, "an identity is taken before anything is written"
        return self.identity

    def _decide(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> Effect:
        """Skip what is written; raises SourceMismatch."""
        first = self.batch.partitions[0]
        newest = read_mark(offsets[first].metadata) if first in offsets else None
        if newest is not None and newest.covers(self.batch.mark):
            return Finished(False, self._held if self.protocol.keeps_identity else None)
        for key, start in self.batch.starts.items():
            if newest is not None and key in offsets and offsets[key].offset != start:
                raise SourceMismatch(
                    f"batch {self.batch.mark.batch_id} of query {self.batch.mark.query_id!r} "
                    f"begins at {start} of {key}, the sink's last transaction (batch "
                    f"{newest.batch_id} of query {newest.query_id!r}) ended at "
                    f"{offsets[key].offset}: a new query starts from `committed_offsets`"
                )
        return Write(self._held)

    def _written(self, reports: Sequence[TaskReport], now_ms: int) -> Next:
        """The tasks' word: each partition once, without a gap."""
        for report in reports:
            if report.failure is None:
                continue
            if report.is_final:
                raise BatchFailed(f"{report.partition}: {report.failure}")
            return self._run_again(f"{report.partition}: {report.failure}", now_ms)
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
        return self._next(Compare(self._held, written) if written else self._commit(), now_ms)

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
        return self._next(self._commit(), now_ms)

    def _commit(self) -> Effect:
        return AddOffsets(self._held) if self.protocol.registers else CommitOffsets(self._held)

    def _refused(self, code: ErrorCode, reason: str, now_ms: int) -> Next:
        """A refusal passes, or the run is over, or the batch has failed."""
        text = f"{type(self._effect).__name__}: {code.name} {reason}"
        if code in _FENCED and not isinstance(self._effect, TakeIdentity):
            return self._run_again(text, now_ms)
        if code.retriable or code in _FOR_NOW:
            return self._again(text, now_ms)
        if code in _MEMBERS:
            text += "; a sink's group is its own and has no members"
        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
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
            self.timeout_ms = min(2 * self.timeout_ms, TIMEOUT_MS_MAX)
        if self.runs >= self.runs_max:
            raise BatchFailed(f"{reason} (run {self.runs} of {self.runs_max})")
        self.identity = None
        return self._next(TakeIdentity(self.timeout_ms), now_ms)

    def _next(self, effect: Effect, now_ms: int) -> Next:
        """Go on to another effect."""
        self.runs += isinstance(effect, Write)
        self._effect, self._since_ms, self._pause_ms = effect, now_ms, _PAUSE_MS
        return Next(effect)
