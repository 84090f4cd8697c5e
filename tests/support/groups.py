"""A shard of the group coordinator without log, links or clock, for the machines of groups.

Every record goes through its bytes, and so does every answer at the version it was asked in: what
cannot be written fails the test that caused it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from raylog.actors.coordination.step import (
    NO_CHANGE,
    Asked,
    Change,
    LogRecord,
    Step,
    TimerKey,
)
from raylog.actors.journal import Decided
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.codec import decode, encode
from raylog.wire.internal.blobs import OFFSETS_TOPIC, decode_record, encode_key, encode_value
from raylog.wire.internal.consumer_groups import ConsumerGroupMetadataKey
from raylog.wire.internal.offsets import GroupMetadataKey
from raylog.wire.schema import layout_of
from tests.support.steps import set_timers

CLIENT_HOST = "/127.0.0.1"
START_MS = 1_700_000_000_000


@dataclass(slots=True)
class Ask:
    """A request and, once it is there, its answer or the error it was refused with."""

    asked: Asked[Any]
    answer: Any = None
    durable: bool | None = None
    """Whether the answer waits for what was appended."""
    error: Exception | None = None

    @property
    def waits(self) -> bool:
        """Whether there is no answer yet."""
        return self.answer is None and self.error is None


@dataclass(slots=True)
class GroupWorld:
    """Groups, the records they have written, their timers and a clock that tests move."""

    make: Callable[[str], Any]
    """A group without any record."""
    image: MetadataImage = field(default_factory=MetadataImage)
    groups: dict[str, Any] = field(default_factory=dict)
    log: list[LogRecord] = field(default_factory=list)
    now_ms: int = START_MS
    random: Random = field(default_factory=lambda: Random(7))
    timers: dict[tuple[str, TimerKey], float] = field(default_factory=dict)
    """When each is due, by group and key, in ms of the clock."""
    asks: list[Ask] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)

    def run(self, event: Callable[[Step], object]) -> Step:
        """Let one step happen, with all that comes of it."""
        step = Step(self.now_ms, float(self.now_ms), self.image, self.random, self._replay)
        event(step)
        set_timers(self.timers, step.timers)
        for answer in step.answers:
            ask = self.asks[answer.token]
            assert ask.waits, f"answered twice: {ask}"
            ask.answer = _through_bytes(answer.response, ask.asked.version)
            ask.durable = answer.durable
        self.decided += step.decided
        self.log.extend(_through_record_bytes(record) for record in step.records)
        return step

    def ask(
        self,
        method: Callable[[Any, Step, Asked[Any]], None],
        request: Any,
        version: int,
        *,
        client_id: str = "client",
    ) -> Ask:
        """Let the request's group handle it by this method of its class."""
        group = self.groups[request.group_id]
        return self.submit(
            lambda step, asked: method(group, step, asked), request, version, client_id
        )

    def submit(
        self,
        handle: Callable[[Step, Asked[Any]], None],
        request: Any,
        version: int,
        client_id: str = "client",
    ) -> Ask:
        """Handle a request in a step of its own; a raised KafkaError becomes the ask's error."""
        request = _through_bytes(request, version)
        ask = Ask(Asked(len(self.asks), request, version, client_id, CLIENT_HOST))
        self.asks.append(ask)

        def event(step: Step) -> None:
            try:
                handle(step, ask.asked)
            except Exception as error:
                if not hasattr(error, "code"):
                    raise
                ask.error = error

        self.run(event)
        return ask

    def advance(self, ms: int) -> None:
        """Move the clock, and call each timer as it falls due."""
        end_ms = self.now_ms + ms
        while True:
            due = min(((at, key) for key, at in self.timers.items() if at <= end_ms), default=None)
            if due is None:
                break
            at_ms, (group_id, key) = due
            del self.timers[group_id, key]
            self.now_ms = max(self.now_ms, int(at_ms))
            group = self.groups.get(group_id)
            if group is not None:
                self.run(partial(_fire, group, key))
        self.now_ms = end_ms

    def crash(self) -> list[Asked[Any]]:
        """Lose all but the log, and load it; returns who waited for an answer."""
        waiting = [asked for group in self.groups.values() for asked in group.unload()]
        self.groups, self.timers = {}, {}
        for record in self.log:
            self._replay(record)
        for group in self.groups.values():
            self.run(group.loaded)
        return waiting

    def _replay(self, record: LogRecord) -> Change:
        key: Any = record.key
        group_id = key.group if hasattr(key, "group") else key.group_id
        if record.value is None and isinstance(key, GroupMetadataKey | ConsumerGroupMetadataKey):
            self.groups.pop(group_id, None)
            return NO_CHANGE
        if group_id not in self.groups:
            self.groups[group_id] = self.make(group_id)
        change: Change = self.groups[group_id].replay(record)
        return change


def _fire(group: Any, key: TimerKey, step: Step) -> None:
    group.timer(step, key)


def _through_bytes(message: Any, version: int) -> Any:
    return decode(type(message), version, encode(message, version))


def _through_record_bytes(record: LogRecord) -> LogRecord:
    value = None
    if record.value is not None:
        versions = layout_of(type(record.value)).versions
        assert versions is not None
        version = record.value_version if record.value_version is not None else versions[-1]
        value = encode_value(record.value, version)
    found = decode_record(OFFSETS_TOPIC, encode_key(record.key), value)
    assert found is not None
    assert found[0] == record.key
    return LogRecord(*found, record.value_version)
