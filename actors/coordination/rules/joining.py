"""Joins the answers to the parts of a request.

Large requests, and small ones that ask for everything, are split so that no part blocks the event
loop for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from raylog.actors.coordination.rules.placement import key_weight

_SAME = ("group_id", "topic_id", "name")
"""Fields that two items must share to be parts of one item that was split."""
_CUT = ("topics", "partitions")
"""Names of an answer's lists whose items may be split; those of described groups are not."""


def light_parts(
    keys: Iterable[str], most: int, weight_of: Callable[[str], int] = key_weight
) -> Iterator[list[str]]:
    """Split keys into lists of weight `most` or less, unless one key alone weighs more.

    Yields at least one list.
    """
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


class Together:
    """Waits for `count` answers; `done` gets them in order."""

    def __init__(self, count: int, done: Callable[[list[Any]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._left = count
        self._done = done
        if not count:
            done([])

    def part(self, place: int) -> Callable[[Any], None]:
        """Return the callback for the answer with this index."""

        def answered(answer: Any) -> None:
            self._answers[place] = answer
            self._left -= 1
            if not self._left:
                self._done(self._answers)

        return answered


class Joined:
    """Collects the answers to the parts of a request; `done` gets the joined answer."""

    def __init__(self, done: Callable[[Any], None]) -> None:
        self._answers: list[Any] = []
        self._left = 1  # until all parts are known
        self._done = done

    def part(self) -> Callable[[Any], None]:
        """Return the callback for the answer to the next part."""
        place = len(self._answers)
        self._answers.append(None)
        self._left += 1

        def answered(response: Any) -> None:
            self._answers[place] = response
            self._settle()

        return answered

    def all_asked(self) -> None:
        """Declare that no part follows."""
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
    """Add another answer's items, and its error unless there is one already."""
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
    """Whether two items with nested items are parts of the same one."""
    slots = getattr(type(first), "__slots__", ())
    if not any(name in slots for name in _CUT):
        return False
    return all(getattr(first, name) == getattr(second, name) for name in _SAME if name in slots)
