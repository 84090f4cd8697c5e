"""Error codes and their exceptions."""

import pickle

import pytest

from raylog.wire.errors import (
    CorruptMessage,
    ErrorCode,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
    error_of,
)

FAILURES = [code for code in ErrorCode if code is not ErrorCode.NONE]


@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.name)
def test_every_code_has_its_exception(code: ErrorCode) -> None:
    error = error_of(code, "what was found")
    assert error.code is code
    assert type(error).__name__ == code.name.title().replace("_", "")
    assert error.message == str(error) == "what was found"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.message) == (type(error), code, error.message)


def test_codes_have_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


def test_code_of_a_newer_broker() -> None:
    error = error_of(999, "odd")
    assert isinstance(error, UnknownServerError)
    assert str(error) == "error code 999 odd"


def test_derived_class_keeps_the_code() -> None:
    """Ray derives a class from the exception's own when it carries it between processes."""
    derived = type("Derived", (CorruptMessage,), {})
    assert derived("x").code is ErrorCode.CORRUPT_MESSAGE
    assert type(error_of(ErrorCode.CORRUPT_MESSAGE)) is CorruptMessage


def test_retriable() -> None:
    assert NotLeaderOrFollower.code.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert not ErrorCode.NONE.retriable
    assert issubclass(NotLeaderOrFollower, KafkaError)
