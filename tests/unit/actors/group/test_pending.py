"""Offsets of open transactions: which of them count, are replaced, overtaken, dropped or ended."""

from __future__ import annotations

import pytest

from raylog.actors.group.rules.pending import (
    NO_EPOCH,
    PendingOffset,
    PendingOffsets,
    Producer,
    StoredOffset,
)

FIRST, SECOND = Producer(7, 0), Producer(8, 5)


def add(
    pending: PendingOffsets,
    producer: Producer,
    partition: int = 0,
    *,
    group: str = "g",
    topic: str = "t",
) -> PendingOffset:
    """An offset on its way into the log."""
    stored = StoredOffset(pending.next_number * 10, -1, "", 0, -1, b"")
    return pending.add(producer, group, topic, partition, stored)


def numbers(pending: PendingOffsets, group: str = "g") -> dict[tuple[str, int], list[int]]:
    """What is pending, by topic and partition."""
    return {where: [one.number for one in some] for where, some in pending.of(group).items()}


def test_confirmed_offset_replaces_the_producers_earlier_one() -> None:
    pending = PendingOffsets()
    for producer, partition in ((FIRST, 0), (SECOND, 0), (FIRST, 1), (FIRST, 0), (FIRST, 0)):
        add(pending, producer, partition)
    add(pending, FIRST, topic="u")
    pending.confirm([3])
    assert numbers(pending) == {("t", 0): [1, 3, 4], ("t", 1): [2], ("u", 0): [5]}
    pending.confirm([4])
    assert numbers(pending) == {("t", 0): [1, 4], ("t", 1): [2], ("u", 0): [5]}
    assert len(pending) == 4


def test_a_newer_epoch_of_a_producer_replaces_what_it_wrote_before() -> None:
    pending = PendingOffsets()
    add(pending, FIRST)
    newer = FIRST._replace(epoch=1)
    pending.confirm([add(pending, newer).number])
    assert numbers(pending) == {("t", 0): [1]}
    assert pending.epoch_of(FIRST.producer_id) == 1


def test_the_newest_epoch_of_a_producer_is_reported() -> None:
    pending = PendingOffsets()
    assert pending.epoch_of(FIRST.producer_id) == NO_EPOCH
    for epoch, partition in ((3, 0), (9, 1), (4, 2)):
        add(pending, FIRST._replace(epoch=epoch), partition)
    assert pending.epoch_of(FIRST.producer_id) == 9
    assert pending.epoch_of(SECOND.producer_id) == NO_EPOCH


def test_a_transaction_is_open_from_when_the_log_has_it_until_its_marker_is_on_its_way() -> None:
    pending = PendingOffsets()
    one = add(pending, FIRST)
    assert not pending.is_open(FIRST)
    pending.confirm([one.number])
    assert pending.is_open(FIRST)
    assert not pending.is_open(FIRST._replace(epoch=1)), "another transaction"
    assert not pending.is_open(SECOND)
    pending.close(SECOND.producer_id)
    assert pending.is_open(FIRST)
    pending.close(FIRST.producer_id)
    assert not pending.is_open(FIRST)
    pending.confirm([add(pending, FIRST, 1).number])
    assert pending.is_open(FIRST)


def test_a_marker_ends_what_its_producer_wrote_before_it() -> None:
    pending = PendingOffsets()
    add(pending, FIRST, 1)
    add(pending, SECOND, 0)
    add(pending, FIRST, 0)
    before = pending.close(FIRST.producer_id)
    assert before == pending.next_number == 3
    add(pending, FIRST, 1)
    ended = pending.end(FIRST.producer_id, before)
    assert [one.number for one in ended] == [0, 2]
    assert numbers(pending) == {("t", 0): [1], ("t", 1): [3]}
    assert pending.end(FIRST.producer_id, before) == []


@pytest.mark.parametrize(("before", "overtaken"), [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 1, 2])])
def test_offsets_before_a_number_are_overtaken(before: int, overtaken: list[int]) -> None:
    pending = PendingOffsets()
    for producer in (FIRST, SECOND, FIRST):
        add(pending, producer)
    other = add(pending, FIRST, 1)
    pending.overtake("g", "t", 0, before)
    pending.overtake("unknown", "t", 0, 9)
    found = [one.number for one in pending.of("g")["t", 0] if one.is_overtaken]
    assert found == overtaken
    assert len(pending) == 4
    assert not other.is_overtaken


@pytest.mark.parametrize(("before", "left"), [(0, [0, 1, 2]), (1, [1, 2]), (2, [2]), (3, [])])
def test_offsets_before_a_tombstone_are_forgotten(before: int, left: list[int]) -> None:
    pending = PendingOffsets()
    for producer in (FIRST, SECOND, FIRST):
        add(pending, producer)
    add(pending, FIRST, 1)
    pending.forget("g", "t", 0, before)
    assert numbers(pending).get(("t", 0), []) == left
    assert numbers(pending)["t", 1] == [3]


def test_revert_removes_offsets_and_returns_the_affected_groups() -> None:
    pending = PendingOffsets()
    add(pending, FIRST)
    add(pending, FIRST, group="h")
    add(pending, FIRST, 1, group="h")
    assert pending.revert([1, 2, 99]) == {"h"}
    assert pending.revert([1]) == set()
    assert numbers(pending, "h") == {}
    assert numbers(pending) == {("t", 0): [0]}
    assert pending.next_number == 3, "a number is used once"


def test_nothing_is_kept_of_what_is_pending_no_longer() -> None:
    pending = PendingOffsets()
    for partition in range(3):
        add(pending, FIRST, partition)
        add(pending, SECOND, partition)
    pending.end(FIRST.producer_id, pending.next_number)
    pending.revert(range(6))
    assert len(pending) == 0
    assert pending.of("g") == {}
    fresh = PendingOffsets()
    fresh.next_number = pending.next_number
    assert vars(pending) == vars(fresh)
