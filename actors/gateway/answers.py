"""Builds responses item by item: each partition, topic or resource succeeds or fails independently.

Failures of handlers are mapped to error codes here, by `actors.failures`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from raylog.actors.failures import error_code_of, message_of
from raylog.actors.gateway.cluster import LeaderStarting
from raylog.actors.gateway.context import TURN, RequestContext
from raylog.actors.runtime.base import Link, PeerLost, PeerTimeout, Timer
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import ErrorCode, KafkaError

R = TypeVar("R")


class NamedOutcome(Protocol):
    """The outcome for one partition of a topic."""

    @property
    def name(self) -> str:
        """The topic's name."""


Outcome = TypeVar("Outcome", bound=NamedOutcome)
Failed = Callable[[int, str | None], R]
"""Builds the result for a failed item from (error code, message)."""
Found = Callable[[Any], Iterator[int] | None]
"""Handles the response of a partition's Replica actor, at once or in steps."""
REPLICA_TIMEOUT_MS = 30_000
"""For requests without their own deadline."""
REPLICA_TIMEOUT_MIN_MS = 100
LEADER_START_MS = 1_000
"""If this broker's replica has not started by then, the result is NOT_LEADER_OR_FOLLOWER."""
STARTING_PAUSE_MS = 0.01
"""Pause per partition that has not started, before all of them are checked again."""


def attempt(work: Callable[[], R], failed: Failed[R]) -> R:
    """Return the result of `work`, or the result for its failure."""
    try:
        return work()
    except KafkaError as failure:
        return failed(int(error_code_of(failure)), message_of(failure))


async def attempt_async(work: Awaitable[R], failed: Failed[R]) -> R:
    """Await `work` and return its result, or the result for its failure."""
    try:
        return await work
    except (KafkaError, PeerLost, PeerTimeout) as failure:
        return failed(int(error_code_of(failure)), message_of(failure))


def by_topic(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Group outcomes of partitions by topic, in order."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.name, []).append(outcome)
    return found


class PartitionAnswer(Protocol):
    """The part of a response that is about one partition."""

    error_code: int


class Question(NamedTuple):
    """A request to a partition's Replica actor (`actors.replica.messages`)."""

    link: Link
    kind: str
    header: tuple[Any, ...]


class PartitionAnswers:
    """Collects the responses of Replica actors for the partitions of one request.

    The request is answered once `done` has been called and every partition is settled, or at the
    timeout; unsettled partitions then get REQUEST_TIMED_OUT. The handler of a response may work in
    steps, each of which yields how many items it handled. Steps run in turns.
    """

    __slots__ = (
        "_asked",
        "_context",
        "_done",
        "_older_codes",
        "_open",
        "_response",
        "_starting",
        "_taking",
        "_timeout_ms",
        "_timer",
    )

    def __init__(
        self,
        context: RequestContext,
        response: object,
        timeout_ms: int,
        older_codes: Mapping[ErrorCode, ErrorCode] | None = None,
    ) -> None:
        """`older_codes` maps codes that the request's version does not know to older ones."""
        self._context = context
        self._response = response
        self._older_codes = older_codes or {}
        self._open: dict[int, PartitionAnswer] = {}
        self._starting: dict[int, tuple[Callable[[], Question], Found]] = {}
        """Partitions whose leaders are starting, with the question and the handler of the
        response."""
        self._taking: deque[tuple[int, Iterator[int]]] | None = None
        """Responses that are being handled in turns; None if there are none."""
        self._asked = 0
        self._done = False
        self._timeout_ms = max(timeout_ms, REPLICA_TIMEOUT_MIN_MS)
        self._timer: Timer | None = None

    def ask(
        self,
        answer: PartitionAnswer,
        question: Callable[[], Question],
        found: Found,
    ) -> None:
        """Ask a partition's leader; `found` handles the response.

        If `question` raises KafkaError, nothing is sent.
        """
        number = self._asked = self._asked + 1
        self._open[number] = answer
        try:
            self._ask(number, question(), found)
        except LeaderStarting:
            if not self._starting:
                gateway = self._context.gateway
                gateway.runtime.start(self._ask_when_led(), "leaders that start")
            self._starting[number] = question, found
        except KafkaError as failure:
            self._fail(self._open.pop(number), failure)

    async def _ask_when_led(self) -> None:
        """Ask leaders once they have started, so that clients of new topics need not retry.

        One task checks all of them after changes, in turns and, if there are many, at intervals.
        """
        runtime, cluster = self._context.gateway.runtime, self._context.gateway.cluster
        deadline_ms = runtime.monotonic_ms() + LEADER_START_MS
        changes, seen = 0, -1  # there may have been changes since the request arrived

        def changed() -> None:
            nonlocal changes
            changes += 1

        def has_changed() -> bool:
            return changes > seen

        forget = cluster.on_change(changed)
        try:
            while self._starting:
                left_ms = max(0, deadline_ms - runtime.monotonic_ms())
                await until(runtime, cluster.on_change, has_changed, left_ms)
                seen = changes
                is_late = runtime.monotonic_ms() >= deadline_ms
                await self._context.turns(self._ask_started(is_late=is_late))
                if len(self._starting) > TURN:
                    await runtime.sleep(len(self._starting) * STARTING_PAUSE_MS / 1000)
        finally:
            forget()

    def _ask_started(self, *, is_late: bool) -> Iterator[int]:
        """Ask the leaders that have started; if it is late, fail the others."""
        for number, (question, found) in tuple(self._starting.items()):
            yield 1
            if number not in self._open:
                del self._starting[number]  # the request has timed out
                continue
            try:
                asking = question()
            except KafkaError as failure:
                if isinstance(failure, LeaderStarting) and not is_late:
                    continue
                del self._starting[number]
                self._fail(self._open.pop(number), failure)
                self._settle()
            else:
                del self._starting[number]
                self._ask(number, asking, found)

    def _ask(self, number: int, question: Question, found: Found) -> None:
        link, kind, header = question

        def answered(what: Any, _payload: memoryview) -> None:
            if number not in self._open:
                return
            steps = found(what)
            if steps is not None:
                self._take_in(number, steps)
            else:
                del self._open[number]
                self._settle()

        def failed(failure: Exception) -> None:
            answer = self._open.pop(number, None)
            if answer is not None:
                self._fail(answer, failure)
                self._settle()

        link.request(kind, header, (), answered, failed)

    def _take_in(self, number: int, steps: Iterator[int]) -> None:
        if self._taking is not None:
            self._taking.append((number, steps))
            return
        self._taking = deque([(number, steps)])
        self._context.gateway.runtime.start(self._take_in_turns(self._taking), "large answers")

    async def _take_in_turns(self, taking: deque[tuple[int, Iterator[int]]]) -> None:
        taken: list[int] = []

        def each() -> Iterator[int]:
            while taking:
                number, steps = taking.popleft()
                yield from steps
                yield 1
                taken.append(number)

        await self._context.turns(each())
        self._taking = None
        left = [self._open.pop(number, None) for number in taken]
        if any(left):  # otherwise the request has timed out
            self._settle()

    def done(self) -> None:
        """Note that all partitions have been asked, and start the timeout."""
        self._done = True
        if self._open:
            runtime = self._context.gateway.runtime
            self._timer = runtime.call_later(self._timeout_ms, self._time_is_up)
        self._settle()

    def _settle(self) -> None:
        if self._done and not self._open:
            if self._timer is not None:
                self._timer.cancel()
            self._context.reply(self._response)

    def _time_is_up(self) -> None:
        late = PeerTimeout("the partition's leader did not answer in time")
        for answer in self._open.values():
            self._fail(answer, late)
        self._open.clear()
        self._context.is_large = self._context.is_large or self._taking is not None
        self._settle()

    def _fail(self, answer: PartitionAnswer, failure: Exception) -> None:
        code = error_code_of(failure)
        answer.error_code = int(self._older_codes.get(code, code))
        if hasattr(answer, "error_message"):
            answer.error_message = message_of(failure)
