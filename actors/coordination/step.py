"""What the machines of coordinators share: one step's context, and what it asks for.

A shard is one partition of `__consumer_offsets` or `__transaction_state`. A step is one event that
the shard handles: a request, a timer, changed metadata. Handlers look at the state, append records
to the step and answer; hard state changes by `replay` of those records alone, which the shard does
as they are appended, in the same code that loads a shard from the log.
"""

from __future__ import annotations

import random  # noqa: TID251 - its type: chance comes in
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from raylog.actors.metadata.image import MetadataImage

R = TypeVar("R")
TimerKey = tuple[Hashable, ...]
"""Names one timer of one group or transactional id, such as ("session", member id)."""


class LogRecord(NamedTuple):
    """One record of an internal topic; a value of None is a tombstone.

    Both are the messages of `raylog.wire.internal`.
    """

    key: object
    value: object | None
    value_version: int | None = None
    """None: the newest version there is of this value."""


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
    replay: Callable[[LogRecord], None]
    """Applies a record to the shard's state; called by `append`."""
    records: list[LogRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    timers: list[tuple[str, TimerKey, float | None]] = field(default_factory=list)
    """(group id, key, when in monotonic ms; None cancels), in order."""

    def append(self, key: object, value: object | None, value_version: int | None = None) -> None:
        """Add a record and replay it at once: what follows in this step sees its effect."""
        record = LogRecord(key, value, value_version)
        self.records.append(record)
        self.replay(record)

    def answer(self, asked: Asked[Any], response: object) -> None:
        """Answer once all that was appended up to and in this step is below the high watermark."""
        self.answers.append(Answer(asked.token, response, durable=True))

    def answer_now(self, asked: Asked[Any], response: object) -> None:
        """Answer without waiting: for what promises nothing about records."""
        self.answers.append(Answer(asked.token, response, durable=False))

    def set_timer(self, group_id: str, key: TimerKey, delay_ms: float) -> None:
        """Have the group's `timer(step, key)` called after `delay_ms`; replaces one of that key."""
        self.timers.append((group_id, key, self.monotonic_ms + delay_ms))

    def cancel_timer(self, group_id: str, key: TimerKey) -> None:
        """No longer; harmless when there is none."""
        self.timers.append((group_id, key, None))

    def uuid(self) -> str:
        """A random UUID in its usual form, for member ids."""
        digits = f"{self.random.getrandbits(128):032x}"
        return "-".join(
            (digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:])
        )
