"""Which errors make the client retry an operation, and how long it pauses before a retry.

As in Apache Kafka's clients, an error is retriable if Kafka's table of codes says so, or if a
connection failed on the way. Pauses double from `retry.backoff.ms` to `retry.backoff.max.ms`, with
20 % jitter (KIP-580); group members and metadata lookups pause `retry.backoff.ms` each time. A
coordinator that has moved is looked up again first. The caller decides how long to retry:
`Core.repeat` stops at its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from raylog.client.errors import ConnectionLost, NotConnected, RequestTimedOut
from raylog.client.refusals import refusal
from raylog.wire.errors import ErrorCode, KafkaError

E = TypeVar("E", bound=Exception)

JITTER = 0.2
_DOUBLINGS_MAX = 62
"""Exceeds every maximum without overflowing a float."""

_COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""The broker is not, or not yet, the coordinator of the group or transactional id."""
COORDINATOR_BUSY = _COORDINATOR_MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
"""The coordinator did not carry out the request, and may do so later."""
MEMBERSHIP_ENDED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""The coordinator dropped the member, which must rejoin. Each group protocol uses some of these."""


def code_of(error: Exception | None) -> ErrorCode | None:
    """Return the code of a broker's error; None for any other failure."""
    return error.code if isinstance(error, KafkaError) else None


def is_connection_failure(error: Exception) -> bool:
    """Whether the request or its answer was lost."""
    return isinstance(error, NotConnected | ConnectionLost | RequestTimedOut)


def is_retriable(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    return is_connection_failure(error)


def has_coordinator_moved(error: Exception) -> bool:
    """Whether to look up the coordinator again, because it moved or gave no answer."""
    return not isinstance(error, KafkaError) or error.code in _COORDINATOR_MOVED


def is_member_outdated(error: Exception) -> bool:
    """Whether the coordinator has another generation or epoch, which a heartbeat will reveal."""
    code = code_of(error)
    return code in MEMBERSHIP_ENDED or code is ErrorCode.STALE_MEMBER_EPOCH


def worst(errors: Iterable[E], retriable: Callable[[Exception], bool] = is_retriable) -> E | None:
    """Return the first error that is not retriable, else the first error; None for no errors.

    OPERATION_NOT_ATTEMPTED comes last, because another error caused it.
    """
    return min(
        errors,
        key=lambda one: (code_of(one) is ErrorCode.OPERATION_NOT_ATTEMPTED, retriable(one)),
        default=None,
    )


def worst_refusal(outcomes: Iterable[tuple[int, object]]) -> KafkaError | None:
    """Return the worst error among several (code, what it is about)."""
    errors = (refusal(code, what) for code, what in outcomes)
    return worst(error for error in errors if error is not None)


def backoff_ms(first_ms: float, max_ms: float, retries: int) -> float:
    """Return the pause after that many retries, without jitter."""
    return min(first_ms * 2.0 ** min(max(0, retries), _DOUBLINGS_MAX), max_ms)


def jittered(pause_ms: float, chance: float, jitter: float = JITTER) -> float:
    """Return a pause, lengthened or shortened by up to `jitter` of it. `chance` is from 0 to 1.

    This keeps clients that failed together from retrying together.
    """
    return pause_ms * (1 + jitter * (2 * chance - 1))


class Backoff:
    """The pauses between attempts of one operation, or between connection attempts to a broker."""

    def __init__(
        self, first_ms: float, max_ms: float, chance: Callable[[], float], retries: int = 0
    ) -> None:
        self.count = retries
        """Number of pauses so far."""
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._chance = chance

    def next_ms(self) -> float:
        """Return the next pause in ms."""
        pause_ms = backoff_ms(self._first_ms, self._max_ms, self.count)
        self.count += 1
        return jittered(pause_ms, self._chance())
