"""Requests about several groups: split by shard, and answered together in request order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from raylog.actors.coordination.rules.placement import key_weight
from raylog.actors.group.rules.failures import SEVERAL_GROUPS_SINCE
from raylog.actors.group.rules.shard import Shard
from raylog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from raylog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from raylog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)


class Kind(NamedTuple):
    """How one API names its groups."""

    items: Callable[[Any], list[Any]]
    """Returns the request's items, one for each group."""
    group_of: Callable[[Any], str]
    """Returns an item's group id."""
    weight: Callable[[Shard, Any], int]
    """Returns the amount to describe or delete for an item, not counting the request's own size."""
    part: Callable[[Any, list[Any]], Any]
    """Builds the request for some of the items."""
    results: Callable[[Any], list[Any]]
    """Returns a response's results, in the order of its items."""
    response: Callable[[list[Any]], Any]
    """Builds the response from these results."""


def _itself(item: Any) -> str:
    return str(item)


def once(items: Iterable[Any]) -> list[Any]:
    """Return the items of a request that has a large response, without duplicates.

    Otherwise a few bytes could request gigabytes. Named partitions are not deduplicated, because
    the request itself grows with each of them.
    """
    found: dict[Hashable, Any] = {}
    for item in items:
        found.setdefault(_what(item), item)
    return list(found.values())


def _what(item: Any) -> Hashable:
    if not isinstance(item, OffsetFetchRequestGroup):
        return str(item)
    named = None if item.topics is None else id(item)
    return item.group_id, item.member_id, item.member_epoch, named


def _described(shard: Shard, group_id: str) -> int:
    group = shard.groups.get(group_id)
    return 0 if group is None else group.weight()


def stored(shard: Shard, group_id: str) -> int:
    """Return how many offsets a group has, including pending ones."""
    offsets = shard.offsets
    return sum(map(len, offsets.of(group_id).values())) + len(offsets.pending.of(group_id))


def _fetched(shard: Shard, item: OffsetFetchRequestGroup) -> int:
    return stored(shard, item.group_id) if item.topics is None else 0


KINDS: dict[type, Kind] = {
    DescribeGroupsRequest: Kind(
        lambda request: request.groups,
        _itself,
        _described,
        lambda request, items: DescribeGroupsRequest(
            groups=items, include_authorized_operations=request.include_authorized_operations
        ),
        lambda response: response.groups,
        lambda results: DescribeGroupsResponse(groups=results),
    ),
    ConsumerGroupDescribeRequest: Kind(
        lambda request: request.group_ids,
        _itself,
        _described,
        lambda request, items: ConsumerGroupDescribeRequest(
            group_ids=items, include_authorized_operations=request.include_authorized_operations
        ),
        lambda response: response.groups,
        lambda results: ConsumerGroupDescribeResponse(groups=results),
    ),
    DeleteGroupsRequest: Kind(
        lambda request: list(dict.fromkeys(request.groups_names)),
        _itself,
        stored,
        lambda _request, items: DeleteGroupsRequest(groups_names=items),
        lambda response: response.results,
        lambda results: DeleteGroupsResponse(results=results),
    ),
    OffsetFetchRequest: Kind(
        lambda request: request.groups,
        lambda item: item.group_id,
        _fetched,
        lambda request, items: OffsetFetchRequest(
            groups=items, require_stable=request.require_stable
        ),
        lambda response: response.groups,
        lambda results: OffsetFetchResponse(groups=results),
    ),
}
"""Requests that may be about several groups."""


def weight_of(kind: Kind, shard: Shard | None, item: Any) -> int:
    """Return the cost of an item, in members, partitions and offsets."""
    weight = key_weight(kind.group_of(item))
    return weight if shard is None else weight + kind.weight(shard, item)


def names_several(request: object, version: int) -> bool:
    """Whether a request lists its groups instead of naming one."""
    if isinstance(request, OffsetFetchRequest):
        return version >= SEVERAL_GROUPS_SINCE
    return type(request) in KINDS


@dataclass(slots=True)
class Gathering:
    """The parts of one request in progress; `done` gets the complete response."""

    kind: Kind
    results: list[Any]
    left: int
    done: Callable[[Any], None]

    def part(self, places: list[int]) -> Callable[[Any], None]:
        """Return the callback for the response to the items at these positions."""

        def answered(response: Any) -> None:
            for place, result in zip(places, self.kind.results(response), strict=True):
                self.results[place] = result
            self.left -= 1
            if not self.left:
                self.done(self.kind.response(self.results))

        return answered
