"""How voters' copies may differ: only in the tail that a deposed controller left."""

from __future__ import annotations

import pytest

from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.log_copy import Append, LogCopy
from raylog.simulation.agreement import GivenOut, mismatch

Written = tuple[int, bytes]
"""Controller epoch and record of an entry."""
BEGUN: tuple[Written, ...] = ((1, b"a"), (1, b"b"))


def _entries(*written: Written) -> list[LogEntry]:
    return [LogEntry(at, epoch, (record,)) for at, (epoch, record) in enumerate(written)]


def _copy(*written: Written) -> LogCopy:
    copy = LogCopy()
    copy.apply(Append(tuple(_entries(*written))))
    return copy


def _given_out(*written: Written) -> GivenOut:
    """Records, each with the epoch of the controller that gave it out."""
    given_out = GivenOut()
    for at, (epoch, record) in enumerate(written):
        given_out.add(at, record, epoch)
    return given_out


def test_uncommitted_entries_of_a_former_controller_may_differ() -> None:
    given_out = _given_out(*BEGUN, (2, b"c"))
    stale = _copy(*BEGUN, (1, b"lost"), (1, b"lost too"))
    assert given_out.missing(stale) is None
    assert not given_out.is_whole(stale), "it does not count for the majority"


def test_copy_that_ends_in_an_earlier_epoch_may_lack_later_entries() -> None:
    assert _given_out(*BEGUN, (2, b"c")).missing(_copy(*BEGUN)) is None
    assert _given_out(*BEGUN).missing(_copy((1, b"a"))) is None, "the controller's next append"


@pytest.mark.parametrize("tail", [((2, b"other"),), ((1, b"lost"), (2, b"d")), ((3, b"other"),)])
def test_copy_with_other_entries_of_the_epoch_is_a_disagreement(
    tail: tuple[Written, ...],
) -> None:
    assert _given_out(*BEGUN, (2, b"c")).missing(_copy(*BEGUN, *tail)) == 2


def test_a_later_controllers_log_holds_all_that_was_committed_before() -> None:
    assert _given_out(*BEGUN, (1, b"c")).missing(_copy((1, b"a"), (2, b"x"))) == 1
    assert _given_out(*BEGUN).missing(_copy((2, b"a"))) == 1


def test_a_snapshot_stands_for_what_is_below_it() -> None:
    copy = _copy(*BEGUN)
    snapshot = LogSnapshot(2, 2, (b"ab",))
    copy.replace(snapshot)
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
