"""What is an anomaly and what is not, in short histories."""

import pytest

from tests.checker.anomalies import Kind, Options, Verdict
from tests.checker.check import check
from tests.checker.history import History, HistoryError
from tests.checker.operations import (
    Action,
    Assign,
    Begin,
    Change,
    End,
    FinalRead,
    Operation,
    Outcome,
    Poll,
    Rebalance,
    Seek,
    Send,
    Span,
    Start,
    Subscribe,
    Topic,
)

P = ("t", 0)
OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def sent(value: str, offset: int | None, at: int = 0, **more: object) -> Send:
    outcome = UNKNOWN if offset is None else OK
    fields = {"outcome": outcome, "offset": offset, "transaction": None, "key": None} | more
    return Send("w", P, value, at, at + 1, **fields)  # type: ignore[arg-type]  # by name


def polled(at: int, *records: tuple[int, str], process: str = "r", committed: bool = True) -> Poll:
    offsets, values = [offset for offset, _ in records], [value for _, value in records]
    return Poll(process, at, at + 1, [(P, offsets, values)], committed)


def three(*more: Operation) -> list[Operation]:
    """Three records at 0, 1, 2, read by `other`."""
    sends = [sent(value, offset, at=offset * 10) for offset, value in enumerate("abc")]
    return [*sends, polled(50, (0, "a"), (1, "b"), (2, "c"), process="other"), *more]


def verdict_of(*operations: Operation, options: Options | None = None) -> Verdict:
    return check(History.of(operations), options or Options())


def kinds(*operations: Operation, options: Options | None = None) -> list[Kind]:
    return [one.kind for one in verdict_of(*operations, options=options).anomalies]


def test_a_jump_is_a_skip_unless_the_position_was_reset() -> None:
    first, second = polled(100, (0, "a")), polled(200, (2, "c"))
    assert kinds(*three(first, second)) == [Kind.SKIPPED_POLL]
    for reset in (
        Seek("r", 150, P, 2),
        Seek("r", 150, P, None),
        Assign("r", 150, [Start(P, None)]),
        Assign("r", 150, [Start(P, 2)]),
        Subscribe("r", 150, ["t"]),
        Rebalance("r", 150, Change.ASSIGNED, [P]),
        Rebalance("r", 200, Change.ASSIGNED, [P]),  # while the second poll goes on
    ):
        assert kinds(*three(first, reset, second)) == [], reset


def test_a_reset_of_another_partition_or_process_excuses_nothing() -> None:
    first, second = polled(100, (0, "a")), polled(200, (2, "c"))
    elsewhere = Rebalance("r", 150, Change.ASSIGNED, [("t", 1)])
    other = Seek("other", 150, P, 2)
    assert kinds(*three(first, elsewhere, other, second)) == [Kind.SKIPPED_POLL]


def test_reading_begins_where_it_was_told_to() -> None:
    assigned = Assign("r", 90, [Start(P, 1)])
    assert kinds(*three(assigned, polled(100, (1, "b"), (2, "c")))) == []
    assert kinds(*three(assigned, polled(100, (2, "c")))) == [Kind.SKIPPED_POLL]
    assert kinds(*three(assigned, polled(100, (0, "a"), (1, "b")))) == [Kind.NONMONOTONIC_POLL]
    back = Seek("r", 150, P, 0)
    assert kinds(*three(polled(100, (2, "c")), back, polled(200, (1, "b")))) == [Kind.SKIPPED_POLL]


def test_gaps_that_nobody_saw_as_records_are_none() -> None:
    sends = [sent("a", 0), sent("b", 5, at=10)]
    assert kinds(*sends, polled(100, (0, "a"), (5, "b"))) == []


def test_read_committed_readers_may_skip_aborted_records() -> None:
    begin, end = Begin("w", 0, "x"), End("w", 30, 31, "x", Action.ABORT, OK)
    sends = [sent("a", 0), sent("b", 1, at=10, transaction="x"), sent("c", 2, at=20)]
    dirty = polled(50, (0, "a"), (1, "b"), (2, "c"), process="dirty", committed=False)
    clean = polled(60, (0, "a"), (2, "c"))
    assert kinds(begin, *sends, end, dirty, clean) == []
    assert kinds(begin, *sends, end, dirty, polled(60, (0, "a"), (2, "c"), committed=False)) == [
        Kind.INTERNAL_SKIPPED_POLL
    ]


def test_lost_and_unseen() -> None:
    final = FinalRead("r", 100, 300, [Span(P, 0, 3)])
    reading = polled(200, (0, "a"), (2, "c"))
    sends = [sent(value, offset, at=offset * 10) for offset, value in enumerate("abc")]
    lost = verdict_of(*sends, reading, final)
    assert [(one.kind, one.values, one.offsets) for one in lost.anomalies] == [
        (Kind.LOST_WRITE, ("b",), (1,))
    ]
    unseen = verdict_of(*sends, reading)
    assert (unseen.valid, unseen.counts.unseen) == (True, 1)
    retained = FinalRead("r", 100, 300, [Span(P, 2, 3)])
    assert verdict_of(*sends, polled(200, (2, "c")), retained).counts.unseen == 0


def test_an_acknowledged_record_above_an_end_asked_for_later_is_lost() -> None:
    final = FinalRead("r", 100, 300, [Span(P, 0, 1)])
    reading = polled(200, (0, "a"))
    assert kinds(sent("a", 0), sent("b", 1, at=50), reading, final) == [Kind.LOST_WRITE]
    assert kinds(sent("a", 0), sent("b", 1, at=150), reading, final) == []


def test_unknown_outcomes_may_be_present_or_absent_but_not_twice() -> None:
    final = FinalRead("r", 100, 300, [Span(P, 0, 2)])
    sends = sent("a", 0), sent("b", None, at=10)
    assert kinds(*sends, polled(200, (0, "a")), final) == []
    assert kinds(*sends, polled(200, (0, "a"), (1, "b")), final) == []
    assert kinds(*sends, polled(200, (0, "a"), (1, "b"), (2, "b")), final) == [Kind.DUPLICATE]


def test_a_record_that_was_read_and_is_gone_is_lost_whatever_its_outcome() -> None:
    final = FinalRead("r", 100, 300, [Span(P, 0, 2)])
    early = polled(50, (0, "a"), process="other")
    assert kinds(sent("a", None), sent("b", 1, at=10), early, polled(200, (1, "b")), final) == [
        Kind.LOST_WRITE
    ]


def test_compaction_excuses_what_a_later_record_of_the_key_replaced() -> None:
    sends = [
        sent(value, offset, at=offset * 10, key=key)
        for offset, (value, key) in enumerate([("a", "k"), ("b", "other"), ("c", "k")])
    ]
    final = FinalRead("r", 100, 300, [Span(P, 0, 3)])
    early = polled(40, *enumerate("abc"), process="other")
    reading = polled(200, (1, "b"), (2, "c"))
    begin = Assign("r", 90, [Start(P, 0)])
    assert kinds(Topic("t", True), *sends, early, begin, reading, final) == []
    assert kinds(*sends, early, begin, reading, final) == [Kind.LOST_WRITE, Kind.SKIPPED_POLL]
    replaced = polled(200, (0, "a"), (2, "c"))
    found = kinds(Topic("t", True), *sends, early, begin, replaced, final)
    assert found == [Kind.LOST_WRITE, Kind.INTERNAL_SKIPPED_POLL], "b is the last of its key"


def test_a_transaction_without_a_commit_that_succeeded_or_may_have_is_never_visible() -> None:
    write = sent("a", 0, at=10, transaction="x")
    read = polled(500, (0, "a"))
    for action, outcome, wrong in (
        (Action.COMMIT, OK, []),
        (Action.COMMIT, UNKNOWN, []),
        (Action.COMMIT, FAILED, [Kind.ABORTED_READ]),
        (Action.ABORT, OK, [Kind.ABORTED_READ]),
        (Action.ABORT, UNKNOWN, [Kind.ABORTED_READ]),
    ):
        end = End("w", 30, 31, "x", action, outcome)
        assert kinds(Begin("w", 0, "x"), write, end, read) == wrong, (action, outcome)
    assert kinds(Begin("w", 0, "x"), write, read) == [], "its recorder may have died"
    dirty = polled(500, (0, "a"), committed=False)
    assert kinds(Begin("w", 0, "x"), write, End("w", 30, 31, "x", Action.ABORT, OK), dirty) == []


def test_one_record_of_an_unknown_transaction_that_was_read_proves_all_of_it() -> None:
    sends = [sent("a", 0, transaction="x"), sent("b", 1, at=10, transaction="x")]
    end = End("w", 30, 31, "x", Action.COMMIT, UNKNOWN)
    final = FinalRead("r", 100, 300, [Span(P, 0, 3)])
    assert kinds(*sends, end, polled(200, (0, "a")), final) == [Kind.LOST_WRITE]
    assert kinds(*sends, end, polled(200), final) == []


def test_a_commit_must_be_asked_for_before_anybody_reads() -> None:
    write, end = sent("a", 0, transaction="x"), End("w", 300, 400, "x", Action.COMMIT, OK)
    early, during = polled(100, (0, "a")), polled(350, (0, "a"))
    assert kinds(write, end, early) == [Kind.PRECOMMITTED_READ]
    assert kinds(write, end, during) == []
    assert kinds(write, end, early, options=Options(one_clock=False)) == []


def test_phantoms_are_allowed_where_not_all_sends_were_recorded() -> None:
    read = polled(100, (0, "a"))
    assert kinds(read) == [Kind.PHANTOM]
    assert kinds(read, options=Options(all_sends_recorded=False)) == []


def test_appends_that_overlap_in_time_may_take_any_order() -> None:
    def of(process: str, value: str, begun: int, done: int, offset: int) -> Send:
        return Send(process, P, value, begun, done, OK, offset)

    assert kinds(of("v", "a", 0, 20, 1), of("w", "b", 10, 30, 0)) == []
    late = [of("v", "a", 0, 20, 1), of("w", "b", 21, 30, 0)]
    assert kinds(*late) == [Kind.APPEND_AGAINST_TIME]
    assert kinds(*late, options=Options(one_clock=False)) == []


def test_a_value_sent_twice_is_refused() -> None:
    with pytest.raises(HistoryError, match="expected every value to be sent once, found 'a'"):
        verdict_of(sent("a", 0), sent("a", 1, at=10))


def test_evidence_is_what_proves_the_anomaly_and_no_more() -> None:
    (found,) = verdict_of(*three(polled(100, (0, "a")), polled(200, (2, "c")))).anomalies
    assert (found.values, found.offsets, found.processes) == (("b",), (1, 2), ("r",))
    assert found.message == "r went from 1 to 2 of t-0 and left out b at 1"
    assert found.operations == [
        '["send","w","t",0,"b",10,11,"ok",1,null,null]',
        '["poll","other",50,51,[["t",0,[1,2],["b","c"]]],true,null]',
        '["poll","r",200,201,[["t",0,[2],["c"]]],true,null]',
    ]
