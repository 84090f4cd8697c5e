"""What voters' copies may differ in: only the tail that a controller which is over has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.actors.metadata.log import LogEntry, LogSnapshot, MetadataLog
from raylog.actors.simulation.agreement import GivenOut, mismatch
from tests.support.disk import FaultyDisk

Written = tuple[int, bytes]
"""Controller epoch and record of an entry."""
BEGUN: tuple[Written, ...] = ((1, b"a"), (1, b"b"))


def _entries(*written: Written) -> list[LogEntry]:
    return [LogEntry(at, epoch, (record,)) for at, (epoch, record) in enumerate(written)]


def _copy(*written: Written) -> MetadataLog:
    copy = MetadataLog(Path("/simulated/metadata"), FaultyDisk())
    copy.append(_entries(*written))
    return copy


def _given_out(*written: Written) -> GivenOut:
    """Records, each with the epoch of the controller that gave it out."""
    given_out = GivenOut()
    for at, (epoch, record) in enumerate(written):
        given_out.add(at, record, epoch)
    return given_out


def test_what_only_one_voter_has_of_a_controller_that_is_over_may_differ() -> None:
    given_out = _given_out(*BEGUN, (2, b"c"))
    stale = _copy(*BEGUN, (1, b"lost"), (1, b"lost too"))
    assert given_out.missing(stale) is None
    assert not given_out.is_whole(stale), "it does not count for the majority"


def test_who_ends_in_an_earlier_epoch_may_lack_what_came_after() -> None:
    assert _given_out(*BEGUN, (2, b"c")).missing(_copy(*BEGUN)) is None
    assert _given_out(*BEGUN).missing(_copy((1, b"a"))) is None, "the controller's next append"


@pytest.mark.parametrize("tail", [((2, b"other"),), ((1, b"lost"), (2, b"d")), ((3, b"other"),)])
def test_who_has_heard_of_the_epoch_has_nothing_else_in_the_place(
    tail: tuple[Written, ...],
) -> None:
    assert _given_out(*BEGUN, (2, b"c")).missing(_copy(*BEGUN, *tail)) == 2


def test_a_later_controllers_log_holds_all_that_was_committed_before() -> None:
    assert _given_out(*BEGUN, (1, b"c")).missing(_copy((1, b"a"), (2, b"x"))) == 1
    assert _given_out(*BEGUN).missing(_copy((2, b"a"))) == 1


def test_a_snapshot_stands_for_what_is_below_it() -> None:
    copy = _copy(*BEGUN)
    snapshot = LogSnapshot(2, 2, (b"ab",))
    copy.finish_install(snapshot, copy.prepare_install(snapshot))
    assert _given_out(*BEGUN).missing(copy) is None
    assert _given_out(*BEGUN, (1, b"c")).missing(copy) == 2


def test_the_first_controller_that_gives_a_record_out_has_committed_it() -> None:
    given_out = GivenOut()
    given_out.add(1, b"b", 3)
    assert given_out.records == []
    given_out.add(0, b"a")
    assert given_out.records == [b"a", b"b"]
    copy = _copy((1, b"a"), (2, b"lost"))
    assert given_out.missing(copy) is None
    given_out.add(1, b"b", 2)
    assert given_out.missing(copy) == 1


def test_logs_that_agree_at_one_place_agree_before_it() -> None:
    one = _entries((1, b"a"), (1, b"b"), (2, b"c"), (2, b"d"))
    assert mismatch(one, _entries((1, b"a"), (1, b"b"), (1, b"lost"))) is None
    assert mismatch(one, []) is None
    assert mismatch(one[1:], one) is None, "behind a snapshot"
    other = _entries((1, b"a"), (1, b"x"), (2, b"c"))
    assert mismatch(one, other) == (one[1], other[1])
    same_place = _entries((1, b"a"), (1, b"x"))
    assert mismatch(one, same_place) == (one[1], same_place[1])
