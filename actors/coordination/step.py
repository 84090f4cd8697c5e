"""What the machines of coordinators share: one step's context, and what it asks for.

A shard is one partition of `__consumer_offsets` or `__transaction_state`. A step is one event that
the shard handles: a request, a timer, changed metadata. Handlers look at the state, append records
to the step and answer; hard state changes by `replay` of those records alone, which the shard does
as they are appended, in the same code that loads a shard from the log.

State therefore runs ahead of the log. Each record's `Change` is kept until the log has decided: it
is committed once the record is below the high watermark, and reverted if the log has refused it.
Changes are committed in the order of the log, and reverted in the opposite order, so that each
finds the state as it left it.
"""

from __future__ import annotations

import random  # noqa: TID251 - its type: chance comes in
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from raylog.actors.journal import Decided
from raylog.actors.metadata.image import MetadataImage

R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
TimerKey = tuple[Hashable, ...]
"""Names one timer of one group or transactional id, such as ("session", member id)."""


class Counted(Enum):
    """What a step has brought about, for metrics."""

    REBALANCE = auto()
    """A group's generation began, or the target of one was computed."""
    COMMITTED = auto()
    """A transaction is complete."""
    ABORTED = auto()
    TIMED_OUT = auto()
    """A transaction was open for too long, and is aborted."""


class LogRecord(NamedTuple):
    """One record of an internal topic; a value of None is a tombstone.

    Both are the messages of `raylog.wire.internal`.
    """

    key: object
    value: object | None
    value_version: int | None = None
    """None: the newest version there is of this value."""


class Change(Protocol):
    """What a record has changed in a shard. One of its methods is called, once."""

    def commit(self) -> None:
        """The record is below the high watermark, as are all before it."""

    def revert(self) -> object:
        """The log has refused the record; all that came after it is reverted already."""


@dataclass(slots=True)
class Undo:
    """A change that nothing but its reversal has to do with."""

    revert: Callable[[], object]

    def commit(self) -> None:
        """Nothing is left to be done."""


class Several:
    """Changes of one record, in their order."""

    __slots__ = ("_changes",)

    def __init__(self, *changes: Change) -> None:
        self._changes = changes

    def commit(self) -> None:
        """Commit all."""
        for change in self._changes:
            change.commit()

    def revert(self) -> None:
        """Revert all, the last first."""
        for change in reversed(self._changes):
            change.revert()


def _nothing() -> None:
    """Of a record that changes nothing."""


NO_CHANGE = Undo(_nothing)


def put(into: dict[K, V], key: K, value: V | None) -> Change:
    """Put a value into a mapping, or take it away."""
    before = into.get(key)
    _put(into, key, value)
    return Undo(partial(_put, into, key, before))


def _put(into: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


@dataclass(frozen=True, slots=True)
class Asked(Generic[R]):
    """One client request that waits for an answer."""

    token: int
    """Names the answer's place; used once."""
    request: R
    version: int
    client_id: str
    client_host: str
    """As Kafka tells it: `/127.0.0.1`."""


class Answer(NamedTuple):
    """An answer that a step gives to one request."""

    token: int
    response: Any
    durable: bool
    """Whether it waits for the high watermark to pass everything this shard has appended so far."""


class TimerChange(NamedTuple):
    """What a step does to one timer."""

    group_id: str
    key: TimerKey
    at_ms: float | None
    """Monotonic time at which it fires; None cancels it."""
    replaces: bool = True
    """Whether it takes the place of a timer that is set already."""


@dataclass(slots=True)
class Step:
    """One event's circumstances, and what comes of it.

    The shard carries it out in this order: all records as one batch, timers, answers.
    """

    now_ms: int
    """Wall-clock time: of records."""
    monotonic_ms: float
    """Time that never goes back: of timers."""
    image: MetadataImage
    random: random.Random
    replay: Callable[[LogRecord], Change]
    """Applies a record to the shard's state; called by `append`."""
    records: list[LogRecord] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    """What the records have changed, in their order, and handlers beside them."""
    answers: list[Answer] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    """In order."""
    decided: list[Decided] = field(default_factory=list)
    """For the journal, once the records are on their way."""
    counted: list[Counted] = field(default_factory=list)
    """For metrics, once the records are on their way."""

    def append(self, key: object, value: object | None, value_version: int | None = None) -> None:
        """Add a record and replay it at once: what follows in this step sees its effect."""
        record = LogRecord(key, value, value_version)
        self.records.append(record)
        self.changes.append(self.replay(record))

    def if_refused(self, undo: Callable[[], object]) -> None:
        """Have something that was changed beside records taken back if the log refuses the step.

        A step without records is never refused.
        """
        self.changes.append(Undo(undo))

    def answer(self, asked: Asked[Any], response: object) -> None:
        """Answer once all that was appended up to and in this step is below the high watermark."""
        self.answers.append(Answer(asked.token, response, durable=True))

    def answer_now(self, asked: Asked[Any], response: object) -> None:
        """Answer without waiting: for what promises nothing about records."""
        self.answers.append(Answer(asked.token, response, durable=False))

    def set_timer(self, group_id: str, key: TimerKey, delay_ms: float) -> None:
        """Have the group's `timer(step, key)` called after `delay_ms`; replaces one of that key."""
        self.timers.append(TimerChange(group_id, key, self.monotonic_ms + delay_ms))

    def ensure_timer(self, group_id: str, key: TimerKey, delay_ms: float) -> None:
        """Set a timer unless there is one of that key."""
        at_ms = self.monotonic_ms + delay_ms
        self.timers.append(TimerChange(group_id, key, at_ms, replaces=False))

    def cancel_timer(self, group_id: str, key: TimerKey) -> None:
        """No longer; harmless when there is none."""
        self.timers.append(TimerChange(group_id, key, None))

    def uuid(self) -> str:
        """A random UUID in its usual form, for member ids."""
        digits = f"{self.random.getrandbits(128):032x}"
        return "-".join(
            (digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:])
        )
