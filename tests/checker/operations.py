"""The operations of clients, one class each. Times are `time.monotonic_ns()` of one machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

Partition = tuple[str, int]
"""Topic and index."""
Batch = tuple[Partition, list[int], list[str]]
"""Records of one partition in the order of a poll: offsets and values."""


class Outcome(StrEnum):
    """How an operation ended."""

    OK = "ok"
    FAILED = "failed"
    """It certainly has no effect."""
    UNKNOWN = "unknown"
    """It may have taken effect, or may still do."""


class Action(StrEnum):
    """How a transaction should end."""

    COMMIT = "commit"
    ABORT = "abort"


class Change(StrEnum):
    """What a rebalance did with partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Span(NamedTuple):
    """Offsets of one partition; `end` is exclusive."""

    partition: Partition
    start: int
    end: int


class Start(NamedTuple):
    """The start position in a partition; None if the client chooses it."""

    partition: Partition
    offset: int | None


@dataclass(slots=True)
class Send:
    """A send of one record. No two sends of a history have the same value."""

    process: str
    partition: Partition
    value: str
    invoked_ns: int
    completed_ns: int
    outcome: Outcome
    offset: int | None = None
    """The offset of an acknowledged record, if the broker told it."""
    transaction: str | None = None
    key: str | None = None
    """The record's key. It matters in compacted topics only."""


@dataclass(slots=True)
class Poll:
    """A poll of a consumer that returned records."""

    process: str
    invoked_ns: int
    completed_ns: int
    batches: list[Batch]
    read_committed: bool = False
    transaction: str | None = None
    """The transaction in which they are processed."""


@dataclass(slots=True)
class Assign:
    """A consumer got an assignment. All its positions are new."""

    process: str
    at_ns: int
    starts: list[Start]


@dataclass(slots=True)
class Subscribe:
    """A consumer subscribed to topics in a group. Its positions are unknown."""

    process: str
    at_ns: int
    topics: list[str]


@dataclass(slots=True)
class Rebalance:
    """A group assigned or revoked partitions. Their positions are unknown."""

    process: str
    at_ns: int
    change: Change
    partitions: list[Partition]


@dataclass(slots=True)
class Seek:
    """A consumer continues elsewhere; None if the offset is unknown."""

    process: str
    at_ns: int
    partition: Partition
    offset: int | None


@dataclass(slots=True)
class Begin:
    """The begin of a transaction. Its name is unique, and not the transactional id."""

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
    """This process has polled everything in these spans.

    The end of a span is a high watermark fetched after `invoked_ns`, its start the first offset
    that retention left.
    """

    process: str
    invoked_ns: int
    completed_ns: int
    spans: list[Span]


@dataclass(slots=True)
class Topic:
    """A topic, and whether compaction may remove superseded keys."""

    name: str
    compacted: bool


Reset = Assign | Subscribe | Rebalance | Seek
Operation = Send | Poll | Reset | Begin | End | FinalRead | Topic
