"""The sink's driver as a machine: every path from InitProducerId to EndTxn and back."""

from collections.abc import Sequence

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.transactions import FIRST, SECOND, Protocol
from raylog.sink.batches import Batch, BatchFailed, KafkaRange, SourceMismatch, StateLost
from raylog.sink.commit import (
    TIMEOUT_MS_MAX,
    AddOffsets,
    AnswerLost,
    BatchMachine,
    CheckRegistration,
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
    ReadState,
    Refused,
    Register,
    Registered,
    RegistrationChecked,
    StateRead,
    StateWritten,
    TakeIdentity,
    TaskReport,
    Write,
    WriteLost,
    WriteState,
    Written,
)
from raylog.sink.marks import Mark
from raylog.sink.state import SinkState, WrittenBatch
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


def batch(mark: Mark = MARK, starts: int = 20) -> Batch:
    """A batch that has read IN up to 30."""
    return Batch(mark, OUT, [KafkaRange({IN: starts}, {IN: 30})])


def machine(
    protocol: Protocol = SECOND,
    *,
    mark: Mark = MARK,
    starts: int = 20,
    identity: ProducerIdentity | None = None,
    state: SinkState | None = None,
    is_registered: bool = True,
) -> BatchMachine:
    """A machine for batch 4 of query q."""
    return BatchMachine(batch(mark, starts), protocol, identity, state, is_registered)


def after(query_id: str, batch_id: int, end: int = 20) -> SinkState:
    """The state after a batch that has read IN up to `end`."""
    written = WrittenBatch(Mark(query_id, batch_id), (KafkaRange({IN: 0}, {IN: end}),))
    return SinkState(batch_id + 1, written)


def read(query_id: str, batch_id: int, end: int = 20) -> StateRead:
    """The same, found."""
    return StateRead(after(query_id, batch_id, end))


BEFORE = read("q", 3)
NEXT_STATE = after("q", 3).after(batch())
STATE_PARTITION = TopicPartition("__raylog_sinks", 1)
WRITTEN_STATE = StateWritten(TaskReport(STATE_PARTITION, 1, 0))
AT_WRITE: list[Event] = [Identified(ONE), BEFORE]
AT_OFFSETS: list[Event] = [*AT_WRITE, Written(REPORTS), Compared(SEQUENCES), WRITTEN_STATE]


def effects(played: BatchMachine, events: Sequence[Event]) -> list[Effect]:
    """All effects, the first one included."""
    found = [played.start(NOW_MS).effect]
    return found + [played.handle(event, NOW_MS).effect for event in events]


def at_write(protocol: Protocol = SECOND) -> BatchMachine:
    """A machine whose tasks write."""
    played = machine(protocol)
    assert effects(played, [Identified(ONE), BEFORE])[-1] == Write(ONE)
    return played


def test_a_batch_under_version_2() -> None:
    """InitProducerId, the state, decide, write, compare, the next state, offsets, end."""
    events: list[Event] = [
        Identified(ONE),
        BEFORE,
        Written(REPORTS),
        Compared(SEQUENCES),
        WRITTEN_STATE,
        OffsetsCommitted(),
        Ended(TWO),
    ]
    assert effects(machine(), events) == [
        TakeIdentity(60_000),
        ReadState(),
        Write(ONE),
        Compare(ONE, [OUT[0]]),
        WriteState(ONE, NEXT_STATE),
        CommitOffsets(ONE),
        End(ONE),
        Finished(True, TWO, NEXT_STATE),
    ]


def test_a_batch_under_version_1_adds_the_group_and_keeps_no_identity() -> None:
    events: list[Event] = [
        Identified(ONE),
        BEFORE,
        Written(REPORTS),
        Compared(SEQUENCES),
        WRITTEN_STATE,
        OffsetsAdded(),
        OffsetsCommitted(),
        Ended(ONE),
    ]
    assert effects(machine(FIRST), events)[3:] == [
        Compare(ONE, [OUT[0]]),
        WriteState(ONE, NEXT_STATE),
        AddOffsets(ONE),
        CommitOffsets(ONE),
        End(ONE),
        Finished(True, None, NEXT_STATE),
    ]


def test_a_driver_begins_with_a_look_for_the_sink() -> None:
    """One that somebody knows is not registered: without a state it is one that was lost."""
    events: list[Event] = [RegistrationChecked(is_new=False), Identified(ONE)]
    assert effects(machine(is_registered=False), events) == [
        CheckRegistration(),
        TakeIdentity(60_000),
        ReadState(),
    ]


def test_a_sink_that_nobody_knows_is_registered_before_its_first_transaction() -> None:
    events: list[Event] = [RegistrationChecked(is_new=True), Registered(), Identified(ONE)]
    played = machine(is_registered=False, mark=Mark("q", 0))
    assert effects(played, events) == [
        CheckRegistration(),
        Register(),
        TakeIdentity(60_000),
        ReadState(),
    ]
    assert played.handle(StateRead(SinkState()), NOW_MS).effect == Write(ONE)


def test_version_2_goes_on_with_the_identity_and_state_of_the_last_end() -> None:
    played = machine(identity=TWO, state=after("q", 3))
    assert effects(played, []) == [Write(TWO)]


def test_version_1_takes_an_identity_for_every_batch() -> None:
    played = machine(FIRST, identity=TWO, state=after("q", 3))
    assert played.start(NOW_MS).effect == TakeIdentity(60_000)


def test_a_batch_that_is_written_is_skipped() -> None:
    state = read("q", 4, end=30)
    assert effects(machine(), [Identified(ONE), state])[-1] == Finished(False, ONE, state.state)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (read("q", 4, end=900), "committed up to 900, found 30"),
        (read("q", 50, end=900), "ends at 30 of in-0, comes after batch 50.*ended at 900 of in-0"),
        (read("q", 3, end=25), "committed up to 25, it begins at 20"),
        (read("p", 9, end=25), "committed up to 25, it begins at 20"),
    ],
    ids=["other end", "older batch", "gap", "another query"],
)
def test_a_batch_that_does_not_go_on_where_the_sink_stopped_is_refused(
    found: StateRead, says: str
) -> None:
    with pytest.raises(SourceMismatch, match=says):
        effects(machine(), [Identified(ONE), found])


def test_a_batch_that_is_not_the_first_needs_a_state() -> None:
    with pytest.raises(StateLost, match="batch 4 of query 'q' is not the first"):
        effects(machine(), [Identified(ONE), StateRead(SinkState())])


@pytest.mark.parametrize(
    ("events", "effect"),
    [
        ([], TakeIdentity(60_000)),
        ([Identified(ONE)], ReadState()),
        ([*AT_WRITE, Written(REPORTS), Compared(SEQUENCES)], WriteState(ONE, NEXT_STATE)),
        (AT_OFFSETS, CommitOffsets(ONE)),
        ([*AT_OFFSETS, OffsetsCommitted()], End(ONE)),
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
def test_retriable_step_is_repeated_unchanged(
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
    for event in (Written(REPORTS), Compared(SEQUENCES), WRITTEN_STATE, OffsetsCommitted()):
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
        [Written(REPORTS), Compared(SEQUENCES), WRITTEN_STATE],
        [Written(REPORTS), Compared(SEQUENCES), WRITTEN_STATE, OffsetsCommitted()],
    ],
    ids=["compare", "state", "offsets", "end"],
)
def test_fenced_means_not_committed_and_the_whole_batch_runs_again(
    code: ErrorCode, events: list[Event]
) -> None:
    """With a new identity first, and the state before anything is written."""
    played = at_write()
    for event in events:
        played.handle(event, NOW_MS)
    assert played.handle(Refused(code, ""), NOW_MS) == Next(TakeIdentity(60_000))
    assert played.handle(Identified(TWO), NOW_MS).effect == ReadState()
    assert played.handle(BEFORE, NOW_MS).effect == Write(TWO)


def test_a_batch_that_was_committed_after_all_is_not_run_again() -> None:
    """The retry of an EndTxn whose answer was lost may find the next epoch in place."""
    played = at_write()
    for event in (Written(REPORTS), Compared(SEQUENCES), WRITTEN_STATE, OffsetsCommitted()):
        played.handle(event, NOW_MS)
    played.handle(AnswerLost("cut"), NOW_MS)
    played.handle(Refused(ErrorCode.PRODUCER_FENCED, ""), NOW_MS)
    played.handle(Identified(TWO), NOW_MS)
    assert played.handle(StateRead(NEXT_STATE), NOW_MS).effect == Finished(False, TWO, NEXT_STATE)


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
    played.handle(BEFORE, NOW_MS)
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
    assert played.handle(Written(reports), NOW_MS).effect == WriteState(ONE, NEXT_STATE)


def test_a_failed_write_takes_a_new_identity_before_the_next_run() -> None:
    played = at_write()
    assert played.handle(WriteLost("executor lost"), NOW_MS).effect == TakeIdentity(60_000)
    assert played.handle(Identified(TWO), NOW_MS).effect == ReadState()


def test_runs_are_counted() -> None:
    played = at_write()
    for _ in range(played.runs_max - 1):
        played.handle(WriteLost("executor lost"), NOW_MS)
        played.handle(Identified(TWO), NOW_MS)
        played.handle(BEFORE, NOW_MS)
    with pytest.raises(BatchFailed, match=r"executor lost \(run 5 of 5\)"):
        played.handle(WriteLost("executor lost"), NOW_MS)


def test_a_write_that_outlived_the_transaction_gets_a_longer_one() -> None:
    played = at_write()
    again = played.handle(WriteLost("aborted"), NOW_MS + 60_000)
    assert again.effect == TakeIdentity(120_000)


def test_no_transaction_is_longer_than_brokers_allow() -> None:
    played = at_write()
    played.timeout_ms = TIMEOUT_MS_MAX - 1
    again = played.handle(WriteLost("aborted"), NOW_MS + TIMEOUT_MS_MAX)
    assert again.effect == TakeIdentity(TIMEOUT_MS_MAX)


def test_a_configured_timeout_never_shrinks() -> None:
    """One above what brokers allow by default: theirs allows it."""
    played = machine()
    played.timeout_ms = 4 * TIMEOUT_MS_MAX
    effects(played, AT_WRITE)
    again = played.handle(WriteLost("aborted"), NOW_MS + 4 * TIMEOUT_MS_MAX)
    assert again.effect == TakeIdentity(4 * TIMEOUT_MS_MAX)


def test_a_longer_timeout_that_the_broker_refuses_goes_back_to_the_configured_one() -> None:
    played = at_write()
    played.handle(WriteLost("aborted"), NOW_MS + 60_000)
    again = played.handle(Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, ""), NOW_MS)
    assert again.effect == TakeIdentity(60_000)
    with pytest.raises(BatchFailed, match=r"60000 ms is above"):
        played.handle(Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, ""), NOW_MS)


def test_a_state_that_is_refused_costs_a_run() -> None:
    played = machine()
    effects(played, AT_OFFSETS[:-1])
    report = TaskReport(STATE_PARTITION, 0, -1, "INVALID_PRODUCER_EPOCH")
    assert played.handle(StateWritten(report), NOW_MS).effect == TakeIdentity(60_000)


def test_a_state_that_no_run_could_write_fails_the_batch() -> None:
    played = machine()
    effects(played, AT_OFFSETS[:-1])
    report = TaskReport(STATE_PARTITION, 0, -1, "TOPIC_AUTHORIZATION_FAILED", is_final=True)
    with pytest.raises(BatchFailed, match="__raylog_sinks-1: TOPIC_AUTHORIZATION_FAILED"):
        played.handle(StateWritten(report), NOW_MS)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_offsets_of_the_group_that_are_refused_are_left_out(code: ErrorCode) -> None:
    """Nothing rests on them: a source topic that was deleted stops nobody."""
    played = machine()
    effects(played, AT_OFFSETS)
    assert played.handle(Refused(code, ""), NOW_MS).effect == End(ONE)


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
def test_fatal_commit_error_is_raised(code: ErrorCode, says: str) -> None:
    played = machine()
    played.start(NOW_MS)
    with pytest.raises(BatchFailed, match=says):
        played.handle(Refused(code, ""), NOW_MS)


def test_a_group_with_members_is_not_the_sinks() -> None:
    played = at_write()
    played.handle(Written(REPORTS), NOW_MS)
    played.handle(Compared(SEQUENCES), NOW_MS)
    played.handle(WRITTEN_STATE, NOW_MS)
    with pytest.raises(BatchFailed, match="has no members"):
        played.handle(Refused(ErrorCode.UNKNOWN_MEMBER_ID, ""), NOW_MS)
