"""The step: the context and the results of one event in a coordinator's state machine.

A shard is one partition of `__consumer_offsets` or `__transaction_state`. A step is one event that
the shard handles: a request, a timer, changed metadata. Handlers read the state, append records to
the step and answer. Hard state changes only by `replay` of those records, at once when they are
appended, in the code that also loads a shard from the log.

So the state is ahead of the log. Each record's `Change` is kept until the log has decided: it is
committed when the record is below the high watermark, and reverted if the log refuses it. Changes
are committed in the order of the log and reverted in reverse order, so that each finds the state as
it left it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from raylog.actors.decisions import Decided
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.uuids import Chance

R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
TimerKey = tuple[Hashable, ...]
"""Identifies a timer of one group or transactional id, such as ("session", member id)."""


class Counted(Enum):
    """Events of a step that metrics count."""

    REBALANCE = auto()
    """A new generation of a group, or a new target assignment."""
    COMMITTED = auto()
    """A transaction was committed."""
    ABORTED = auto()
    TIMED_OUT = auto()
    """A transaction exceeded its timeout, and is aborted."""


class LogRecord(NamedTuple):
    """One record of an internal topic; a value of None is a tombstone.

    Keys and values are messages of `raylog.wire.internal`.
    """

    key: object
    value: object | None
    value_version: int | None = None
    """None means the newest version of this value."""


class Change(Protocol):
    """The change that a record makes in a shard. Exactly one of the methods is called, once."""

    def commit(self) -> None:
        """Called when the record and all before it are below the high watermark."""

    def revert(self) -> object:
        """Called when the log has refused the record; everything after it is already reverted."""


@dataclass(slots=True)
class Undo:
    """A change that only needs to be reverted."""

    revert: Callable[[], object]

    def commit(self) -> None:
        """Do nothing."""


class Several:
    """Changes of one record, in order."""

    __slots__ = ("_changes",)

    def __init__(self, *changes: Change) -> None:
        self._changes = changes

    def commit(self) -> None:
        """Commit all."""
        for change in self._changes:
            change.commit()

    def revert(self) -> None:
        """Revert all, the last one first."""
        for change in reversed(self._changes):
            change.revert()


def _nothing() -> None:
    """Do nothing: the record changes nothing."""


NO_CHANGE = Undo(_nothing)


def put(into: dict[K, V], key: K, value: V | None) -> Change:
    """Set a value in a mapping, or remove it if it is None."""
    before = into.get(key)
    _put(into, key, value)
    return Undo(partial(_put, into, key, before))


def _put(into: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


@dataclass(frozen=True, slots=True)
class ClientCall(Generic[R]):
    """One client request that waits for an answer."""

    token: int
    """Identifies the answer; used once."""
    request: R
    version: int
    client_id: str
    client_host: str
    """In Kafka's format: `/127.0.0.1`."""


class Answer(NamedTuple):
    """A step's answer to one request."""

    token: int
    response: Any
    durable: bool
    """Whether it waits until everything that this shard has appended so far is committed."""


class TimerChange(NamedTuple):
    """A step's change to one timer."""

    group_id: str
    key: TimerKey
    at_ms: float | None
    """Monotonic time at which it fires; None cancels it."""
    replaces: bool = True
    """Whether it replaces a timer that is set already."""


@dataclass(slots=True)
class Step:
    """The context of one event, and its results.

    The shard carries them out in this order: all records as one batch, timers, answers.
    """

    now_ms: int
    """Wall-clock time, for records."""
    monotonic_ms: float
    """Monotonic time, for timers."""
    image: MetadataImage
    random: Chance
    replay: Callable[[LogRecord], Change]
    """Applies a record to the shard's state; called by `append`."""
    records: list[LogRecord] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    """What the records changed, in order, and what else the handlers changed."""
    answers: list[Answer] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    """In order."""
    decided: list[Decided] = field(default_factory=list)
    """For the journal, once the records are being appended."""
    counted: list[Counted] = field(default_factory=list)
    """For metrics, once the records are being appended."""

    def append(self, key: object, value: object | None, value_version: int | None = None) -> None:
        """Add a record and replay it at once, so that the rest of this step sees its effect."""
        record = LogRecord(key, value, value_version)
        self.records.append(record)
        self.changes.append(self.replay(record))

    def if_refused(self, undo: Callable[[], object]) -> None:
        """Register how to undo a change made without a record, in case the log refuses the step.

        A step without records is never refused.
        """
        self.changes.append(Undo(undo))

    def answer(self, call: ClientCall[Any], response: object) -> None:
        """Answer once everything appended up to and including this step is committed."""
        self.answers.append(Answer(call.token, response, durable=True))

    def answer_now(self, call: ClientCall[Any], response: object) -> None:
        """Answer without waiting, for responses that promise nothing about records."""
        self.answers.append(Answer(call.token, response, durable=False))

    def set_timer(self, group_id: str, key: TimerKey, delay_ms: float) -> None:
        """Call the group's `timer(step, key)` after `delay_ms`; replaces a timer with that key."""
        self.timers.append(TimerChange(group_id, key, self.monotonic_ms + delay_ms))

    def ensure_timer(self, group_id: str, key: TimerKey, delay_ms: float) -> None:
        """Set a timer unless there is one with that key."""
        at_ms = self.monotonic_ms + delay_ms
        self.timers.append(TimerChange(group_id, key, at_ms, replaces=False))

    def cancel_timer(self, group_id: str, key: TimerKey) -> None:
        """Cancel a timer, if there is one."""
        self.timers.append(TimerChange(group_id, key, None))

    def uuid(self) -> str:
        """Return a random UUID in the usual form, for member ids."""
        digits = f"{self.random.getrandbits(128):032x}"
        return "-".join(
            (digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:])
        )
