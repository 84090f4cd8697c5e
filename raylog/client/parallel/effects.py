"""What the window tells its shell to do, and what it is made from."""

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
    """A record failed all its attempts and there is no dead-letter topic for it."""


@dataclass(frozen=True, slots=True)
class RunCell:
    """Have a worker run the function on these records. Answer: `Window.ran`, exactly once."""

    cell_id: int
    key: TopicPartition
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class GiveUpCell:
    """Give up what a worker runs, and end that worker if possible.

    Answer: `Window.ran`, as for every run; when the function runs no more, if that can be known.
    """

    cell_id: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Produce these. Answer: `Window.delivered` or `Window.undelivered`."""

    cell_id: int
    outputs: tuple[ProducerRecord, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Fetch no more of these partitions."""

    keys: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Fetch these partitions again."""

    keys: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """End the consumer: a record failed for good and no topic takes it."""

    error: ProcessingFailed


@dataclass(frozen=True, slots=True)
class LetterWritten:
    """A record was given up in its cell: say so in the log."""

    key: TopicPartition
    offset: int
    topic: str
    failure: Failure


Effect = RunCell | GiveUpCell | Deliver | Pause | Resume | Fail | LetterWritten


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """How much runs at once, in which order, and what becomes of failures."""

    group: str
    cells: int = 8
    """Batches of records that run, or wait to run again, at the same time; a worker each."""
    batch_size: int = 1
    """Records of a cell at most."""
    order: Order = Order.KEY
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: DeadLetter | None = field(default_factory=DeadLetter)
    transactional: bool = False
    """What the function returns is kept until offsets are committed, both in one transaction."""
    buffer_records: int = 10_000
    """Records fetched and not finished; more are not fetched."""
    buffer_bytes: int = 64 * 1024 * 1024
    record_bytes_max: int = 1_000_000
    """Of a result or letter, key, value and headers; a letter above it leaves its value out."""
    note_bytes_max: int = NOTE_BYTES_MAX
    """What the brokers allow beside an offset: `offset.metadata.max.bytes`."""

    def __post_init__(self) -> None:
        for name in ("cells", "batch_size", "buffer_records", "buffer_bytes"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"expected {name} of 1 or more, found {getattr(self, name)}")
        if not self.group:
            raise InvalidSetting("expected a group, found none")


@dataclass(frozen=True, slots=True)
class Done:
    """A run that went well."""

    outputs: tuple[ProducerRecord, ...] = ()


Outcome = Done | Failure


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """What to commit of one partition."""

    key: TopicPartition
    offset: int
    note: str


@dataclass(slots=True)
class Statistics:
    """Counts since the start, and how things stand."""

    cells: int = 0
    running: int = 0
    """Cells with a worker."""
    waiting: int = 0
    """Cells that wait to run again, or for a letter to be written."""
    buffered: int = 0
    """Records fetched and not finished."""
    buffered_bytes: int = 0
    processed: int = 0
    """Records finished by the function; its results, if any, were acknowledged."""
    failures: int = 0
    """Runs that failed, and runs whose results no broker takes."""
    stalled: int = 0
    workers_lost: int = 0
    retried_later: int = 0
    """Records sent to a retry topic."""
    dead_lettered: int = 0
    skipped: int = 0
    """Records not run again after a restart: the note told they were finished."""
    late: int = 0
    """Runs that ended after their partition was taken away."""
    commits: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """Outputs and the offsets of the records they come from: all of it, or nothing."""

    points: Sequence[CommitPoint]
    outputs: Sequence[ProducerRecord]
