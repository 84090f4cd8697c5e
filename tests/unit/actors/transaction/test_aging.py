"""Open transactions time out, idle ids are forgotten, and both survive a crash."""

from dataclasses import replace

import pytest

from raylog.actors.config import BROKER_KEYS
from raylog.actors.metadata.records import PartitionChanged
from raylog.actors.names import TRANSACTIONS_TOPIC
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.state import LAST_EPOCH, State
from raylog.wire.errors import ErrorCode
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.metadata import id_of
from tests.worlds.transaction.actor import OTHER_BROKER, TransactionActorWorld, run
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
TIMEOUT_MS = 60_000
WEEK_MS = 604_800_000


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transaction_of_a_dead_producer_is_aborted_after_the_timeout(level: int) -> None:
    world = TransactionWorld(level=level)
    version = SECOND if level == 2 else FIRST
    holder = world.open(version)
    world.pass_ms(TIMEOUT_MS)
    assert world.state() is State.ONGOING
    world.crash()
    world.pass_ms(1)
    assert world.state() is State.PREPARE_ABORT
    (markers,) = world.write_markers()
    assert not markers.committed
    assert (markers.producer_id, markers.producer_epoch) == (PID, 1)
    late = world.ask(end(*holder), version)
    expected = ErrorCode.INVALID_TXN_STATE if level == 2 else ErrorCode.PRODUCER_FENCED
    assert late.error_code == expected
    assert world.found.holder == (PID, 1)


def test_a_producer_whose_transaction_timed_out_goes_on() -> None:
    """KIP-588: it learns the epoch that fenced it."""
    world = TransactionWorld()
    holder = world.open()
    world.pass_ms(TIMEOUT_MS + 1)
    world.write_markers()
    answer = world.ask(end(*holder, committed=False), SECOND)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, PID, 1)
    assert world.ask(add(PID, 1)) == [0]


def test_a_decided_transaction_never_times_out() -> None:
    world = TransactionWorld()
    world.ask(end(*world.open()), SECOND)
    world.pass_ms(10 * TIMEOUT_MS)
    (markers,) = world.write_markers()
    assert markers.committed
    assert world.state() is State.COMPLETE_COMMIT


def test_a_prepared_transaction_of_two_phases_never_times_out() -> None:
    world = TransactionWorld(TransactionSettings(two_phase_commit=True))
    world.ask(init(two_phase=True), 6)
    world.ask(add(PID, 0))
    world.pass_ms(2**31)
    assert world.state() is State.ONGOING
    world.pass_ms(2 * WEEK_MS)
    assert world.state() is State.ONGOING


def test_an_exhausted_one_is_aborted_once_there_is_another_id() -> None:
    world = TransactionWorld()
    world.ask(init(), INIT_VERSION)
    world.shard.ids.transactions["x"] = replace(world.found, producer_epoch=LAST_EPOCH)
    world.ask(add(PID, LAST_EPOCH))
    while len(world.producer_ids):
        world.producer_ids.take()
    world.pass_ms(TIMEOUT_MS + 1)
    assert world.state() is State.ONGOING
    assert world.producer_ids.was_short
    world.producer_ids.add(5_000, 1)
    world.pass_ms(1)
    world.write_markers()
    assert world.found.holder == (5_000, 0)
    again = world.ask(end(PID, LAST_EPOCH, committed=False), SECOND)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, 5_000, 0)


@pytest.mark.parametrize(
    ("ended", "forgotten"),
    [(None, True), (True, True), (False, True), ("decided", False), ("open", False)],
)
def test_silent_ids_are_forgotten(ended: bool | str | None, forgotten: bool) -> None:
    world = TransactionWorld(TransactionSettings(timeout_max_ms=2**31 - 2))
    world.ask(init(timeout_ms=2**31 - 2), INIT_VERSION)
    if ended is not None:
        world.ask(add(PID, 0))
        if ended != "open":
            world.ask(end(PID, 0, committed=ended is not False), SECOND)
            if ended != "decided":
                world.write_markers()
    assert BROKER_KEYS["transactional.id.expiration.ms"].default == str(WEEK_MS)
    world.pass_ms(WEEK_MS - 1)
    assert "x" in world.shard.ids.transactions
    world.pass_ms(1)
    assert ("x" not in world.shard.ids.transactions) is forgotten
    assert (world.log[-1].value is None) is forgotten
    world.crash()
    assert ("x" not in world.shard.ids.transactions) is forgotten
    if forgotten:
        assert world.ask(end(PID, 0), SECOND).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert world.ask(init(), INIT_VERSION).producer_id == PID + 1


def test_transaction_that_cannot_be_aborted_yet_does_not_block_others() -> None:
    world = TransactionWorld()
    for name in ("exhausted", "open"):
        world.ask(init(name), INIT_VERSION)
    known = world.shard.ids.transactions
    known["exhausted"] = replace(known["exhausted"], producer_epoch=LAST_EPOCH)
    world.ask(add(PID, LAST_EPOCH)._replace(transactional_id="exhausted"))
    world.ask(add(PID + 1, 0)._replace(transactional_id="open"))
    while len(world.producer_ids):
        world.producer_ids.take()
    world.pass_ms(TIMEOUT_MS + 1)
    assert known["exhausted"].state is State.ONGOING
    assert known["open"].state is State.PREPARE_ABORT


@in_world(run, TMP_PATH)
async def test_a_shard_that_was_left_has_no_clocks(world: TransactionActorWorld) -> None:
    await world.begin()
    assert world.world.pending_timers() == 2
    await world.world.advance(25_000)
    assert world.world.pending_timers() == 2, "each is set anew, once"
    await world.apply(PartitionChanged(id_of(TRANSACTIONS_TOPIC), 0, leader=OTHER_BROKER))
    assert world.world.pending_timers() == 0
