"""One answer from those to the parts of a request, each of which holds the event loop for a moment.

Large requests are handled in parts, and small ones about everything that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from raylog.actors.coordination.placement import key_weight

_SAME = ("group_id", "topic_id", "name")
"""What tells whether two items are parts of one that was cut."""
_CUT = ("topics", "partitions")
"""What an answer's items have that may have been cut; groups that are described are not."""


def light_parts(
    keys: Iterable[str], most: int, weight_of: Callable[[str], int] = key_weight
) -> Iterator[list[str]]:
    """Keys in lists that weigh `most` at most, unless one alone weighs more; at least one list."""
    part: list[str] = []
    left = most
    for key in keys:
        weight = weight_of(key)
        if weight > left and part:
            yield part
            part, left = [], most
        part.append(key)
        left -= weight
    yield part


class Joined:
    """The answers to the parts of a request; `done` gets the whole one."""

    def __init__(self, done: Callable[[Any], None]) -> None:
        self._answers: list[Any] = []
        self._left = 1  # until all parts are asked
        self._done = done

    def part(self) -> Callable[[Any], None]:
        """What takes the answer to the next part."""
        place = len(self._answers)
        self._answers.append(None)
        self._left += 1

        def answered(response: Any) -> None:
            self._answers[place] = response
            self._settle()

        return answered

    def all_asked(self) -> None:
        """No part follows."""
        self._settle()

    def _settle(self) -> None:
        self._left -= 1
        if not self._left:
            self._done(_whole(self._answers))


def _whole(answers: list[Any]) -> Any:
    whole, *others = answers
    for other in others:
        _extend(whole, other)
    return whole


def _extend(whole: Any, other: Any) -> None:
    """Add what another answer says: its items, and its error where there is none yet."""
    for name in whole.__slots__:
        ours, theirs = getattr(whole, name), getattr(other, name)
        if name == "error_code":
            whole.error_code = ours or theirs
        elif isinstance(ours, list) and isinstance(theirs, list):
            if ours and theirs and _are_one(ours[-1], theirs[0]):
                _extend(ours[-1], theirs[0])
                theirs = theirs[1:]
            ours.extend(theirs)


def _are_one(first: Any, second: Any) -> bool:
    """Whether two items with items of their own are parts of the same."""
    slots = getattr(type(first), "__slots__", ())
    if not any(name in slots for name in _CUT):
        return False
    return all(getattr(first, name) == getattr(second, name) for name in _SAME if name in slots)
