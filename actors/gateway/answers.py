"""Answers item by item: each partition, topic or resource succeeds or fails on its own.

This is where a handler's failures become error codes, by way of `actors.failures`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from raylog.actors.failures import error_code_of, message_of
from raylog.actors.gateway.cluster import LeaderStarting
from raylog.actors.gateway.context import RequestContext
from raylog.actors.runtime.base import Link, PeerLost, PeerTimeout, Timer
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import ErrorCode, KafkaError

R = TypeVar("R")


class NamedOutcome(Protocol):
    """What became of one partition of a topic."""

    @property
    def name(self) -> str:
        """The topic's."""


Outcome = TypeVar("Outcome", bound=NamedOutcome)
Failed = Callable[[int, str | None], R]
"""Makes the answer of an item that failed from (error code, message)."""
REPLICA_TIMEOUT_MS = 30_000
"""For requests that carry no deadline of their own."""
REPLICA_TIMEOUT_MIN_MS = 100
LEADER_START_MS = 1_000
"""A partition of which this broker's replica has not started by then is NOT_LEADER_OR_FOLLOWER."""


def attempt(work: Callable[[], R], failed: Failed[R]) -> R:
    """The answer that `work` gives, or the one for its failure."""
    try:
        return work()
    except KafkaError as failure:
        return failed(int(error_code_of(failure)), message_of(failure))


async def attempt_async(work: Awaitable[R], failed: Failed[R]) -> R:
    """The answer that `work` comes to, or the one for its failure."""
    try:
        return await work
    except (KafkaError, PeerLost, PeerTimeout) as failure:
        return failed(int(error_code_of(failure)), message_of(failure))


def by_topic(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes of partitions by topic, in the order in which they come."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.name, []).append(outcome)
    return found


class PartitionAnswer(Protocol):
    """The part of an answer that concerns one partition."""

    error_code: int


class Question(NamedTuple):
    """What a partition's Replica actor is asked (`actors.replica.api`)."""

    link: Link
    kind: str
    header: tuple[Any, ...]


class PartitionAnswers:
    """The partitions of one request whose answers Replica actors fill in.

    The request is answered when `done` was called and every partition is settled, or when the
    time is up: what is unsettled then is REQUEST_TIMED_OUT.
    """

    __slots__ = (
        "_asked",
        "_context",
        "_done",
        "_in_old_words",
        "_open",
        "_response",
        "_timeout_ms",
        "_timer",
    )

    def __init__(
        self,
        context: RequestContext,
        response: object,
        timeout_ms: int,
        in_old_words: Mapping[ErrorCode, ErrorCode] | None = None,
    ) -> None:
        """`in_old_words` has codes that the request's version does not know, and what it knows."""
        self._context = context
        self._response = response
        self._in_old_words = in_old_words or {}
        self._open: dict[int, PartitionAnswer] = {}
        self._asked = 0
        self._done = False
        self._timeout_ms = max(timeout_ms, REPLICA_TIMEOUT_MIN_MS)
        self._timer: Timer | None = None

    def ask(
        self,
        answer: PartitionAnswer,
        question: Callable[[], Question],
        found: Callable[[Any], None],
    ) -> None:
        """Ask one partition's leader; `found` takes in what it says.

        `question` may raise KafkaError: nobody is asked then.
        """
        number = self._asked = self._asked + 1
        self._open[number] = answer
        try:
            self._ask(number, question(), found)
        except LeaderStarting:
            gateway = self._context.gateway
            gateway.runtime.start(self._ask_when_led(number, question, found), "a leader's start")
        except KafkaError as failure:
            self._fail(self._open.pop(number), failure)

    async def _ask_when_led(
        self, number: int, question: Callable[[], Question], found: Callable[[Any], None]
    ) -> None:
        """Ask once the leader has started: clients that just saw it made do not all ask again."""
        gateway = self._context.gateway

        def has_started() -> bool:
            try:
                question()
            except LeaderStarting:
                return number not in self._open
            except KafkaError:
                return True
            return True

        await until(gateway.runtime, gateway.cluster.on_change, has_started, LEADER_START_MS)
        if number in self._open:
            try:
                self._ask(number, question(), found)
            except KafkaError as failure:
                self._fail(self._open.pop(number), failure)
                self._settle()

    def _ask(self, number: int, question: Question, found: Callable[[Any], None]) -> None:
        link, kind, header = question

        def answered(what: Any, _payload: memoryview) -> None:
            if self._open.pop(number, None) is not None:
                found(what)
                self._settle()

        def failed(failure: Exception) -> None:
            answer = self._open.pop(number, None)
            if answer is not None:
                self._fail(answer, failure)
                self._settle()

        link.request(kind, header, (), answered, failed)

    def done(self) -> None:
        """Everything is asked: the time begins."""
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
        self._settle()

    def _fail(self, answer: PartitionAnswer, failure: Exception) -> None:
        code = error_code_of(failure)
        answer.error_code = int(self._in_old_words.get(code, code))
        if hasattr(answer, "error_message"):
            answer.error_message = message_of(failure)
