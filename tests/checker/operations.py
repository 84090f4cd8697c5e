"""What clients did, one object an operation. Times are `time.monotonic_ns()` of one machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

Partition = tuple[str, int]
"""Topic and index."""
Batch = tuple[Partition, list[int], list[str]]
"""Records of one partition in the order in which a poll returned them: offsets and values."""


class Outcome(StrEnum):
    """How an operation ended."""

    OK = "ok"
    FAILED = "failed"
    """It has certainly no effect."""
    UNKNOWN = "unknown"
    """It may have taken effect, or may yet."""


class Action(StrEnum):
    """How a transaction is to end."""

    COMMIT = "commit"
    ABORT = "abort"


class Change(StrEnum):
    """What a rebalance did to partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Span(NamedTuple):
    """Offsets of one partition, `end` excluded."""

    partition: Partition
    start: int
    end: int


class Start(NamedTuple):
    """Where reading of a partition begins; None: where the client finds fit."""

    partition: Partition
    offset: int | None


@dataclass(slots=True)
class Send:
    """One record written. No two sends of a history have the same value."""

    process: str
    partition: Partition
    value: str
    invoked_ns: int
    completed_ns: int
    outcome: Outcome
    offset: int | None = None
    """Where an acknowledged record is, if the broker told."""
    transaction: str | None = None
    key: str | None = None
    """The record's key; matters in compacted topics only."""


@dataclass(slots=True)
class Poll:
    """Records that a consumer returned."""

    process: str
    invoked_ns: int
    completed_ns: int
    batches: list[Batch]
    read_committed: bool = False
    transaction: str | None = None
    """The transaction in which they are worked on."""


@dataclass(slots=True)
class Assign:
    """A consumer was told which partitions to read; all its positions are new."""

    process: str
    at_ns: int
    starts: list[Start]


@dataclass(slots=True)
class Subscribe:
    """A consumer joined a group's topics; its positions are unknown."""

    process: str
    at_ns: int
    topics: list[str]


@dataclass(slots=True)
class Rebalance:
    """A group gave or took partitions; their positions are unknown."""

    process: str
    at_ns: int
    change: Change
    partitions: list[Partition]


@dataclass(slots=True)
class Seek:
    """A consumer goes on elsewhere (None: it is not known where)."""

    process: str
    at_ns: int
    partition: Partition
    offset: int | None


@dataclass(slots=True)
class Begin:
    """A transaction began. Its name is its own, not the transactional id."""

    process: str
    at_ns: int
    transaction: str


@dataclass(slots=True)
class End:
    """An attempt to end a transaction."""

    process: str
    invoked_ns: int
    completed_ns: int
    transaction: str
    action: Action
    outcome: Outcome


@dataclass(slots=True)
class FinalRead:
    """This process has polled all there is in these spans.

    A span's end is a high watermark asked for after `invoked_ns`, its start the first offset that
    retention left.
    """

    process: str
    invoked_ns: int
    completed_ns: int
    spans: list[Span]


@dataclass(slots=True)
class Topic:
    """What must be known of a topic: whether compaction may remove superseded keys."""

    name: str
    compacted: bool


Reset = Assign | Subscribe | Rebalance | Seek
Operation = Send | Poll | Reset | Begin | End | FinalRead | Topic
