"""EndTxn: every state, both versions, repeated and not; and how epochs are exhausted."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from raylog.actors.transaction.rules.state import EPOCH_MAX, LAST_EPOCH, NEVER_MS, PREPARED, State
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.transactions import TransactionLogValue
from tests.worlds.transaction.shard import (
    FIRST,
    FIRST_PRODUCER_ID,
    INIT_VERSION,
    SECOND,
    TransactionWorld,
    add,
    add_first,
    codes_of,
    end,
    init,
)

PID = FIRST_PRODUCER_ID
NEXT_PID = PID + 1
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
START_EPOCH = 5


def world_in(state: State, version: int = SECOND) -> TransactionWorld:
    """The id x in a state that version brought about, with START_EPOCH at its holder."""
    world = TransactionWorld()
    world.ask(init(), INIT_VERSION)
    ids = world.shard.ids
    ids.transactions["x"] = replace(world.found, producer_epoch=START_EPOCH)
    if state is State.EMPTY:
        return world
    before = START_EPOCH - (version >= SECOND)
    ids.transactions["x"] = replace(world.found, producer_epoch=before)
    if state is State.ONGOING:
        ids.transactions["x"] = replace(world.found, producer_epoch=START_EPOCH)
    assert world.ask(add(PID, world.found.producer_epoch)) == [0]
    if state is State.ONGOING:
        return world
    committed = state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
    assert not world.ask(end(PID, before, committed=committed), version).error_code
    if state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        world.write_markers()
    assert world.state() is state
    assert world.found.producer_epoch == START_EPOCH
    return world


@pytest.mark.parametrize(
    ("state", "abort_again", "abort", "commit_again", "commit"),
    [
        (State.EMPTY, FENCED, NONE, FENCED, INVALID),
        (State.ONGOING, FENCED, NONE, FENCED, NONE),
        (State.PREPARE_COMMIT, CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
        (State.PREPARE_ABORT, CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
        (State.COMPLETE_COMMIT, INVALID, NONE, NONE, INVALID),
        (State.COMPLETE_ABORT, NONE, NONE, INVALID, INVALID),
    ],
)
def test_every_cell_of_version_2(
    state: State,
    abort_again: ErrorCode,
    abort: ErrorCode,
    commit_again: ErrorCode,
    commit: ErrorCode,
) -> None:
    others = CONCURRENT if state in PREPARED else FENCED
    cells = [
        (START_EPOCH - 1, False, abort_again),
        (START_EPOCH, False, abort),
        (START_EPOCH - 1, True, commit_again),
        (START_EPOCH, True, commit),
        (START_EPOCH + 1, True, others),
        (START_EPOCH - 2, False, others),
    ]
    for epoch, committed, expected in cells:
        world = world_in(state)
        before = len(world.log)
        answer = world.ask(end(PID, epoch, committed=committed), SECOND)
        assert ErrorCode(answer.error_code) is expected, (state, epoch, committed)
        is_new = expected is NONE and epoch == START_EPOCH
        assert (len(world.log) > before) is is_new
        if expected is NONE:
            after = (PID, START_EPOCH + is_new)
            assert (answer.producer_id, answer.producer_epoch) == after
            assert world.found.after == after
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (State.EMPTY, INVALID, INVALID),
        (State.ONGOING, NONE, NONE),
        (State.PREPARE_COMMIT, CONCURRENT, CONCURRENT),
        (State.PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (State.COMPLETE_COMMIT, INVALID, NONE),
        (State.COMPLETE_ABORT, NONE, INVALID),
    ],
)
@pytest.mark.parametrize("version", range(FIRST + 1))
def test_every_cell_of_version_1(
    state: State, abort: ErrorCode, commit: ErrorCode, version: int
) -> None:
    fenced = FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    cells = [
        (START_EPOCH, False, abort),
        (START_EPOCH, True, commit),
        (START_EPOCH - 1, False, fenced),
        (START_EPOCH + 1, True, fenced),
    ]
    for epoch, committed, expected in cells:
        world = world_in(state, FIRST)
        answer = world.ask(end(PID, epoch, committed=committed), version)
        assert ErrorCode(answer.error_code) is expected, (state, epoch, committed)
        assert world.found.producer_epoch == START_EPOCH
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", [FIRST, SECOND])
@pytest.mark.parametrize("committed", [True, False])
def test_markers_follow_the_decision_and_complete_it(version: int, committed: bool) -> None:
    world = TransactionWorld()
    holder = world.open(version)
    assert not world.ask(end(*holder, committed=committed), version).error_code
    assert world.state() is (State.PREPARE_COMMIT if committed else State.PREPARE_ABORT)
    (written,) = world.write_markers()
    assert written.committed is committed
    assert (written.producer_id, written.producer_epoch) == (PID, int(version == SECOND))
    assert written.partitions == {"t": {0, 1}}
    assert written.transaction_version == (2 if version == SECOND else 0)
    assert world.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert world.found.partitions == {}


def test_an_unknown_id_or_another_producer() -> None:
    world = TransactionWorld()
    for version in (FIRST, SECOND):
        assert world.ask(end(PID, 0), version).error_code == UNMAPPED
    world.open()
    for version in (FIRST, SECOND):
        assert world.ask(end(PID + 7, 0), version).error_code == UNMAPPED


def test_markers_that_come_late_complete_nothing() -> None:
    world = TransactionWorld()
    holder = world.open()
    world.ask(end(*holder), SECOND)
    late = list(world.markers)
    world.write_markers()
    assert world.ask(add(PID, 1)) == [0]
    assert not world.ask(end(PID, 1, committed=False), SECOND).error_code
    before = len(world.log)
    world.run(lambda step: world.shard.markers_written(step, late[0]))
    assert len(world.log) == before
    assert world.state() is State.PREPARE_ABORT


def exhausted(state: State) -> TransactionWorld:
    """The producer has the last epoch there is."""
    world = world_in(state)
    world.shard.ids.transactions["x"] = replace(world.found, producer_epoch=LAST_EPOCH)
    return world


@pytest.mark.parametrize("reload", [True, False])
def test_after_the_last_epoch_a_producer_goes_on_with_another_id(reload: bool) -> None:
    world = exhausted(State.ONGOING)
    answer = world.ask(end(PID, LAST_EPOCH), SECOND)
    assert (answer.producer_id, answer.producer_epoch) == (NEXT_PID, 0)
    if reload:
        world.crash()
    (markers,) = world.markers
    assert (markers.producer_id, markers.producer_epoch) == (PID, EPOCH_MAX)
    again = world.ask(end(PID, LAST_EPOCH), SECOND)
    assert again.error_code == CONCURRENT
    for who in ((PID, LAST_EPOCH - 1), (PID, LAST_EPOCH), (PID, EPOCH_MAX), (NEXT_PID, 0)):
        assert (
            world.ask(init(producer_id=who[0], producer_epoch=who[1]), 5).error_code == CONCURRENT
        )
        assert codes_of(world.ask(add_first(*who), 3)) == [CONCURRENT]
        for committed in (True, False):
            assert world.ask(end(*who, committed=committed), SECOND).error_code == CONCURRENT
    assert world.ask(add(PID, LAST_EPOCH, verify=True)) == [FENCED]
    assert world.ask(add(NEXT_PID, 0, verify=True)) == [CONCURRENT]
    assert world.ask(add(NEXT_PID, 1, verify=True)) == [UNMAPPED]
    world.write_markers()
    if reload:
        world.crash()
    again = world.ask(end(PID, LAST_EPOCH), SECOND)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, NEXT_PID, 0)
    assert world.ask(end(PID, LAST_EPOCH, committed=False), SECOND).error_code == INVALID
    assert world.ask(add(NEXT_PID, 0)) == [0]
    assert world.ask(end(PID, LAST_EPOCH), SECOND).error_code == UNMAPPED


@pytest.mark.parametrize("reload", [True, False])
@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_a_producer_goes_on_with_its_other_id_as_with_any(reload: bool, version: int) -> None:
    world = exhausted(State.ONGOING)
    assert world.ask(end(PID, LAST_EPOCH), SECOND).producer_id == NEXT_PID
    world.write_markers()
    if reload:
        world.crash()
    epoch = 0
    for _ in range(2):
        assert world.ask(add(NEXT_PID, epoch, 0)) == [0]
        assert world.ask(add(NEXT_PID, epoch, 1)) == [0], "it is open, not prepared"
        assert world.found.after == world.found.holder == (NEXT_PID, epoch)
        assert not world.ask(end(NEXT_PID, epoch), version).error_code
        epoch += version == SECOND
        (markers,) = world.write_markers()
        assert (markers.producer_id, markers.producer_epoch) == (NEXT_PID, epoch)
    assert world.state() is State.COMPLETE_COMMIT


def test_a_rotated_id_fences_the_old_one_once_it_begins_anew() -> None:
    world = exhausted(State.EMPTY)
    answer = world.ask(init(), INIT_VERSION)
    assert (answer.producer_id, answer.producer_epoch) == (NEXT_PID, 0)
    assert world.ask(end(PID, LAST_EPOCH), SECOND).error_code == FENCED


def test_without_producer_ids_an_exhausted_one_waits() -> None:
    world = exhausted(State.ONGOING)
    while len(world.producer_ids):
        world.producer_ids.take()
    answer = world.ask(end(PID, LAST_EPOCH), SECOND)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.producer_ids.was_short
    assert world.state() is State.ONGOING
    world.producer_ids.add(7_000, 1)
    assert world.ask(end(PID, LAST_EPOCH), SECOND).producer_id == 7_000


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_survives_a_crash(committed: bool) -> None:
    world = TransactionWorld()
    holder = world.open()
    world.ask(end(*holder, committed=committed), SECOND)
    before = world.coordinator_epoch
    sent = list(world.markers)
    world.crash()
    assert world.markers == sent
    assert world.coordinator_epoch > before
    world.write_markers()
    again = world.ask(end(*holder, committed=committed), SECOND)
    assert (again.error_code, again.producer_epoch) == (0, 1)


def test_the_coordinator_epoch_rises_with_every_load_that_sends_markers() -> None:
    world = TransactionWorld()
    seen = []
    for _ in range(3):
        world.open() if world.coordinator_epoch < 0 else world.ask(add(*world.found.holder))
        world.ask(end(*world.found.holder), SECOND)
        seen.append(world.coordinator_epoch)
        world.write_markers()
        world.crash()
    assert seen == [0, 1, 2]


def test_uncertain_markers_raise_the_coordinator_epoch_once() -> None:
    world = TransactionWorld()
    world.ask(end(*world.open()), SECOND)
    world.run(lambda step: world.shard.markers_uncertain(step, 0))
    world.run(lambda step: world.shard.markers_uncertain(step, 0))
    assert world.coordinator_epoch == 1


def kept(*, last: bool = False) -> TransactionWorld:
    """A prepared transaction that a new producer has been given."""
    world = TransactionWorld()
    world.settings = replace(world.settings, two_phase_commit=True)
    world.shard.ids.settings = world.settings
    world.ask(init(two_phase=True), 6)
    if last:
        world.shard.ids.transactions["x"] = replace(world.found, producer_epoch=LAST_EPOCH)
    assert world.ask(add(*world.found.holder, 0, 1)) == [0, 0]
    answer = world.ask(init(two_phase=True, keep=True), 6)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (
        PID,
        LAST_EPOCH if last else 0,
    )
    assert (answer.producer_id, answer.producer_epoch) == ((NEXT_PID, 0) if last else (PID, 1))
    return world


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("reload", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_a_kept_transaction_is_ended_by_its_new_producer(
    committed: bool, reload: bool, last: bool, version: int
) -> None:
    world = kept(last=last)
    if reload:
        world.crash()
    holder = world.found.holder
    old_epoch = world.found.producer_epoch
    assert world.found.timeout_ms == NEVER_MS
    assert world.ask(end(PID, old_epoch, committed=committed), version).error_code in (
        FENCED,
        UNMAPPED,
    )
    refused = {int(FENCED), int(UNMAPPED)}
    assert set(world.ask(add(PID, old_epoch))) <= refused
    assert set(world.ask(add(PID, old_epoch, verify=True))) <= refused
    assert world.ask(add(*holder)) == [INVALID]
    answer = world.ask(end(*holder, committed=committed), version)
    assert not answer.error_code
    after = (holder[0], holder[1] + 1) if version == SECOND else holder
    assert world.found.after == after
    if version == SECOND:
        assert (answer.producer_id, answer.producer_epoch) == after
        assert world.ask(end(*holder, committed=committed), version).error_code == CONCURRENT
    (markers,) = world.write_markers()
    assert markers.committed is committed
    assert markers.producer_id == PID
    raised = version == SECOND or not last
    assert markers.producer_epoch == old_epoch + raised + (version == SECOND and not last)
    assert world.found.holder == after
    again = world.ask(end(*holder, committed=committed), version)
    assert not again.error_code


@pytest.mark.parametrize(("producer_epoch", "code"), [(0, FENCED), (1, NONE), (2, FENCED)])
def test_keeping_a_prepared_transaction_requires_the_current_epoch(
    producer_epoch: int, code: ErrorCode
) -> None:
    world = kept()
    request = init(two_phase=True, keep=True, producer_id=PID, producer_epoch=producer_epoch)
    answer = world.ask(request, 6)
    assert answer.error_code == code
    if not code:
        assert (answer.producer_id, answer.producer_epoch) == (PID, 2)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (PID, 0)
    assert world.found.holder == (PID, 2 if code is NONE else 1)


def test_a_kept_transaction_is_aborted_by_who_does_not_keep_it() -> None:
    world = kept()
    answer = world.ask(init(), INIT_VERSION)
    assert answer.error_code == CONCURRENT
    (markers,) = world.write_markers()
    assert not markers.committed
    assert (markers.producer_id, markers.producer_epoch) == (PID, 2)
    assert world.found.holder == (PID, 2)


def crash(world: TransactionWorld) -> None:
    """The coordinator dies and its log is loaded."""
    world.crash()


def nothing(world: TransactionWorld) -> None:
    """All goes well."""


@pytest.mark.parametrize("between", [crash, nothing])
def test_a_late_end_never_means_the_next_transaction(
    between: Callable[[TransactionWorld], None],
) -> None:
    """The hole that Jepsen showed, which KIP-890 closed."""
    world = TransactionWorld()
    holder = world.open()
    world.ask(end(*holder), SECOND)
    world.write_markers()
    between(world)
    assert world.ask(add(PID, 1)) == [0]
    for committed in (True, False):
        late = world.ask(end(*holder, committed=committed), SECOND)
        assert late.error_code == FENCED
    assert world.state() is State.ONGOING


def test_an_end_of_nothing_began_when_it_ended() -> None:
    world = world_in(State.EMPTY)
    world.pass_ms(7)
    written = len(world.log)
    assert not world.ask(end(PID, START_EPOCH, committed=False), SECOND).error_code
    times = [
        record.value.transaction_start_timestamp_ms
        for record in world.log[written:]
        if isinstance(record.value, TransactionLogValue)
    ]
    assert times
    assert set(times) == {world.now_ms}
