"""Shell of one shard: loads it from its partition's log, appends its records, answers.

An answer that depends on records is sent once the newest of them is committed. If the log refuses
that append, or records cannot be written, the requests of that append fail, the shard reverts to
the state before it, and everything else continues (`appending.py`). A request that exceeds the time
limit times out and the state stays: the append may still be committed. Only if the outcome of an
append cannot be known do all waiting requests fail, and the shard is loaded again.

Events that no client retries, such as an expired session, are retried after a delay if the log
refuses their records.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from raylog.actors.common_messages import Route
from raylog.actors.coordination.appending import Appender
from raylog.actors.coordination.counts import CoordinatorCounts
from raylog.actors.coordination.lease import LeaseHolder
from raylog.actors.coordination.requests import Reply, coordinator_error
from raylog.actors.coordination.rules.step import Answer, Change, ClientCall, LogRecord, Step
from raylog.actors.decisions import LOAD, Decided
from raylog.actors.journal import Few, decided
from raylog.actors.metadata.image import MetadataImage
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
"""Shortest and longest delay before a load is retried."""
REPEAT_MS = (500, 5_000)
"""Shortest and longest delay before an event whose records were refused is repeated."""
NO_LEASE = "no controller has confirmed lately that this broker still leads"
ANSWERED_AT_ONCE = 500
"""Answers sent in one turn: thousands of members of a group may wait for the same append."""
StepT = TypeVar("StepT", bound=Step)
StepT_contra = TypeVar("StepT_contra", bound=Step, contravariant=True)


class Shard(Protocol[StepT_contra]):
    """State machine of one partition."""

    def replay(self, record: LogRecord) -> Change:
        """Apply a record to the state."""

    def reverted(
        self, step: StepT_contra, records: Sequence[LogRecord], failure: KafkaError
    ) -> None:
        """Repair the state after the log has refused these records, whose changes are reverted.

        This concerns whatever handlers changed besides records. It answers requests that wait for
        something that will not happen now.
        """

    def handle(self, step: StepT_contra, call: ClientCall[Any]) -> None:
        """Answer a request, now or later."""

    def loaded(self, step: StepT_contra) -> None:
        """Act once everything in the log was replayed."""


ShardT = TypeVar("ShardT", bound=Shard[Any])


class Host(ABC, Generic[ShardT, StepT]):
    """One led partition: loading, then active, finally closed."""

    def __init__(
        self,
        runtime: Runtime,
        link: Link,
        route: Route,
        image: MetadataImage,
        lease: LeaseHolder,
        append_timeout_ms: int,
    ) -> None:
        self.route = route
        self.link = link
        self.counts = CoordinatorCounts()
        """Counters of this shard, replaced by the coordinator's when it hosts the shard."""
        self._runtime = runtime
        self._image = image
        self._lease = lease
        self._append_timeout_ms = append_timeout_ms
        self._shard = self._new_shard()
        self._state = "loading"
        self._failures = 0
        """Consecutive appends that failed or were refused."""
        self._few = Few()
        """Limits the logged decisions that clients cause."""
        self._is_undoing = False
        """Whether a step that cannot be written is being reverted."""
        self._tokens = itertools.count(1)
        self._waiting: dict[int, tuple[ClientCall[Any], Reply]] = {}
        self._appends = self._appender()
        self._loading: BackgroundTask = runtime.start(self._load(), f"load {self}")

    @property
    def is_active(self) -> bool:
        """Whether it answers requests."""
        return self._state == "active"

    @property
    def shard(self) -> ShardT:
        """The state machine, for inspection."""
        return self._shard

    # ---- overridden by each kind of shard ------------------------------------------------

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def _new_shard(self) -> ShardT:
        """Create an empty state machine."""

    @abstractmethod
    def _new_step(self, shard: ShardT) -> StepT:
        """Create the step of an event."""

    @abstractmethod
    async def _read(self, shard: ShardT) -> int:
        """Bring a new shard to the end of the log; return that offset."""

    @abstractmethod
    def _failed(self, call: ClientCall[Any], failure: KafkaError) -> Any:
        """Build the response to a request that failed."""

    def _append(self, step: StepT) -> None:
        """Append a step's records."""
        self._appends.add(step)

    def _needs_log(self, call: ClientCall[Any]) -> bool:
        """Whether the answer may have to wait for the log."""
        return True

    def _needs_lease(self, request: Any) -> bool:
        """Whether an old answer from memory, without a write, would do harm."""
        return False

    def _stepped(self, step: StepT) -> None:
        """Carry out what a step requests besides records and answers, after these."""

    def _activated(self) -> None:
        """Called when the shard is loaded and starts to answer."""

    def _begin(self, shard: ShardT) -> None:
        """Let a loaded shard handle its first event."""
        self._insist(shard.loaded)

    def _deactivated(self) -> None:
        """Called when the shard stops answering."""

    # ---- requests and steps --------------------------------------------------------------

    def ask(self, call: ClientCall[Any], reply: Reply) -> None:
        """Hand a request to the shard; `reply` gets the response. Assigns the token."""
        if self._state != "active":
            loading = self._state == "loading"
            reason = CoordinatorLoadInProgress if loading else NotCoordinator
            reply(self._failed(call, reason(f"{self} is {self._state}")))
            return
        appends = self._appends
        if (appends.is_overdue or appends.is_full) and self._needs_log(call):
            reply(self._failed(call, CoordinatorNotAvailable(f"{self} waits for its log")))
            return
        token = next(self._tokens)
        placed = ClientCall(token, call.request, call.version, call.client_id, call.client_host)
        self._waiting[token] = (placed, reply)
        self._take(placed)

    def _take(self, call: ClientCall[Any]) -> None:
        """Let the shard handle a request."""
        self._run(lambda step: self._shard.handle(step, call))

    def _run(self, event: Callable[[StepT], None]) -> StepT | None:
        """Let the shard handle an event, and carry out its step.

        Returns None if that failed; then the step was reverted, or the shard is being loaded again.
        """
        step = self._new_step(self._shard)
        if not self._handled(step, event):
            return None
        return step if self._carry_out(step) else None

    def _insist(
        self, event: Callable[[StepT], None], done: Callable[[], None] | None = None
    ) -> None:
        """Let the shard handle an event that no client would retry.

        It is repeated after a delay if the log refuses it. `done` is called when it is committed.
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
        """Delay that grows with the number of consecutive refused appends."""
        first_ms, longest_ms = REPEAT_MS
        return min(first_ms << min(self._failures, 16), longest_ms)

    def _handled(self, step: StepT, event: Callable[[StepT], None]) -> bool:
        """Let the shard handle an event.

        After an unexpected exception the shard may have replayed half a step, so it is loaded
        again.
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
        """Append a step's records and answer; return False if the records cannot be written."""
        if step.records and not self._appended(step):
            return False
        self.counts.stepped(step)
        now, leased = [], []
        for answer in step.answers:
            if answer.durable and not self._appends.is_idle:
                self._appends.answer_durably(answer)
            elif self._needs_lease(self._waiting[answer.token][0].request):
                leased.append(answer)
            else:
                now.append(answer)
        self.answer(now)
        if leased:
            self._lease.check(lambda is_valid: self._answer_leased(leased, is_valid=is_valid))
        for one in self._few.passed(step.decided, step.monotonic_ms):
            decided(log, one)
        self._stepped(step)
        return True

    def _appended(self, step: StepT) -> bool:
        """Queue a step's records; if they cannot be written, revert the step and return False.

        Nothing has been decided on the step yet, so it is reverted as if the log had refused it.
        """
        try:
            self._append(step)
        except EncodeError as failure:
            log.warning("%s: a step cannot be written: %s", self, failure)
            refusal = UnknownServerError(str(failure))
        else:
            return True
        if self._is_undoing:
            self._fail(refusal)  # the repair cannot be written either
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

    # ---- outcomes of appends -------------------------------------------------------------

    def append_committed(self) -> None:
        """Note that the log accepts records."""
        self._failures = 0

    def answer(self, answers: Sequence[Answer]) -> None:
        """Answer requests; if there are many, in later turns of the event loop."""
        if len(answers) > ANSWERED_AT_ONCE:
            self._runtime.call_later(0, lambda: self._answer_some(answers))
            return
        for answer in answers:
            _, reply = self._waiting.pop(answer.token)
            reply(answer.response)

    def _answer_leased(self, answers: Sequence[Answer], *, is_valid: bool) -> None:
        """Answer under a lease, except requests that have failed meanwhile; fail without one."""
        there = [one for one in answers if one.token in self._waiting]
        if is_valid:
            self.answer(there)
            return
        for answer in there:
            self._fail_one(answer.token, NotCoordinator(NO_LEASE))

    def _answer_some(self, answers: Sequence[Answer]) -> None:
        """Send the next answers, except to requests that have failed meanwhile."""
        now, later = answers[:ANSWERED_AT_ONCE], answers[ANSWERED_AT_ONCE:]
        if later:
            self._runtime.call_later(0, lambda: self._answer_some(later))
        self.answer([one for one in now if one.token in self._waiting])

    def refuse(self, answer: Answer, failure: KafkaError) -> None:
        """Fail a client's request: the log has refused its change, or is too slow."""
        self._fail_one(answer.token, coordinator_error(failure))

    def append_reverted(self, records: list[LogRecord], failure: KafkaError) -> None:
        """Let the shard repair its state after these records were reverted."""
        self._failures += 1
        self.counts.refusals += 1
        shown = coordinator_error(failure)
        self._run(lambda step: self._shard.reverted(step, records, shown))

    def append_lost(self, failure: Exception) -> None:
        """Load the shard again: only the log knows what it holds."""
        self.counts.refusals += 1
        self._fail(coordinator_error(failure))

    # ---- loading and ending --------------------------------------------------------------

    def _appender(self) -> Appender:
        return Appender(self._runtime, self.link, self.route, self._append_timeout_ms, self)

    def _fail(self, failure: KafkaError) -> None:
        """Fail all waiting requests, then load the shard again."""
        self._state = "loading"
        self._failures += 1
        self._end_waits(failure)
        self._loading = self._runtime.start(self._load(), f"load {self}")

    def close(self, why: str) -> None:
        """Close the shard: this broker no longer leads it, or another process has its log."""
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
        if self._failures > 1:  # a load's own appends may fail too, as on a full disk
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
                    return  # the Broker sends a route to the successor
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
