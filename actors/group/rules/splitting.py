"""Splits large requests into parts that block the event loop only briefly.

Their items succeed or fail independently, so each part is an ordinary request.
`actors/coordination/rules/joining.py` joins the responses in request order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from raylog.actors.coordination.rules.placement import key_weight
from raylog.actors.group.rules.gathering import KINDS, once
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.offset_delete import OffsetDeleteRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

PART = 250
"""Items per part: groups, members, or topics and partitions. A long group id counts several
times."""


class _Items(NamedTuple):
    """Where the items of a message are."""

    name: str
    inner: tuple[str, ...] = ()
    """Names of nested arrays, from the outside in, whose elements also count as items."""


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


def split(request: Any) -> list[Any]:
    """Split a request; return only the request itself if it is small or cannot be split."""
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
    """Yield lists of at most PART elements; an item with more elements is cut."""
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
