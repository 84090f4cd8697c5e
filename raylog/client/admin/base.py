"""What all admin operations share: their core, and checks of arguments and answers."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from raylog.client.core import Core
from raylog.client.errors import InvalidSetting

R = TypeVar("R")
E = TypeVar("E", bound=IntEnum)


class Operations:
    """Operations that use the connections of one core."""

    def __init__(self, core: Core) -> None:
        self._core = core


def member_of(kind: type[E], number: int, otherwise: E) -> E:
    """Return an enum member, or `otherwise` for a number added by a newer broker."""
    try:
        return kind(number)
    except ValueError:
        return otherwise


def items_in(given: Iterable[R], *kinds: type[R]) -> list[R]:
    """Return an operation's arguments as a list; raises TypeError unless all have given types."""
    expected = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(given, (str, *kinds)) or not isinstance(given, Iterable):
        raise TypeError(f"expected a list of {expected}, found {given!r} alone")
    found = list(given)
    for one in found:
        if not isinstance(one, kinds):
            raise TypeError(f"expected {expected}, found {one!r}")
    return found


def names_in(given: Iterable[str], what: str) -> list[str]:
    """Return names as a list; raises TypeError for a str, which would become a list of letters."""
    if isinstance(given, str):
        raise TypeError(f"expected a list of {what}, found {given!r} alone")
    return list(given)


def split_principal(principal: str) -> tuple[str, str]:
    """Return type and name of a principal; raises InvalidSetting."""
    kind, colon, name = principal.partition(":") if isinstance(principal, str) else ("", "", "")
    if not (kind and colon and name):
        raise InvalidSetting(f"expected a principal such as 'User:ann', found {principal!r}")
    return kind, name
