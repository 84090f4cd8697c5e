"""Error codes and their exceptions."""

import pickle

import pytest

from raylog.actors.failures import message_of
from raylog.actors.runtime.base import PeerLost
from raylog.wire.codec import encode
from raylog.wire.codegen.primitives import STRING_BYTES_MAX
from raylog.wire.errors import (
    ERROR_TEXT_MAX,
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
    error_of,
    error_text,
)
from raylog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from raylog.wire.records import refusal_of

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


@pytest.mark.parametrize("letter", ["x", "\N{GRINNING FACE}"])
def test_a_text_that_quotes_what_a_client_sent_is_cut(letter: str) -> None:
    """Texts of errors travel as STRING, of at most 32,767 bytes, and stand in logs."""
    said = letter * STRING_BYTES_MAX
    error = error_of(ErrorCode.INVALID_REQUEST, f"the group {said}")
    assert str(error).startswith(f"the group {letter}")
    assert str(error).endswith("...")
    assert len(str(error)) == ERROR_TEXT_MAX
    assert message_of(PeerLost(said)) == error_text(said)
    group = DescribedGroup(group_id="g", error_code=42, error_message=str(error))
    assert encode(ConsumerGroupDescribeResponse(groups=[group]), 1)


def test_texts_can_be_written_whatever_they_quote() -> None:
    half = "at $.\ud800 in Bj\u00f6rk's"
    error = refusal_of(InvalidRecord, [(0, half)])
    assert error.record_errors == ((0, "at $.? in Bj\u00f6rk's"),)
    assert str(InvalidRecord(half)) == "at $.? in Bj\u00f6rk's"


def test_reasons_of_refused_records_are_cut() -> None:
    error = refusal_of(InvalidRecord, [(0, "x" * STRING_BYTES_MAX)])
    [(_, why)] = error.record_errors
    assert why == error_text("x" * STRING_BYTES_MAX)
