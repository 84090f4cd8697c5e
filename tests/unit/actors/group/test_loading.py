"""What loading reads from the log: where it begins, and transactions ended by their markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.group import loading
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.loading import load
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.shard import Shard
from raylog.wire.internal.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.worlds.coordination.loading import batch, control, load_from

FIRST, SECOND = (7, 0), (8, 3)
"""Producers."""


def put(partition: int, offset: int, topic: str = "t", group: str = "g") -> LogRecord:
    """A committed offset."""
    value = OffsetCommitValue(offset=offset, metadata="m", commit_timestamp=5, topic_id=b"i" * 16)
    return LogRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), value)


def drop(partition: int) -> LogRecord:
    """A tombstone."""
    return LogRecord(OffsetCommitKey(group="g", topic="t", partition=partition), None)


def empty(group: str) -> LogRecord:
    """A classic group without members."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=0
    )
    return LogRecord(GroupMetadataKey(group=group), value, 3)


def load_of(path: Path, *batches: bytearray, start: int = 0) -> Shard:
    """What a load brings."""
    shard = Shard(GroupSettings(), Assigning())
    load_from(path, start, batches, lambda runtime, link, route: load(runtime, link, route, shard))
    return shard


def offsets(shard: Shard, group: str = "g") -> dict[tuple[str, int], int]:
    """A group's offsets."""
    return {
        (topic, partition): stored.offset
        for topic, partitions in shard.offsets.of(group).items()
        for partition, stored in partitions.items()
    }


def pending(shard: Shard) -> dict[int, list[tuple[int, bool]]]:
    """Pending offsets of `g` by partition, in order, and whether each is overtaken."""
    found = shard.offsets.pending.of("g")
    return {
        partition: [(one.stored.offset, one.is_overtaken) for one in some]
        for (_, partition), some in found.items()
    }


def test_records_before_the_start_of_the_log_are_passed_over(tmp_path: Path) -> None:
    shard = load_of(tmp_path, batch(put(0, 1), empty("gone"), put(1, 2), empty("h")), start=2)
    assert offsets(shard) == {("t", 1): 2}
    assert [*shard.groups] == ["h"]


def test_offsets_of_transactions_before_the_start_of_the_log_are_passed_over(
    tmp_path: Path,
) -> None:
    shard = load_of(tmp_path, batch(put(0, 1), put(1, 2), producer=FIRST), start=1)
    assert pending(shard) == {1: [(2, False)]}


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_decides_about_its_producers_offsets_alone(
    tmp_path: Path, *, committed: bool
) -> None:
    shard = load_of(
        tmp_path,
        batch(put(0, 1), put(1, 1), producer=FIRST),
        batch(put(0, 2), put(2, 2), producer=SECOND),
        control(committed=committed, producer=SECOND),
    )
    expected = {("t", 0): 2, ("t", 2): 2} if committed else {}
    assert offsets(shard) == expected
    assert pending(shard) == {0: [(1, committed)], 1: [(1, False)]}


def test_an_offset_that_was_committed_behind_it_counts(tmp_path: Path) -> None:
    shard = load_of(
        tmp_path,
        batch(put(0, 1), put(1, 1), producer=FIRST),
        batch(put(0, 5)),
        control(committed=True, producer=FIRST),
        batch(put(2, 6)),
    )
    assert offsets(shard) == {("t", 0): 5, ("t", 1): 1, ("t", 2): 6}
    assert pending(shard) == {}


def test_later_commit_in_the_log_overtakes_only_earlier_offsets(
    tmp_path: Path,
) -> None:
    shard = load_of(
        tmp_path,
        batch(put(0, 1), producer=FIRST),
        batch(put(0, 2), producer=SECOND),
        control(committed=True, producer=FIRST),
    )
    assert offsets(shard) == {("t", 0): 1}
    assert pending(shard) == {0: [(2, False)]}
    both = load_of(
        tmp_path,
        batch(put(0, 1), producer=FIRST),
        batch(put(0, 2), producer=SECOND),
        control(committed=True, producer=SECOND),
        control(committed=True, producer=FIRST),
    )
    assert offsets(both) == {("t", 0): 2}


def test_last_offset_of_a_loaded_transaction_counts(tmp_path: Path) -> None:
    shard = load_of(
        tmp_path,
        batch(put(0, 1), producer=FIRST),
        batch(put(0, 2), producer=FIRST),
        control(committed=True, producer=FIRST),
    )
    assert offsets(shard) == {("t", 0): 2}


@pytest.mark.parametrize("producer", [None, FIRST, SECOND])
def test_a_tombstone_takes_away_what_is_pending_before_it(
    tmp_path: Path, producer: tuple[int, int] | None
) -> None:
    shard = load_of(
        tmp_path,
        batch(put(0, 5)),
        batch(put(0, 1), put(1, 1), producer=FIRST),
        batch(drop(0), producer=producer),
        batch(put(0, 3), producer=SECOND),
        control(committed=True, producer=FIRST),
    )
    assert offsets(shard) == {("t", 1): 1}
    assert pending(shard) == {0: [(3, False)]}


def test_pending_offsets_are_loaded_in_log_order(tmp_path: Path) -> None:
    shard = load_of(
        tmp_path,
        batch(put(1, 1), producer=FIRST),
        batch(put(0, 2), producer=SECOND),
        batch(put(0, 3), producer=FIRST),
    )
    found = shard.offsets.pending
    assert pending(shard) == {1: [(1, False)], 0: [(2, False), (3, False)]}
    numbers = [one.number for some in found.of("g").values() for one in some]
    assert numbers == [0, 1, 2]
    assert found.epoch_of(SECOND[0]) == 3
    assert all(one.is_open for some in found.of("g").values() for one in some)
    assert shard.group_ids() == ["g"], "it is a group though it has no offset that counts"


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 5])
def test_all_offsets_are_placed_however_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(loading, "COMMITS_AT_ONCE", at_once)
    shard = load_of(
        tmp_path,
        batch(put(0, 1), put(300, 2), put(0, 3, "u"), put(1, 9)),
        batch(put(0, 4, group="h"), drop(1)),
    )
    assert offsets(shard) == {("t", 0): 1, ("t", 300): 2, ("u", 0): 3}
    assert offsets(shard, "h") == {("t", 0): 4}
    stored = shard.offsets.get("g", "t", 300)
    assert stored is not None
    assert (stored.metadata, stored.commit_timestamp, stored.topic_id) == ("m", 5, b"i" * 16)
