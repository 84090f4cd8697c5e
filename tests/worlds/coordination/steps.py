"""What coordinators' shells do with a step, for worlds without a shell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar

from raylog.actors.coordination.rules import records
from raylog.actors.coordination.rules.step import (
    Answer,
    Change,
    ClientCall,
    LogRecord,
    Step,
    TimerChange,
    TimerKey,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.codec import decode, encode
from raylog.wire.errors import KafkaError
from raylog.wire.internal.blobs import OFFSETS_TOPIC, RecordKind
from raylog.wire.schema import is_struct

CLIENT_HOST = "/127.0.0.1"
START_MS = 1_700_000_000_000
Timers = dict[tuple[str, TimerKey], float]
"""When each timer is due, by group and key."""


def set_timers(timers: Timers, changes: Iterable[TimerChange]) -> None:
    """Apply a step's timer changes in order."""
    for group_id, key, at_ms, replaces in changes:
        name = (group_id, key)
        if at_ms is None:
            timers.pop(name, None)
        elif replaces or name not in timers:
            timers.pop(name, None)
            timers[name] = at_ms


def commit(step: Step) -> None:
    """Complete a step whose records the log accepted."""
    for change in step.changes:
        change.commit()


def revert(steps: Iterable[Step]) -> None:
    """Revert steps, given in order, of which the log refused the first."""
    for step in reversed([*steps]):
        for change in reversed(step.changes):
            change.revert()


def through_bytes(message: Any, version: int) -> Any:
    """Return a message after encoding and decoding; return it unchanged if it has no wire form."""
    if not is_struct(type(message)):
        return message
    return decode(type(message), version, encode(message, version))


@dataclass(slots=True)
class Ask:
    """A request with its answer, or the error it was refused with."""

    asked: ClientCall[Any]
    answer: Any = None
    durable: bool | None = None
    """Whether the answer waits for the step's records."""
    error: KafkaError | None = None

    @property
    def waits(self) -> bool:
        """Whether there is no answer yet."""
        return self.answer is None and self.error is None


class StepWorld(ABC):
    """Metadata, a log that accepts everything, timers and a clock for a machine that takes steps.

    Requests, answers and records are encoded and decoded, so a test fails on those that cannot be
    written.
    """

    kinds: ClassVar[dict[int, RecordKind]] = OFFSETS_TOPIC
    step_class: ClassVar[type[Step]] = Step

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.log: list[LogRecord] = []
        self.now_ms = START_MS
        self.random = Random(7)
        self.timers: Timers = {}
        self.asks: list[Ask] = []
        """All requests so far; an index is the request's token."""

    @abstractmethod
    def replay(self, record: LogRecord) -> Change:
        """Apply a record to the machine's state."""

    @abstractmethod
    def fire(self, group_id: str, key: TimerKey, step: Step) -> None:
        """Handle a timer that is due."""

    def run(
        self,
        event: Callable[[Any], object],
        replay: Callable[[LogRecord], Change] | None = None,
    ) -> Any:
        """Run one step with all its consequences; return it."""
        now_ms = self.now_ms
        step = self.step_class(
            now_ms, float(now_ms), self.image, self.random, replay or self.replay
        )
        event(step)
        set_timers(self.timers, step.timers)
        for answer in step.answers:
            self._answered(answer)
        self.log.extend(map(self._through_log, step.records))
        commit(step)
        return step

    def _answered(self, answer: Answer) -> None:
        ask = self.asks[answer.token]
        assert ask.waits, f"answered twice: {ask}"
        ask.answer = through_bytes(answer.response, ask.asked.version)
        ask.durable = answer.durable

    def _through_log(self, record: LogRecord) -> LogRecord:
        found = records.decode(self.kinds, *records.encode(record))
        assert found is not None
        assert found.key == record.key
        return found._replace(value_version=record.value_version)

    def submit(
        self,
        handle: Callable[[Any, ClientCall[Any]], object],
        request: Any,
        version: int,
        client_id: str = "client",
        replay: Callable[[LogRecord], Change] | None = None,
    ) -> Ask:
        """Handle a request in a step of its own; a raised KafkaError becomes the ask's error."""
        request = through_bytes(request, version)
        ask = Ask(ClientCall(len(self.asks), request, version, client_id, CLIENT_HOST))
        self.asks.append(ask)

        def event(step: Step) -> None:
            try:
                handle(step, ask.asked)
            except KafkaError as error:
                ask.error = error

        self.run(event, replay)
        return ask

    def advance(self, ms: int) -> None:
        """Advance the clock, firing each timer when it is due."""
        end_ms = self.now_ms + ms
        while due := [(at, key) for key, at in self.timers.items() if at <= end_ms]:
            at_ms, key = min(due, key=lambda one: one[0])
            del self.timers[key]
            self.now_ms = max(self.now_ms, int(at_ms))
            self.run(partial(self.fire, *key))
        self.now_ms = end_ms


class RecordedChange:
    """A change that records what becomes of it."""

    def __init__(self, name: str, events: list[Any]) -> None:
        self.name, self.events = name, events

    def commit(self) -> None:
        self.events.append(f"commit {self.name}")

    def revert(self) -> None:
        self.events.append(f"revert {self.name}")
