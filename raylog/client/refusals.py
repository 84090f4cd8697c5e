"""Convert the error codes in brokers' answers to exceptions."""

from __future__ import annotations

from typing import TypeVar

from raylog.wire.errors import ErrorCode, KafkaError, error_of

T = TypeVar("T")


def refusal(code: int, what: object, message: str | None = None) -> KafkaError | None:
    """Return the error for a code, None for NONE. Its text says what the answer is about."""
    if code == ErrorCode.NONE:
        return None
    return error_of(code, f"{what}: {message}" if message else str(what))


def check(code: int, what: object, message: str | None = None) -> None:
    """Raise the error for a code; do nothing for NONE."""
    error = refusal(code, what, message)
    if error is not None:
        raise error


def value(answer: T | KafkaError) -> T:
    """Return the answer, or raise it if it is an error."""
    if isinstance(answer, KafkaError):
        raise answer
    return answer
