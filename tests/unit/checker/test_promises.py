"""Violations of a group's guarantees are found; each is planted in a correct history."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.checker.check import check
from tests.checker.history import History
from tests.checker.journal import SUFFIX, Done, Journal, read_journals
from tests.checker.operations import Change, Outcome, Poll, Rebalance, Seek, Send
from tests.checker.promises import (
    SHOWN_MAX,
    Effect,
    Findings,
    Order,
    Promise,
    Seen,
    judge_effects,
    judge_processing,
    judge_sessions,
)

ENDS = {0: 4, 1: 3}
RECORDS = {0: ["a0", "a1", "a2", "a3"], 1: ["b0", "b1", "b2"]}
LEAST, MOST = Promise.AT_LEAST_ONCE, Promise.AT_MOST_ONCE


def done(*places: tuple[int, int], process: str = "m-0.1", began: int = 0) -> list[Done]:
    """Records processed one after the other, from the time 100 on."""
    return [
        Done(process, began, 100 + at, partition, offset, f"k{offset % 2}")
        for at, (partition, offset) in enumerate(places)
    ]


def everything() -> list[tuple[int, int]]:
    return [(partition, offset) for partition, end in ENDS.items() for offset in range(end)]


def kinds(found: Findings) -> dict[str, int]:
    return dict(found.counts)


# -- at least once -----------------------------------------------------------------------------


def test_everything_processed_once_keeps_both_promises() -> None:
    for promise in (LEAST, MOST):
        found = judge_processing(promise, ENDS, done(*everything()), order=Order.PARTITION)
        assert kinds(found) == {}
        assert (found.records, found.processed, found.repeated, found.missing) == (7, 7, 0, 0)


def test_at_least_once_a_record_that_nobody_processed() -> None:
    found = judge_processing(LEAST, ENDS, done(*(p for p in everything() if p != (1, 1))))
    assert kinds(found) == {"missing": 1}
    assert found.shown == ["missing: nobody processed record 1 of partition 1"]


def test_at_least_once_the_last_record_of_a_partition() -> None:
    assert kinds(judge_processing(LEAST, ENDS, done(*everything()[:-1]))) == {"missing": 1}


def test_at_least_once_a_record_processed_again_by_another_life_is_allowed() -> None:
    again = [*done(*everything()), *done((0, 3), (1, 2), process="m-0.2", began=90)]
    found = judge_processing(LEAST, ENDS, again, order=Order.PARTITION)
    assert kinds(found) == {}
    assert found.repeated == 2


def test_a_partition_processed_out_of_order() -> None:
    swapped = everything()
    swapped[1], swapped[2] = swapped[2], swapped[1]
    assert kinds(judge_processing(LEAST, ENDS, done(*swapped), order=Order.NONE)) == {}
    found = judge_processing(LEAST, ENDS, done(*swapped), order=Order.PARTITION)
    assert kinds(found) == {"out of order": 1}
    assert "record 1 of partition 0 by m-0.1 after 2 by m-0.1" in found.shown[0]


def test_a_key_processed_out_of_order() -> None:
    of_two_keys = [(0, 1), (0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]
    assert kinds(judge_processing(LEAST, ENDS, done(*of_two_keys), order=Order.KEY)) == {}
    of_one_key = [(0, 2), (0, 1), (0, 0), (0, 3), (1, 0), (1, 1), (1, 2)]
    found = judge_processing(LEAST, ENDS, done(*of_one_key), order=Order.KEY)
    assert kinds(found) == {"out of order": 1}


def test_a_repeat_out_of_order_is_none() -> None:
    again = [*done(*everything()), *done((0, 1), process="m-0.2", began=90)]
    assert kinds(judge_processing(LEAST, ENDS, again, order=Order.PARTITION)) == {}


# -- commits -----------------------------------------------------------------------------------


def test_a_life_that_repeats_what_was_committed_before_it_began() -> None:
    work = [*done(*everything()), *done((0, 1), (0, 2), process="m-0.2", began=200)]
    seen = [Seen(150, 0, 2), Seen(250, 0, 4)]
    found = judge_processing(LEAST, ENDS, work, seen)
    assert kinds(found) == {"repeated after a commit": 1}
    assert "record 1 of partition 0 by m-0.2; 2 was committed before" in found.shown[0]


def test_a_life_that_repeats_what_a_note_covers() -> None:
    work = [*done(*everything()), *done((0, 1), (0, 2), process="m-0.2", began=200)]
    found = judge_processing(LEAST, ENDS, work, [Seen(150, 0, 1, [(2, 3)])])
    assert kinds(found) == {"repeated after a commit": 1}
    assert "record 2 of partition 0" in found.shown[0]


def test_a_commit_that_was_seen_after_the_life_began_excuses_it() -> None:
    work = [*done(*everything()), *done((0, 1), process="m-0.2", began=200)]
    assert kinds(judge_processing(LEAST, ENDS, work, [Seen(200, 0, 4)])) == {}


def test_a_commit_that_goes_back() -> None:
    seen = [Seen(1, 0, 3), Seen(2, 1, 1), Seen(3, 0, 2), Seen(4, 1, 1)]
    found = judge_processing(MOST, ENDS, done(*everything()), seen)
    assert kinds(found) == {"commit went back": 1}
    assert found.shown == ["commit went back: partition 0: from 3 to 2"]


# -- at most once ------------------------------------------------------------------------------


def test_at_most_once_a_record_that_two_processed() -> None:
    again = [*done(*everything()), *done((1, 0), process="m-1.1")]
    found = judge_processing(MOST, ENDS, again)
    assert kinds(found) == {"doubled": 1}
    assert "record 0 of partition 1 was processed by m-0.1 and m-1.1" in found.shown[0]


def test_at_most_once_a_record_that_nobody_processed_is_allowed() -> None:
    found = judge_processing(MOST, ENDS, done(*everything()[1:]))
    assert kinds(found) == {}
    assert found.missing == 1


# -- exactly once ------------------------------------------------------------------------------


def effects() -> list[Effect]:
    offsets = count()
    return [
        Effect(partition, offset, value, f"k{offset % 2}", f"{partition}@{next(offsets)}")
        for partition, values in RECORDS.items()
        for offset, value in enumerate(values)
    ]


def test_every_effect_once() -> None:
    found = judge_effects(RECORDS, effects(), [Seen(1, 0, 4)])
    assert kinds(found) == {}
    assert (found.records, found.processed) == (7, 7)


def test_exactly_once_an_effect_that_is_missing() -> None:
    assert kinds(judge_effects(RECORDS, effects()[:-1])) == {"missing": 1}


def test_exactly_once_an_effect_that_is_doubled() -> None:
    found = judge_effects(RECORDS, [*effects(), replace(effects()[2], place="0@9")])
    assert kinds(found) == {"doubled": 1}
    assert found.shown == ["doubled: the effect of record 2 of partition 0 is at 0@2 and 0@9"]


def test_exactly_once_effects_that_changed_places() -> None:
    moved = effects()
    moved[0], moved[1] = moved[1], moved[0]
    assert kinds(judge_effects(RECORDS, moved)) == {"out of order": 1}
    assert kinds(judge_effects(RECORDS, moved, order=Order.KEY)) == {}


def test_exactly_once_an_effect_of_another_value_or_of_no_record() -> None:
    wrong = effects()
    wrong[0] = replace(wrong[0], value="a1")
    assert kinds(judge_effects(RECORDS, wrong)) == {"not its own": 1}
    assert kinds(judge_effects(RECORDS, [*effects(), replace(wrong[0], offset=4)])) == {
        "not its own": 1
    }


# -- producers ---------------------------------------------------------------------------------


def sends(*values: str, process: str = "p-0.1") -> list[Send]:
    return [Send(process, ("t", 0), value, at, at, Outcome.OK) for at, value in enumerate(values)]


def test_a_session_without_its_last_records_has_no_gap() -> None:
    """Its process was killed."""
    assert kinds(judge_sessions(sends("a", "b", "c"), {"a": 0, "b": 1}, ())) == {}


def test_a_session_with_a_gap() -> None:
    found = judge_sessions(sends("a", "b", "c"), {"a": 0, "c": 1}, ())
    assert kinds(found) == {"gap": 1}
    assert found.shown == ["gap: partition 0: c is at 1, b before it is nowhere"]


def test_abandoned_send_is_no_gap() -> None:
    assert kinds(judge_sessions(sends("a", "b", "c"), {"a": 0, "c": 1}, {"b"})) == {}


def test_another_session_has_no_part_in_a_gap() -> None:
    both = [*sends("a", "b"), *sends("c", process="p-1.1")]
    assert kinds(judge_sessions(both, {"a": 0, "c": 1}, ())) == {}


def test_a_session_out_of_order() -> None:
    found = judge_sessions(sends("a", "b", "c"), {"a": 0, "b": 2, "c": 1}, ())
    assert kinds(found) == {"out of order": 1}


# -- findings, and journals --------------------------------------------------------------------


def test_all_anomalies_are_counted_and_some_are_shown() -> None:
    found = judge_processing(LEAST, {0: 20}, [])
    assert kinds(found) == {"missing": 20}
    assert len(found.shown) == SHOWN_MAX


def test_a_journal_tells_what_its_process_did(tmp_path: Path) -> None:
    journal = Journal(tmp_path / f"m-0.1{SUFFIX}")
    journal.write("sent", 1, "x")
    journal.write("acked", 1, "x", 7)
    journal.write("sent", 1, "y")
    journal.write("failed", 1, "y", "timed out")
    journal.write("sent", 0, "z")
    journal.write("assigned", [0, 1])
    journal.write("seek", 0, 5)
    journal.write("polled", 1, 1, [7], ["x"])
    journal.write("done", 1, [7], ["k"])
    journals = read_journals([tmp_path / f"m-0.1{SUFFIX}"], "t")
    assert journals.failed == {"y"}
    (work,) = journals.done
    assert (work.process, work.partition, work.offset, work.key) == ("m-0.1", 1, 7, "k")
    assert 0 < work.began_ns < work.at_ns
    rebalance, seek, poll, *sent = journals.operations
    assert isinstance(rebalance, Rebalance)
    assert (rebalance.change, rebalance.partitions) == (Change.ASSIGNED, [("t", 0), ("t", 1)])
    assert isinstance(seek, Seek)
    assert isinstance(poll, Poll)
    assert poll.batches == [(("t", 1), [7], ["x"])]
    outcomes = [(one.outcome, one.offset) for one in sent if isinstance(one, Send)]
    assert outcomes == [(Outcome.OK, 7), (Outcome.UNKNOWN, None), (Outcome.UNKNOWN, None)]
    assert check(History.of(journals.operations)).valid


def test_a_line_that_its_process_did_not_finish_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / f"m-0.1{SUFFIX}"
    Journal(path).write("done", 0, [1], ["k"])
    whole = json.dumps(["done", 3, 0, [2], ["k"]])
    path.write_text(path.read_text() + whole[:-4])
    assert [one.offset for one in read_journals([path], "t").done] == [1]


def test_a_line_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"m-0.1{SUFFIX}"
    Journal(path).write("dreamt", 0)
    with pytest.raises(ValueError, match="dreamt is no kind of line"):
        read_journals([path], "t")
