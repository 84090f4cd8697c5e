"""InitProducerId: which producer gets which id and epoch, in every state."""

from dataclasses import replace

import pytest

from raylog.actors.transaction.rules.ids import ProducerIdPool
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.state import EPOCH_MAX, LAST_EPOCH, NEVER_MS, State
from raylog.wire.errors import CoordinatorLoadInProgress, ErrorCode
from raylog.wire.internal.transactions import TransactionLogKey
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.worlds.transaction.shard import (
    FIRST,
    FIRST_PRODUCER_ID,
    INIT_VERSION,
    SECOND,
    TransactionWorld,
    add,
    end,
    init,
)

PID = FIRST_PRODUCER_ID
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


def given(world: TransactionWorld, request: InitProducerIdRequest) -> tuple[int, int]:
    """The id and epoch that a producer gets."""
    answer = world.ask(request, INIT_VERSION)
    assert not answer.error_code, ErrorCode(answer.error_code)
    return answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (init(""), ErrorCode.INVALID_REQUEST),
        (init(producer_id=5), ErrorCode.INVALID_REQUEST),
        (init(producer_epoch=5), ErrorCode.INVALID_REQUEST),
        (init(timeout_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (init(timeout_ms=900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (init(two_phase=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (init(keep=True), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_init_producer_id_is_refused(
    request_: InitProducerIdRequest, code: ErrorCode
) -> None:
    world = TransactionWorld()
    answer = world.ask(request_, 6)
    assert answer.error_code == code
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert not world.log


def test_every_producer_id_of_a_block_is_given_once() -> None:
    pool = ProducerIdPool()
    with pytest.raises(CoordinatorLoadInProgress):
        pool.take()
    short = [pool.was_short]
    pool.add(0, 0)  # nothing comes
    short.append(pool.was_short)
    pool.add(5, 3)
    pool.add(100, 1)
    assert [*short, pool.was_short] == [True, True, False]
    assert len(pool) == 4
    assert [pool.take() for _ in range(4)] == [5, 6, 7, 100]
    with pytest.raises(CoordinatorLoadInProgress):
        pool.take()


def test_two_phase_commit_has_to_be_enabled_and_has_no_timeout() -> None:
    world = TransactionWorld(TransactionSettings(two_phase_commit=True))
    assert world.ask(init(keep=True), 6).error_code == ErrorCode.INVALID_REQUEST
    answer = world.ask(init(two_phase=True, keep=True, timeout_ms=-1), 6)
    assert (answer.producer_id, answer.producer_epoch) == (PID, 0)
    assert answer.ongoing_txn_producer_id == -1
    assert world.found.timeout_ms == NEVER_MS


def test_each_start_raises_the_epoch() -> None:
    world = TransactionWorld()
    assert [given(world, init()) for _ in range(3)] == [(PID, 0), (PID, 1), (PID, 2)]
    assert world.state() is State.EMPTY
    world.crash()
    assert given(world, init()) == (PID, 3)


def test_the_timeout_is_that_of_the_last_start() -> None:
    world = TransactionWorld()
    given(world, init())
    given(world, init(timeout_ms=900_000))
    assert world.found.timeout_ms == 900_000


def test_a_new_id_is_given_whatever_a_producer_says_to_have() -> None:
    assert given(TransactionWorld(), init(producer_id=77, producer_epoch=5)) == (PID, 0)


def test_a_producer_that_goes_on_and_one_that_repeats_itself() -> None:
    world = TransactionWorld()
    given(world, init())
    assert given(world, init(producer_id=PID, producer_epoch=0)) == (PID, 1)
    assert given(world, init(producer_id=PID, producer_epoch=0)) == (PID, 1), "repeated"
    assert given(world, init(producer_id=PID, producer_epoch=1)) == (PID, 2)
    assert world.ask(init(producer_id=PID, producer_epoch=0), 5).error_code == FENCED
    assert world.ask(init(producer_id=PID + 1, producer_epoch=2), 5).error_code == FENCED
    given(world, init())
    assert world.ask(init(producer_id=PID, producer_epoch=2), 5).error_code == FENCED


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED), (5, FENCED)],
)
def test_versions_before_4_know_no_fencing(version: int, code: ErrorCode) -> None:
    world = TransactionWorld()
    given(world, init())
    request = init(producer_id=PID + 1, producer_epoch=0)
    assert world.ask(request, version).error_code == code


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_second_producer_ends_what_the_first_has_open(level: int) -> None:
    world = TransactionWorld(level=level)
    holder = world.open(SECOND if level == 2 else FIRST)
    assert world.ask(init(), INIT_VERSION).error_code == CONCURRENT
    assert world.state() is State.PREPARE_ABORT
    assert world.ask(init(), INIT_VERSION).error_code == CONCURRENT
    (markers,) = world.write_markers()
    assert not markers.committed
    assert (markers.producer_id, markers.producer_epoch) == (PID, 1)
    assert markers.transaction_version == (2 if level == 2 else 0)
    assert given(world, init()) == (PID, 2)
    for version in (FIRST, SECOND):
        assert world.ask(end(*holder), version).error_code == FENCED
    assert world.ask(add(*holder)) == [FENCED]


@pytest.mark.parametrize("version", [FIRST, SECOND])
@pytest.mark.parametrize("committed", [True, False])
def test_a_decided_transaction_is_waited_for(version: int, *, committed: bool) -> None:
    world = TransactionWorld()
    holder = world.open(version)
    world.ask(end(*holder, committed=committed), version)
    assert world.ask(init(), INIT_VERSION).error_code == CONCURRENT
    (markers,) = world.write_markers()
    assert markers.committed is committed
    assert given(world, init()) == (PID, 1 + (version == SECOND))


@pytest.mark.parametrize("says", [True, False])
def test_after_the_last_epoch_there_is_another_id(says: bool) -> None:
    world = TransactionWorld()
    given(world, init())
    world.shard.ids.transactions["x"] = replace(world.found, producer_epoch=LAST_EPOCH)
    known = init(producer_id=PID, producer_epoch=LAST_EPOCH) if says else init()
    assert given(world, known) == (PID + 1, 0)
    if says:
        assert given(world, known) == (PID + 1, 0), "repeated"
        world.crash()
        assert world.ask(known, INIT_VERSION).error_code == FENCED
    for epoch in (0, 3):
        assert world.ask(init(producer_id=PID, producer_epoch=epoch), 5).error_code == FENCED


def test_fencing_at_the_last_epoch_uses_the_one_that_nobody_gets() -> None:
    world = TransactionWorld()
    given(world, init())
    world.shard.ids.transactions["x"] = replace(world.found, producer_epoch=LAST_EPOCH)
    assert world.ask(add(PID, LAST_EPOCH)) == [0]
    assert world.ask(init(), INIT_VERSION).error_code == CONCURRENT
    (markers,) = world.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (PID, EPOCH_MAX)
    assert given(world, init()) == (PID + 1, 1)


def test_without_producer_ids_a_producer_asks_again() -> None:
    world = TransactionWorld()
    while len(world.producer_ids):
        world.producer_ids.take()
    answer = world.ask(init(), INIT_VERSION)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [world.producer_ids.was_short] == [True]
    world.producer_ids.add(9, 1)
    assert [world.producer_ids.was_short] == [False]
    assert given(world, init()) == (9, 0)


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_records_are_written_in_the_form_of_the_cluster(level: int, version: int) -> None:
    world = TransactionWorld(level=level)
    given(world, init())
    assert [record.value_version for record in world.log] == [version]


def test_another_producer_id_afterwards_needs_the_newer_form_of_records() -> None:
    """The older one has no place for it; so Kafka writes it whatever the cluster's form is."""
    world = TransactionWorld(level=0)
    holder = world.open(FIRST)
    world.shard.ids.transactions["x"] = replace(world.found, producer_epoch=LAST_EPOCH)
    assert world.ask(init(), INIT_VERSION).error_code == CONCURRENT
    decided = [one for one in world.log if isinstance(one.key, TransactionLogKey)][-1]
    assert decided.value_version == 1
    world.crash()
    assert world.found.after == (holder[0] + 1, 0)
    world.write_markers()
    assert world.log[-1].value_version == 0
    assert world.found.holder == (holder[0] + 1, 0)
