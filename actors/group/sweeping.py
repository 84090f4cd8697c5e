"""Walks over all that the groups of a shard have committed, some of it in each turn.

A shard may hold millions of offsets, and one group tens of thousands. The walk is lazy: what has
changed before it comes to a group is seen, what changes behind it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from raylog.actors.group.offset_store import OffsetStore

PART = 250
"""Partitions of a part."""


class Part(NamedTuple):
    """Some partitions of one topic of which a group has offsets, committed or pending."""

    group_id: str
    topic: str | None
    """None: the group has no further ones."""
    partitions: Collection[int]


def parts(
    offsets: OffsetStore, group_ids: Iterable[str], topics: Collection[str] | None = None
) -> Iterator[Part]:
    """All that these groups have of these topics, or of all; each group has an end."""
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
    """The next parts, with `most` partitions and groups or a few more; whether these are all."""
    some: list[Part] = []
    for part in walk:
        some.append(part)
        most -= len(part.partitions) if part.topic is not None else 1
        if most <= 0:
            return some, False
    return some, True
