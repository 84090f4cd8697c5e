"""Large requests in parts, each of which holds the event loop for a moment only.

What they ask succeeds or fails item by item, so parts are requests like others. Their answers make
one again, in the order asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from raylog.actors.coordination.placement import key_weight
from raylog.actors.group.gathering import KINDS, once
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.offset_delete import OffsetDeleteRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

PART = 250
"""Items of a part: groups, members, or topics and partitions; a long group id counts as several."""


class _Items(NamedTuple):
    """Where a message has its items."""

    name: str
    inner: tuple[str, ...] = ()
    """Names of arrays in the items, from outside in, whose elements are items as well."""


_ASKED: dict[type, _Items] = {
    OffsetCommitRequest: _Items("topics", ("partitions",)),
    TxnOffsetCommitRequest: _Items("topics", ("partitions",)),
    OffsetDeleteRequest: _Items("topics", ("partitions",)),
    LeaveGroupRequest: _Items("members"),
    DescribeGroupsRequest: _Items("groups"),
    DeleteGroupsRequest: _Items("groups_names"),
    ConsumerGroupDescribeRequest: _Items("group_ids"),
}
_ASKED_OF_GROUPS = _Items("groups", ("topics", "partition_indexes"))
_ASKED_OF_GROUP = _Items("topics", ("partition_indexes",))
_SAME = ("group_id", "topic_id", "name")
"""What tells whether two items are parts of one that was cut."""
_CUT = ("topics", "partitions")
"""What an answer's items have that may have been cut; groups that are described are not."""


def split(request: Any) -> list[Any]:
    """The parts of a request; itself alone where it is small, or cannot be split."""
    if isinstance(request, OffsetFetchRequest):
        items = _ASKED_OF_GROUPS if request.groups else _ASKED_OF_GROUP
    elif type(request) in _ASKED:
        items = _ASKED[type(request)]
    else:
        return [request]
    asked = getattr(request, items.name)
    if not asked:
        return [request]
    if type(request) in KINDS and items is not _ASKED_OF_GROUP:
        asked = once(asked)
    return [replace(request, **{items.name: part}) for part in _parts(asked, items.inner)]


def _parts(items: Sequence[Any], inner: tuple[str, ...]) -> Iterator[list[Any]]:
    """Lists of items with PART elements at most; items that have more themselves are cut."""
    part: list[Any] = []
    size = 0
    for item in _cut(items, inner):
        weight = _weight(item, inner)
        if size + weight > PART and part:
            yield part
            part, size = [], 0
        part.append(item)
        size += weight
    if part:
        yield part


def _cut(items: Sequence[Any], inner: tuple[str, ...]) -> Iterator[Any]:
    for item in items:
        if not inner or _weight(item, inner) <= PART:
            yield item
            continue
        for some in _parts(getattr(item, inner[0]), inner[1:]):
            yield replace(item, **{inner[0]: some})


def _weight(item: Any, inner: tuple[str, ...]) -> int:
    if not inner:
        return key_weight(item) if isinstance(item, str) else 1
    elements = getattr(item, inner[0]) or ()
    if len(inner) == 1:
        return 1 + len(elements)
    return 1 + sum(_weight(one, inner[1:]) for one in elements)


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
