"""The window's settings, effects and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from raylog.client.cluster import TopicPartition
from raylog.client.errors import ClientError, InvalidSetting
from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.note import NOTE_BYTES_MAX
from raylog.client.parallel.policy import DeadLetter, Failure, Order, RetryPolicy
from raylog.wire.record import Record


class ProcessingFailed(ClientError):
    """A record failed all its attempts, and it has no dead-letter topic."""


@dataclass(frozen=True, slots=True)
class RunCell:
    """Have a worker run the function on these records. Answered by `Window.ran`, exactly once."""

    cell_id: int
    key: TopicPartition
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class GiveUpCell:
    """Abandon a worker's run, and end the worker if possible.

    Answered by `Window.ran` like every run: once the function has stopped, if that can be known.
    """

    cell_id: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Produce these records. Answered by `Window.delivered` or `Window.undelivered`."""

    cell_id: int
    outputs: tuple[ProducerRecord, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop fetching these partitions."""

    keys: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Fetch these partitions again."""

    keys: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """End the consumer: a record failed for good and has no dead-letter topic."""

    error: ProcessingFailed


@dataclass(frozen=True, slots=True)
class LetterWritten:
    """Log that a record was given up and goes to another topic."""

    key: TopicPartition
    offset: int
    topic: str
    failure: Failure


Effect = RunCell | GiveUpCell | Deliver | Pause | Resume | Fail | LetterWritten


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """How many records run at once, in which order, and how failures are handled."""

    group: str
    cells: int = 8
    """How many batches run, or wait for a retry, at the same time; each has a worker."""
    batch_size: int = 1
    """The maximum records of a cell."""
    order: Order = Order.KEY
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: DeadLetter | None = field(default_factory=DeadLetter)
    transactional: bool = False
    """Keep results until offsets are committed, and commit both in one transaction."""
    buffer_records: int = 10_000
    """The maximum records fetched but not finished."""
    buffer_bytes: int = 64 * 1024 * 1024
    record_bytes_max: int = 1_000_000
    """Limit of a result or letter (key, value, headers); a larger letter omits its value."""
    note_bytes_max: int = NOTE_BYTES_MAX
    """The brokers' limit of commit metadata: `offset.metadata.max.bytes`."""

    def __post_init__(self) -> None:
        for name in ("cells", "batch_size", "buffer_records", "buffer_bytes"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"expected {name} of 1 or more, found {getattr(self, name)}")
        if not self.group:
            raise InvalidSetting("expected a group, found none")


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a successful run."""

    outputs: tuple[ProducerRecord, ...] = ()


Outcome = Done | Failure


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """What to commit for one partition."""

    key: TopicPartition
    offset: int
    note: str


@dataclass(slots=True)
class Statistics:
    """Counts since the start, and current state."""

    cells: int = 0
    running: int = 0
    """Cells with a worker."""
    waiting: int = 0
    """Cells that wait for a retry or a delivery."""
    buffered: int = 0
    """Records fetched but not finished."""
    buffered_bytes: int = 0
    processed: int = 0
    """Records finished by the function; its results, if any, were acknowledged."""
    failures: int = 0
    """Runs that failed, and runs whose results no broker accepted."""
    stalled: int = 0
    workers_lost: int = 0
    retried_later: int = 0
    """Records sent to a retry topic."""
    dead_lettered: int = 0
    skipped: int = 0
    """Records not run again after a restart, because the note lists them as finished."""
    late: int = 0
    """Runs that ended after their partition was revoked."""
    commits: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """Outputs and the offsets of their source records, to commit atomically."""

    points: Sequence[CommitPoint]
    outputs: Sequence[ProducerRecord]
