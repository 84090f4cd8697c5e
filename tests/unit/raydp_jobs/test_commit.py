"""The sink's driver as a machine: every way from InitProducerId to EndTxn and back."""

from collections.abc import Sequence

import pytest

from raylog.client.accumulator import ProducerIdentity
from raylog.client.cluster import TopicPartition
from raylog.client.groups import CommittedOffset
from raylog.raydp_jobs.commit import (
    TIMEOUT_MS_MAX,
    AddOffsets,
    AnswerLost,
    Batch,
    BatchFailed,
    BatchMachine,
    CommitOffsets,
    Compare,
    Compared,
    Effect,
    End,
    Ended,
    Event,
    Finished,
    Identified,
    Next,
    OffsetsAdded,
    OffsetsCommitted,
    OffsetsRead,
    ReadOffsets,
    Refused,
    SourceMismatch,
    TakeIdentity,
    TaskReport,
    Write,
    WriteLost,
    Written,
)
from raylog.raydp_jobs.marks import Mark
from raylog.raydp_jobs.protocol import FIRST, SECOND, Protocol
from raylog.wire.errors import ErrorCode

ONE, TWO = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
OUT = [TopicPartition("out", partition) for partition in range(2)]
IN = TopicPartition("in", 0)
REPORTS = [TaskReport(OUT[0], 3, 2), TaskReport(OUT[1], 0, -1)]
SEQUENCES = {OUT[0]: 2}
MARK = Mark("q", 4)
NOW_MS = 1_000
FENCED = [
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
]


def machine(
    protocol: Protocol = SECOND,
    *,
    mark: Mark = MARK,
    starts: int | None = None,
    identity: ProducerIdentity | None = None,
) -> BatchMachine:
    """A machine for batch 4 of query q."""
    begins = {} if starts is None else {IN: starts}
    return BatchMachine(Batch(mark, OUT, begins, {IN: 30}), protocol, identity)


def committed(query_id: str, batch_id: int, source: int = 20) -> OffsetsRead:
    """What the group holds after a batch."""
    metadata = Mark(query_id, batch_id).encode()
    return OffsetsRead(
        {
            OUT[0]: CommittedOffset(batch_id, -1, metadata),
            IN: CommittedOffset(source, -1, metadata),
        }
    )


NOTHING = OffsetsRead({})


def effects(played: BatchMachine, events: Sequence[Event]) -> list[Effect]:
    """All effects, the first one included."""
    found = [played.start(NOW_MS).effect]
    return found + [played.handle(event, NOW_MS).effect for event in events]


def at_write(protocol: Protocol = SECOND) -> BatchMachine:
    """A machine whose tasks write."""
    played = machine(protocol)
    assert effects(played, [Identified(ONE), NOTHING])[-1] == Write(ONE)
    return played


def test_a_batch_under_version_2() -> None:
    """InitProducerId, OffsetFetch, decide, write, compare, offsets, end."""
    events: list[Event] = [
        Identified(ONE),
        committed("q", 3),
        Written(REPORTS),
        Compared(SEQUENCES),
        OffsetsCommitted(),
        Ended(TWO),
    ]
    assert effects(machine(), events) == [
        TakeIdentity(60_000),
        ReadOffsets(),
        Write(ONE),
        Compare(ONE, [OUT[0]]),
        CommitOffsets(ONE),
        End(ONE),
        Finished(True, TWO),
    ]


def test_a_batch_under_version_1_adds_the_group_and_keeps_no_identity() -> None:
    events: list[Event] = [
        Identified(ONE),
        NOTHING,
        Written(REPORTS),
        Compared(SEQUENCES),
        OffsetsAdded(),
        OffsetsCommitted(),
        Ended(ONE),
    ]
    assert effects(machine(FIRST), events)[3:] == [
        Compare(ONE, [OUT[0]]),
        AddOffsets(ONE),
        CommitOffsets(ONE),
        End(ONE),
        Finished(True, None),
    ]


def test_version_2_goes_on_with_the_identity_of_the_last_end() -> None:
    played = machine(identity=TWO)
    assert effects(played, [committed("q", 3)]) == [ReadOffsets(), Write(TWO)]


def test_version_1_takes_an_identity_for_every_batch() -> None:
    assert machine(FIRST, identity=TWO).start(NOW_MS).effect == TakeIdentity(60_000)


@pytest.mark.parametrize("batch_id", [4, 5])
def test_a_batch_of_this_query_that_is_written_is_skipped(batch_id: int) -> None:
    found = effects(machine(), [Identified(ONE), committed("q", batch_id)])
    assert found[-1] == Finished(False, ONE)


def test_a_batch_of_the_same_number_of_another_query_is_no_reason_to_skip() -> None:
    assert effects(machine(), [Identified(ONE), committed("p", 4)])[-1] == Write(ONE)


def test_another_query_goes_on_at_the_committed_source_offsets() -> None:
    played = machine(mark=Mark("q", 0), starts=20)
    assert effects(played, [Identified(ONE), committed("p", 9, source=20)])[-1] == Write(ONE)


def test_another_query_that_begins_elsewhere_is_refused() -> None:
    played = machine(mark=Mark("q", 0), starts=0)
    with pytest.raises(SourceMismatch, match=r"begins at 0 of in-0.*ended at 20"):
        effects(played, [Identified(ONE), committed("p", 9, source=20)])


def test_offsets_that_are_not_the_sinks_decide_nothing() -> None:
    foreign = OffsetsRead({OUT[0]: CommittedOffset(9, -1, "by hand"), IN: CommittedOffset(1)})
    assert effects(machine(starts=20), [Identified(ONE), foreign])[-1] == Write(ONE)


@pytest.mark.parametrize(
    ("events", "effect"),
    [
        ([], TakeIdentity(60_000)),
        ([Identified(ONE)], ReadOffsets()),
        ([Identified(ONE), NOTHING, Written(REPORTS), Compared(SEQUENCES)], CommitOffsets(ONE)),
        (
            [Identified(ONE), NOTHING, Written(REPORTS), Compared(SEQUENCES), OffsetsCommitted()],
            End(ONE),
        ),
    ],
)
@pytest.mark.parametrize(
    "trouble",
    [
        AnswerLost("cut"),
        Refused(ErrorCode.CONCURRENT_TRANSACTIONS, ""),
        Refused(ErrorCode.UNSTABLE_OFFSET_COMMIT, ""),
        Refused(ErrorCode.NOT_COORDINATOR, ""),
    ],
)
def test_what_passes_is_repeated_as_it_was(
    events: list[Event], effect: Effect, trouble: Event
) -> None:
    """CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT, and above all a lost answer to EndTxn."""
    played = machine()
    effects(played, events)
    pauses = []
    for _ in range(4):
        again = played.handle(trouble, NOW_MS)
        assert again.effect == effect
        pauses.append(again.pause_ms)
    assert pauses == [20, 40, 80, 160]


def test_an_end_without_an_answer_is_given_up_undecided_and_never_run_again() -> None:
    played = at_write()
    for event in (Written(REPORTS), Compared(SEQUENCES), OffsetsCommitted()):
        played.handle(event, NOW_MS)
    assert played.handle(AnswerLost("cut"), NOW_MS + 119_999).effect == End(ONE)
    with pytest.raises(BatchFailed, match="cut"):
        played.handle(AnswerLost("cut"), NOW_MS + 120_000)


@pytest.mark.parametrize("code", FENCED)
@pytest.mark.parametrize(
    "events",
    [
        [Written(REPORTS)],
        [Written(REPORTS), Compared(SEQUENCES)],
        [Written(REPORTS), Compared(SEQUENCES), OffsetsCommitted()],
    ],
    ids=["compare", "offsets", "end"],
)
def test_fenced_means_not_committed_and_the_whole_batch_runs_again(
    code: ErrorCode, events: list[Event]
) -> None:
    """With a new identity first, and the committed offsets before anything is written."""
    played = at_write()
    for event in events:
        played.handle(event, NOW_MS)
    assert played.handle(Refused(code, ""), NOW_MS) == Next(TakeIdentity(60_000))
    assert played.handle(Identified(TWO), NOW_MS).effect == ReadOffsets()
    assert played.handle(NOTHING, NOW_MS).effect == Write(TWO)


def test_a_batch_that_was_committed_after_all_is_not_run_again() -> None:
    """The retry of an EndTxn whose answer was lost may find the next epoch in place."""
    played = at_write()
    for event in (Written(REPORTS), Compared(SEQUENCES), OffsetsCommitted(), AnswerLost("cut")):
        played.handle(event, NOW_MS)
    played.handle(Refused(ErrorCode.PRODUCER_FENCED, ""), NOW_MS)
    played.handle(Identified(TWO), NOW_MS)
    assert played.handle(committed("q", 4), NOW_MS).effect == Finished(False, TWO)


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ([REPORTS[0]], "not each once"),
        ([REPORTS[0], REPORTS[0]], "not each once"),
        ([TaskReport(OUT[0], 3, 3), REPORTS[1]], "last sequence 3"),
        ([TaskReport(OUT[0], 0, -1, "OUT_OF_ORDER_SEQUENCE_NUMBER"), REPORTS[1]], "OUT_OF_ORDER"),
    ],
    ids=["missing", "twice", "gap", "failed"],
)
def test_tasks_that_do_not_agree_are_run_again(reports: list[TaskReport], reason: str) -> None:
    played = at_write()
    played.runs_max = 2
    assert played.handle(Written(reports), NOW_MS).effect == TakeIdentity(60_000)
    played.handle(Identified(TWO), NOW_MS)
    played.handle(NOTHING, NOW_MS)
    with pytest.raises(BatchFailed, match=reason):
        played.handle(Written(reports), NOW_MS)


@pytest.mark.parametrize("found", [{}, {OUT[0]: 5}, {OUT[0]: 1}])
def test_a_leader_that_holds_another_last_sequence_is_believed(
    found: dict[TopicPartition, int],
) -> None:
    played = at_write()
    played.handle(Written(REPORTS), NOW_MS)
    assert played.handle(Compared(found), NOW_MS).effect == TakeIdentity(60_000)


def test_a_batch_without_rows_is_committed_too() -> None:
    """Its source offsets count all the same."""
    played = at_write()
    reports = [TaskReport(key, 0, -1) for key in OUT]
    assert played.handle(Written(reports), NOW_MS).effect == CommitOffsets(ONE)


def test_a_failed_write_takes_a_new_identity_before_the_next_run() -> None:
    played = at_write()
    assert played.handle(WriteLost("executor lost"), NOW_MS).effect == TakeIdentity(60_000)
    assert played.handle(Identified(TWO), NOW_MS).effect == ReadOffsets()


def test_runs_are_counted() -> None:
    played = at_write()
    for _ in range(played.runs_max - 1):
        played.handle(WriteLost("executor lost"), NOW_MS)
        played.handle(Identified(TWO), NOW_MS)
        played.handle(NOTHING, NOW_MS)
    with pytest.raises(BatchFailed, match=r"executor lost \(run 5 of 5\)"):
        played.handle(WriteLost("executor lost"), NOW_MS)


def test_a_write_that_outlived_the_transaction_gets_a_longer_one() -> None:
    played = at_write()
    again = played.handle(WriteLost("aborted"), NOW_MS + 60_000)
    assert again.effect == TakeIdentity(120_000)


def test_no_transaction_is_longer_than_brokers_allow() -> None:
    played = at_write()
    played.timeout_ms = TIMEOUT_MS_MAX
    again = played.handle(WriteLost("aborted"), NOW_MS + TIMEOUT_MS_MAX)
    assert again.effect == TakeIdentity(TIMEOUT_MS_MAX)


def test_rows_that_no_run_could_write_fail_the_batch_at_once() -> None:
    played = at_write()
    report = TaskReport(OUT[0], 0, -1, "MESSAGE_TOO_LARGE: 2 MiB", is_final=True)
    with pytest.raises(BatchFailed, match="out-0: MESSAGE_TOO_LARGE"):
        played.handle(Written([report, REPORTS[1]]), NOW_MS)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "AUTHORIZATION"),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
    ],
)
def test_what_does_not_pass_is_raised(code: ErrorCode, says: str) -> None:
    played = machine()
    played.start(NOW_MS)
    with pytest.raises(BatchFailed, match=says):
        played.handle(Refused(code, ""), NOW_MS)


def test_a_group_with_members_is_not_the_sinks() -> None:
    played = at_write()
    played.handle(Written(REPORTS), NOW_MS)
    played.handle(Compared(SEQUENCES), NOW_MS)
    with pytest.raises(BatchFailed, match="has no members"):
        played.handle(Refused(ErrorCode.UNKNOWN_MEMBER_ID, ""), NOW_MS)


def test_the_transaction_says_where_the_source_was_and_which_batch_it_is() -> None:
    offsets = Batch(Mark("q", 4), OUT, {}, {IN: 30}).offsets()
    metadata = Mark("q", 4).encode()
    assert offsets == {
        OUT[0]: CommittedOffset(4, -1, metadata),
        IN: CommittedOffset(30, -1, metadata),
    }


def test_a_topic_is_not_copied_into_itself() -> None:
    """The offset that carries the mark would be the source's."""
    with pytest.raises(SourceMismatch, match="out is read, and written to"):
        Batch(Mark("q", 4), OUT, {}, {OUT[0]: 30}).offsets()
