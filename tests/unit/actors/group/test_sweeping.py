"""Scans of all offsets of a shard: their parts, and how much one turn handles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.group.rules.offset_store import OffsetStore
from raylog.actors.group.rules.pending import Producer, StoredOffset
from raylog.actors.group.rules.sweeping import PART, Part, parts, turn_of

STORED = StoredOffset(5, -1, "", 0, -1, b"")


def store(*places: tuple[str, str, int]) -> OffsetStore:
    """Offsets of these groups, topics and partitions."""
    made = OffsetStore()
    for place in places:
        made.put(*place, STORED)
    return made


def test_a_walk_goes_by_group_then_topic_then_partition() -> None:
    made = store(("g", "u", 3), ("g", "t", 2), ("g", "t", 1), ("h", "t", 0))
    made.pending.add(Producer(7, 0), "g", "t", 0, STORED)
    made.pending.add(Producer(7, 0), "g", "t", 1, STORED)
    made.pending.add(Producer(7, 0), "g", "a", 9, STORED)
    assert list(parts(made, ["h", "none", "g"])) == [
        Part("h", "t", [0]),
        Part("h", None, ()),
        Part("none", None, ()),
        Part("g", "a", [9]),
        Part("g", "t", [0, 1, 2]),
        Part("g", "u", [3]),
        Part("g", None, ()),
    ]


def test_a_walk_over_some_topics_passes_over_the_others() -> None:
    made = store(("g", "t", 0), ("g", "u", 1), ("g", "v", 2))
    assert list(parts(made, ["g"], {"u", "w"})) == [Part("g", "u", [1]), Part("g", None, ())]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (PART - 1, [PART - 1]),
        (PART, [PART]),
        (PART + 1, [PART, 1]),
        (2 * PART + 2, [PART, PART, 2]),
    ],
)
def test_many_partitions_are_several_parts(count: int, sizes: list[int]) -> None:
    made = store(*(("g", "t", at) for at in range(count)))
    *found, end = parts(made, ["g"])
    assert [len(one.partitions) for one in found] == sizes
    assert [at for one in found for at in one.partitions] == list(range(count))
    assert end.topic is None


def test_sweep_sees_changes_ahead_of_its_position() -> None:
    made = store(("g", "t", 0))
    walk = parts(made, ["g", "h"])
    assert next(walk) == Part("g", "t", [0])
    made.put("h", "u", 1, STORED)
    assert list(walk)[1:] == [Part("h", "u", [1]), Part("h", None, ())]


def walk() -> Iterator[Part]:
    """Three partitions of one group, then the ends of two."""
    return iter(
        [
            Part("g", "t", [0, 1]),
            Part("g", "u", [0]),
            Part("g", None, ()),
            Part("h", None, ()),
        ]
    )


@pytest.mark.parametrize(
    ("most", "counts"),
    [(1, [1, 1, 1, 1, 0]), (2, [1, 2, 1]), (3, [2, 2]), (4, [3, 1]), (5, [4, 0]), (6, [4])],
)
def test_a_turn_ends_with_the_part_that_fills_it(most: int, counts: list[int]) -> None:
    left, found = walk(), []
    is_last = False
    while not is_last:
        some, is_last = turn_of(left, most)
        found.append(some)
    assert [len(some) for some in found] == counts
    assert [one for some in found for one in some] == list(walk())


def test_long_group_ids_fill_a_turn_sooner() -> None:
    """Their records are long: those of a thousand groups would be too many for one batch."""
    ends = [Part(f"{n}{'x' * 10_000}", None, ()) for n in range(100)]
    some, is_last = turn_of(iter(ends), 100)
    assert (len(some), is_last) == (3, False)
