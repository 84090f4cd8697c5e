"""The errors in answers about the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from raylog.client.errors import InvalidSetting
from raylog.wire.errors import ErrorCode, error_of

R = TypeVar("R")
E = TypeVar("E", bound=IntEnum)


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise an answer's error, naming what it is about."""
    if code != ErrorCode.NONE:
        raise error_of(code, f"{what}: {message}" if message else what)


def member_of(kind: type[E], number: int, otherwise: E) -> E:
    """A member of an enum; `otherwise` for a number that a newer broker has added."""
    try:
        return kind(number)
    except ValueError:
        return otherwise


def items_in(given: Iterable[R], *kinds: type[R]) -> list[R]:
    """What an operation is given, as a list; TypeError unless all are of some kinds."""
    expected = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(given, (str, *kinds)) or not isinstance(given, Iterable):
        raise TypeError(f"expected a list of {expected}, found {given!r} alone")
    found = list(given)
    for one in found:
        if not isinstance(one, kinds):
            raise TypeError(f"expected {expected}, found {one!r}")
    return found


def names_in(given: Iterable[str], what: str) -> list[str]:
    """Names as a list. One name alone is refused: it would be taken for a list of letters."""
    if isinstance(given, str):
        raise TypeError(f"expected a list of {what}, found {given!r} alone")
    return list(given)


def split_principal(principal: str) -> tuple[str, str]:
    """Type and name of a principal; raises InvalidSetting."""
    kind, colon, name = principal.partition(":") if isinstance(principal, str) else ("", "", "")
    if not (kind and colon and name):
        raise InvalidSetting(f"expected a principal such as 'User:ann', found {principal!r}")
    return kind, name
