"""Walks over everything that the groups of a shard have committed, a part in each turn.

A shard may hold millions of offsets, and one group tens of thousands. The walk is lazy: it sees
changes to groups that it has not reached yet, but not later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from raylog.actors.coordination.rules.placement import key_weight
from raylog.actors.group.rules.offset_store import OffsetStore

PART = 250
"""Maximum partitions of a part."""


class Part(NamedTuple):
    """Some partitions of one topic for which a group has committed or pending offsets."""

    group_id: str
    topic: str | None
    """None marks the end of the group."""
    partitions: Collection[int]


def parts(
    offsets: OffsetStore, group_ids: Iterable[str], topics: Collection[str] | None = None
) -> Iterator[Part]:
    """Yield the groups' offsets for these topics, or for all, and each group's end."""
    for group_id in group_ids:
        pending: dict[str, dict[int, None]] = {}
        for topic, at in offsets.pending.of(group_id):
            pending.setdefault(topic, {})[at] = None
        for topic in sorted(offsets.of(group_id).keys() | pending.keys()):
            if topics is not None and topic not in topics:
                continue
            found = [*offsets.of(group_id).get(topic, {}).keys() | pending.get(topic, {}).keys()]
            found.sort()
            for start in range(0, len(found), PART):
                yield Part(group_id, topic, found[start : start + PART])
        yield Part(group_id, None, ())


def turn_of(walk: Iterator[Part], most: int) -> tuple[list[Part], bool]:
    """Return the next parts, about `most` partitions and groups, and whether these are the last.

    Long group ids count more, because a step may write a record for each partition and group.
    """
    some: list[Part] = []
    for part in walk:
        some.append(part)
        most -= max(len(part.partitions), 1) * key_weight(part.group_id)
        if most <= 0:
            return some, False
    return some, True
