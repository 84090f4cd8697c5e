"""Shell of one shard: loads it from its partition's log, appends to it, answers.

An answer that waits for records leaves when the append that holds the newest of them is below the
high watermark. If the log refuses that append, or its records cannot be written at all, its
requests fail, the shard goes back to the state before it, and everybody else goes on
(`appending.py`). Who waits for longer than the time limit is told so, and the state stays: the
append is in the log and may yet count. Only where it cannot be known whether it is there, everyone
who waits fails, and the shard is read from the log again.

Events that nobody will bring again, such as a session that ended, are repeated after a while if
the log refuses what they wrote.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from raylog.actors.coordination.appending import Appender
from raylog.actors.coordination.counts import CoordinatorCounts
from raylog.actors.coordination.requests import coordinator_error
from raylog.actors.coordination.step import Answer, Asked, Change, LogRecord, Step
from raylog.actors.journal import LOAD, Decided, Few, decided
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import Route
from raylog.actors.runtime.base import BackgroundTask, Link, PeerLost, Runtime
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    DecodeError,
    EncodeError,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
)

log = logging.getLogger(__name__)
RETRY_S = (0.1, 5.0)
"""First and longest wait before a load is tried again."""
REPEAT_MS = (500, 5_000)
"""First and longest wait before an event is repeated whose records were refused."""
ANSWERED_AT_ONCE = 500
"""Answers of one step or append that are given in one turn: a group may have thousands of members
that wait for the same."""
Reply = Callable[[Any], None]
StepT = TypeVar("StepT", bound=Step)
StepT_contra = TypeVar("StepT_contra", bound=Step, contravariant=True)


class Shard(Protocol[StepT_contra]):
    """The machine of one partition."""

    def replay(self, record: LogRecord) -> Change:
        """Take in a record."""

    def reverted(
        self, step: StepT_contra, records: Sequence[LogRecord], failure: KafkaError
    ) -> None:
        """The log has refused these records, and their changes are taken back.

        What handlers did beside them is put right, and who waits for what will not come is told.
        """

    def handle(self, step: StepT_contra, asked: Asked[Any]) -> None:
        """Answer a request, now or later."""

    def loaded(self, step: StepT_contra) -> None:
        """Everything in the log was replayed."""


ShardT = TypeVar("ShardT", bound=Shard[Any])


class Host(ABC, Generic[ShardT, StepT]):
    """One led partition: loading, then active, in the end closed."""

    def __init__(
        self,
        runtime: Runtime,
        link: Link,
        route: Route,
        image: MetadataImage,
        append_timeout_ms: int,
    ) -> None:
        self.route = route
        self.link = link
        self.counts = CoordinatorCounts()
        """Its own until it is one of a coordinator's."""
        self._runtime = runtime
        self._image = image
        self._append_timeout_ms = append_timeout_ms
        self._shard = self._new_shard()
        self._state = "loading"
        self._failures = 0
        """Appends that failed, or were refused, in a row."""
        self._few = Few()
        """Of the decisions that clients cause."""
        self._is_undoing = False
        """Whether a step that cannot be written is being taken back."""
        self._tokens = itertools.count(1)
        self._waiting: dict[int, tuple[Asked[Any], Reply]] = {}
        self._appends = self._appender()
        self._loading: BackgroundTask = runtime.start(self._load(), f"load {self}")

    @property
    def is_active(self) -> bool:
        """Whether it answers."""
        return self._state == "active"

    @property
    def shard(self) -> ShardT:
        """The machine, for looking at."""
        return self._shard

    # ---- what kinds of shards differ in --------------------------------------------------

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def _new_shard(self) -> ShardT:
        """A machine that knows nothing yet."""

    @abstractmethod
    def _new_step(self, shard: ShardT) -> StepT:
        """The circumstances of an event."""

    @abstractmethod
    async def _read(self, shard: ShardT) -> int:
        """Bring a new shard to the end of the log; returns that offset."""

    @abstractmethod
    def _failed(self, asked: Asked[Any], failure: KafkaError) -> Any:
        """The response that says that a request failed."""

    def _append(self, step: StepT) -> None:
        """Have a step's records appended."""
        self._appends.add(step)

    def _needs_log(self, asked: Asked[Any]) -> bool:
        """Whether the answer may have to wait for the log."""
        del asked
        return True

    def _stepped(self, step: StepT) -> None:
        """What a step asks for beside records and answers; comes behind them."""

    def _activated(self) -> None:
        """The shard is loaded and answers from now on."""

    def _begin(self, shard: ShardT) -> None:
        """Have a shard that was loaded handle its first event."""
        self._insist(shard.loaded)

    def _deactivated(self) -> None:
        """It does not any more."""

    # ---- requests and steps --------------------------------------------------------------

    def ask(self, asked: Asked[Any], reply: Reply) -> None:
        """Hand a request to the shard; `reply` gets the response. The token is given here."""
        if self._state != "active":
            loading = self._state == "loading"
            reason = CoordinatorLoadInProgress if loading else NotCoordinator
            reply(self._failed(asked, reason(f"{self} is {self._state}")))
            return
        appends = self._appends
        if (appends.is_overdue or appends.is_full) and self._needs_log(asked):
            reply(self._failed(asked, CoordinatorNotAvailable(f"{self} waits for its log")))
            return
        token = next(self._tokens)
        placed = Asked(token, asked.request, asked.version, asked.client_id, asked.client_host)
        self._waiting[token] = (placed, reply)
        self._take(placed)

    def _take(self, asked: Asked[Any]) -> None:
        """Have the shard handle a request that waits for its answer."""
        self._run(lambda step: self._shard.handle(step, asked))

    def _run(self, event: Callable[[StepT], None]) -> StepT | None:
        """Let the shard handle an event and carry out what comes of it.

        None if that broke: nothing of it is left, or the shard is loaded again.
        """
        step = self._new_step(self._shard)
        if not self._handled(step, event):
            return None
        return step if self._carry_out(step) else None

    def _insist(
        self, event: Callable[[StepT], None], done: Callable[[], None] | None = None
    ) -> None:
        """Let the shard handle an event that nobody brings again.

        It is repeated after a while if the log refuses it; `done` is called when the log has it.
        """
        shard = self._shard

        def repeat() -> None:
            if self.is_active and self._shard is shard:
                self._insist(event, done)

        def refused(_: KafkaError | None = None) -> None:
            self._runtime.call_later(self._repeat_delay_ms(), repeat)

        step = self._run(event)
        if step is None:
            refused()
        elif step.records or done:
            self._appends.when_durable(done, refused)

    def _repeat_delay_ms(self) -> float:
        """The longer, the more appends were refused in a row."""
        first_ms, longest_ms = REPEAT_MS
        return min(first_ms << min(self._failures, 16), longest_ms)

    def _handled(self, step: StepT, event: Callable[[StepT], None]) -> bool:
        """Let the shard handle an event.

        What nobody foresaw may leave the shard with half a step replayed: it is loaded again.
        """
        try:
            event(step)
        except AssertionError:
            raise
        except Exception as failure:
            log.exception("%s: a step failed", self)
            self._fail(UnknownServerError(str(failure)))
            return False
        return True

    def _carry_out(self, step: StepT) -> bool:
        """Append a step's records and answer; False if the records cannot be written."""
        if step.records and not self._appended(step):
            return False
        self.counts.stepped(step)
        now = []
        for answer in step.answers:
            if answer.durable:
                self._appends.answer_durably(answer)
            else:
                now.append(answer)
        self.answer(now)
        for one in self._few.passed(step.decided, step.monotonic_ms):
            decided(log, one)
        self._stepped(step)
        return True

    def _appended(self, step: StepT) -> bool:
        """Whether a step's records wait for the log; if one cannot be written, the step is undone.

        Nothing behind it has been decided yet, so it goes as an append that the log refuses.
        """
        try:
            self._append(step)
        except EncodeError as failure:
            log.exception("%s: a step cannot be written", self)
            refusal = UnknownServerError(str(failure))
        else:
            return True
        if self._is_undoing:
            self._fail(refusal)  # what puts the shard right cannot be written either
            return False
        for change in reversed(step.changes):
            change.revert()
        for answer in step.answers:
            self._fail_one(answer.token, refusal)
        self._is_undoing = True
        try:
            self.append_reverted(step.records, refusal)
        finally:
            self._is_undoing = False
        return False

    def _fail_one(self, token: int, failure: KafkaError) -> None:
        asked, reply = self._waiting.pop(token)
        reply(self._failed(asked, failure))

    # ---- what becomes of appends ---------------------------------------------------------

    def append_committed(self) -> None:
        """The log takes records."""
        self._failures = 0

    def answer(self, answers: Sequence[Answer]) -> None:
        """Answer requests; where they are many, in later turns of the event loop."""
        if len(answers) > ANSWERED_AT_ONCE:
            self._runtime.call_later(0, lambda: self._answer_some(answers))
            return
        for answer in answers:
            _, reply = self._waiting.pop(answer.token)
            reply(answer.response)

    def _answer_some(self, answers: Sequence[Answer]) -> None:
        """Answer those of the next ones who have not failed meanwhile, with all that waited."""
        now, later = answers[:ANSWERED_AT_ONCE], answers[ANSWERED_AT_ONCE:]
        if later:
            self._runtime.call_later(0, lambda: self._answer_some(later))
        self.answer([one for one in now if one.token in self._waiting])

    def refuse(self, answer: Answer, failure: KafkaError) -> None:
        """Tell a client that the log has refused what it asked for, or is too slow."""
        self._fail_one(answer.token, coordinator_error(failure))

    def append_reverted(self, records: list[LogRecord], failure: KafkaError) -> None:
        """The shard is back at the state before these records."""
        self._failures += 1
        self.counts.refusals += 1
        shown = coordinator_error(failure)
        self._run(lambda step: self._shard.reverted(step, records, shown))

    def append_lost(self, failure: Exception) -> None:
        """The log alone knows what it holds: begin again from it."""
        self.counts.refusals += 1
        self._fail(coordinator_error(failure))

    # ---- loading and ending --------------------------------------------------------------

    def _appender(self) -> Appender:
        return Appender(self._runtime, self.link, self.route, self._append_timeout_ms, self)

    def _fail(self, failure: KafkaError) -> None:
        """Fail everyone who waits, then begin again from the log."""
        self._state = "loading"
        self._failures += 1
        self._end_waits(failure)
        self._loading = self._runtime.start(self._load(), f"load {self}")

    def close(self, why: str) -> None:
        """This broker leads the partition no longer, or another process has its log."""
        self._state = "closed"
        self._loading.cancel()
        self._end_waits(NotCoordinator(why))

    def _end_waits(self, failure: KafkaError) -> None:
        self._deactivated()
        self._appends.close()
        waiting, self._waiting = self._waiting, {}
        for asked, reply in waiting.values():
            reply(self._failed(asked, failure))

    async def _load(self) -> None:
        wait_s, longest_s = RETRY_S
        if self._failures > 1:  # what a load appends fails too, as on a full disk
            await self._runtime.sleep(min(wait_s * 2 ** min(self._failures, 16), longest_s))
        started_ms = self._runtime.monotonic_ms()
        while True:
            shard = self._new_shard()
            try:
                end = await self._read(shard)
            except (KafkaError, DecodeError, PeerLost, OSError) as failure:
                log.warning("%s is not loaded: %s", self, failure)
                self.counts.load_failures += 1
                if not self.link.is_open:
                    return  # the Broker brings a route to the successor
                await self._runtime.sleep(wait_s)
                wait_s = min(wait_s * 2, longest_s)
            else:
                break
        took_ms = self._runtime.monotonic_ms() - started_ms
        self.counts.loads.observe(took_ms / 1000)
        loaded = f"{self} is loaded to offset {end} in {took_ms:.0f} ms"
        decided(log, Decided(LOAD, loaded, str(self)))
        self._shard = shard
        self._appends = self._appender()
        self._state = "active"
        self._activated()
        self._begin(shard)
