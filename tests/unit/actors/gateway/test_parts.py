"""Changes sent to the controller in parts: each item once, in order, within the limit."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.gateway.parts import PART, in_parts

Item = tuple[str, int]


def asked(items: list[Item], *, by_name: bool) -> list[list[Item]]:
    """The parts that are asked about; the outcomes tell them one behind the other."""
    parts: list[list[Item]] = []

    async def ask(part: list[Item]) -> list[Item]:
        parts.append(part)
        return part

    key = (lambda item: item[0]) if by_name else None
    outcomes = asyncio.run(in_parts(items, ask, key))
    assert outcomes == [item for part in parts for item in part]
    return parts


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, [0]),
        (1, [1]),
        (PART - 1, [PART - 1]),
        (PART, [PART]),
        (PART + 1, [PART, 1]),
        (2 * PART - 1, [PART, PART - 1]),
        (2 * PART, [PART, PART]),
        (2 * PART + 1, [PART, PART, 1]),
    ],
)
def test_each_item_is_in_one_part(count: int, sizes: list[int], by_name: bool) -> None:
    items = [(f"t{at}", at) for at in range(count)]
    parts = asked(items, by_name=by_name)
    assert [len(part) for part in parts] == sizes
    assert [item for part in parts for item in part] == items


def test_entries_with_the_same_key_are_in_one_part() -> None:
    first, last = ("twice", 0), ("twice", PART + 1)
    others = [(f"t{at}", at) for at in range(1, PART + 1)]
    parts = asked([first, *others, last], by_name=True)
    assert parts == [[first, last, *others[:-2]], others[-2:]]


def test_a_part_is_as_long_as_the_items_of_one_key() -> None:
    same = [("same", at) for at in range(PART + 3)]
    other = ("other", 0)
    assert asked([*same, other], by_name=True) == [same, [other]]


def test_without_a_key_nothing_is_moved() -> None:
    items = [(f"t{at % PART}", at) for at in range(PART + 2)]
    assert asked(items, by_name=False) == [items[:PART], items[PART:]]


def test_no_part_follows_one_that_failed() -> None:
    parts: list[list[int]] = []

    async def ask(part: list[int]) -> list[int]:
        parts.append(part)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(in_parts(list(range(2 * PART)), ask))
    assert len(parts) == 1
