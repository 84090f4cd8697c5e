"""Messages of other builds: missing fields get defaults, unknown ones are ignored."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from raylog.actors.message import MESSAGES, each_taken, first_values, message, taken
from raylog.wire.error_codes import known_code
from raylog.wire.errors import ErrorCode, InvalidRequest, UnsupportedVersion


@message
class Asked(NamedTuple):
    """A named tuple message."""

    name: str
    number: int
    parts: tuple[int, ...] = ()
    share: float = 0.5
    code: ErrorCode = ErrorCode.NONE


@message
@dataclass(frozen=True, slots=True)
class Answered:
    """A dataclass message."""

    name: str
    found: list[int] = field(default_factory=list)
    why: str | None = None


MESSAGES.remove(Asked)
MESSAGES.remove(Answered)


def test_a_message_of_the_same_build_is_taken_as_it_is() -> None:
    assert taken(Asked, ["a", 1, [2], 0.25, 0]) == Asked("a", 1, [2], 0.25, ErrorCode.NONE)  # type: ignore[arg-type]  # from msgpack
    assert taken(Answered, ("a", [1], "so")) == Answered("a", [1], "so")


def test_an_older_build_leaves_new_fields_to_their_defaults() -> None:
    assert taken(Asked, ["a", 1]) == Asked("a", 1)
    assert taken(Answered, ["a"]) == Answered("a")
    assert taken(Answered, ["a"]).found is not taken(Answered, ["a"]).found


def test_fields_of_a_newer_build_are_ignored() -> None:
    for _ in range(2):
        assert taken(Asked, ["a", 1, (2,), 0.25, 0, {"new": b"field"}]) == ("a", 1, (2,), 0.25, 0)
        assert taken(Answered, ["a", [], None, object(), 1]) == Answered("a")


def test_a_message_without_a_field_that_all_builds_have_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="Asked has no number"):
        taken(Asked, ["a"])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([7, 1], "name of Asked: expected str, found int 7"),
        (["a", "x" * 1000], "number of Asked: expected int, found str 'xxx"),
        (["a", None], "number of Asked: expected int, found NoneType None"),
        (["a", 1, 5], "parts of Asked: expected list or tuple, found int 5"),
        (["a", 1, [], {}], "share of Asked: expected float or int, found dict one"),
        ("ab", "Asked: expected its fields, found str 'ab'"),
        (None, "Asked: expected its fields, found NoneType None"),
        ({1: 2}, "Asked: expected its fields, found dict one"),
    ],
)
def test_absurd_values_are_refused(values: object, why: str) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequest) as refused:
            taken(Asked, values)
        assert str(refused.value).startswith(why)
        assert len(str(refused.value)) < 200


def test_messages_are_pickled_by_the_order_of_their_fields() -> None:
    for one in (Asked("a", 1, (2, 3)), Answered("a", [4], "b")):
        again = pickle.loads(pickle.dumps(one))
        assert again == one
        assert type(again) is type(one)
        assert copy.deepcopy(one) == one


def test_a_code_of_a_newer_build_is_unknown() -> None:
    assert pickle.loads(pickle.dumps(ErrorCode.NOT_CONTROLLER)) is ErrorCode.NOT_CONTROLLER
    assert known_code(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.NOT_CONTROLLER.__reduce_ex__(5)[0] is known_code


def test_the_messages_of_many_partitions_are_of_any_build() -> None:
    older, newer = ["a", 1], ["b", 2, (), 0.5, 0, "new"]
    assert each_taken(Asked, [["c", 3, (), 0.5, 0], older, newer]) == [
        Asked("c", 3),
        Asked("a", 1),
        Asked("b", 2),
    ]


def test_values_without_a_class() -> None:
    assert first_values([1, 2, 3], 2) == [1, 2]
    with pytest.raises(UnsupportedVersion, match="expected 3 values, found"):
        first_values([1, 2], 3)
    with pytest.raises(UnsupportedVersion, match="expected 3 values, found int 7"):
        first_values(7, 3)  # type: ignore[arg-type]  # as a peer may send
