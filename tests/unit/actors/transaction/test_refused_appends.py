"""Appends to `__transaction_state` that the log refuses, or that take too long."""

from __future__ import annotations

from raylog.actors.metadata.records import PartitionChanged
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.replica import messages as api
from raylog.actors.transaction.hosting import APPEND_TIMEOUT_MS
from raylog.wire.errors import ErrorCode, NotEnoughReplicas
from tests.unit.actors.transaction.test_actor import (
    OFFSETS,
    T0,
    T1,
    U0,
    adding,
    described,
    opened,
    state,
)
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import BROKER
from tests.worlds.metadata import id_of
from tests.worlds.transaction.actor import LOCAL, OTHER_BROKER, TransactionActorWorld, run
from tests.worlds.transaction.shard import INIT_VERSION, SECOND, end, init, offsets

TOO_FEW = NotEnoughReplicas("1 in sync of 2")
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
EFFORT_MAX = 40
"""Appends in two minutes of outage: waits between two double up to 5 s."""


def loads(world: TransactionActorWorld) -> int:
    """How often the log was read."""
    return world.link.kinds().count(api.CLAIM)


def appends(world: TransactionActorWorld) -> int:
    """How often something was to be appended."""
    return world.link.kinds().count(api.PRODUCE)


@in_world(run, TMP_PATH)
async def test_a_refused_request_fails_and_nothing_else(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world)
    world.log.failure = TOO_FEW
    for _ in range(3):
        assert (await world.ask(end(*holder), SECOND)).error_code == UNAVAILABLE
        assert (await world.ask(init("y"), INIT_VERSION)).error_code == UNAVAILABLE
        assert await state(world) == "Ongoing"
        assert await world.ask_add(adding(*holder)) == [0, 0, 0], "they are there already"
    assert not world.outcomes()
    world.log.failure = None
    assert not (await world.ask(init("y"), INIT_VERSION)).error_code
    assert not (await world.ask(end(*holder), SECOND)).error_code
    await world.world.advance(5)
    assert world.outcomes() == {T0: [True], T1: [True], U0: [True], OFFSETS: [True]}
    assert loads(world) == 1, "at the beginning"


@in_world(run, TMP_PATH)
async def test_refused_end_leaves_the_described_state_unchanged(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.log.refusals.append(TOO_FEW)
    assert (await world.ask(end(*holder), SECOND)).error_code == UNAVAILABLE
    assert not (await world.ask(offsets(*holder), 4)).error_code
    everywhere = {"t": [0, 1], "u": [0], OFFSETS_TOPIC: [0]}
    assert (await state(world), await described(world)) == ("Ongoing", everywhere)
    world.brokers[BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    world.log.failure = TOO_FEW
    world.brokers[BROKER].leads = True
    await world.world.advance(10_000)
    assert (await state(world), await described(world)) == ("PrepareCommit", {})


@in_world(run, TMP_PATH)
async def test_refused_end_resumes_waiting_requests(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world)
    world.link.holding = True
    ending = world.send(end(*holder), SECOND)
    adds = world.send_add(adding(holder[0], holder[1] + 1))
    await world.world.advance(1)
    world.log.refusals.append(TOO_FEW)
    world.link.release()
    await world.world.advance(1)
    assert ending.answer.error_code == UNAVAILABLE
    assert adds == [[ErrorCode.PRODUCER_FENCED] * 3], "it is nobody's epoch"
    assert await state(world) == "Ongoing"
    assert await world.ask_add(adding(*holder)) == [0, 0, 0]


@in_world(run, TMP_PATH)
async def test_that_a_transaction_is_complete_is_written_as_soon_as_the_log_takes_it(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    world.brokers[BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    world.log.failure = TOO_FEW
    world.brokers[BROKER].leads = True
    before = appends(world)
    await world.world.advance(120_000)
    assert 5 < appends(world) - before < EFFORT_MAX
    assert await state(world) == "PrepareCommit"
    frames = world.leaders[LOCAL].frames
    world.log.failure = None
    await world.world.advance(5_000)
    assert await state(world) == "CompleteCommit"
    assert world.leaders[LOCAL].frames == frames, "markers are sent once"
    assert loads(world) == 1


@in_world(run, TMP_PATH)
async def test_an_end_that_takes_too_long_counts_when_it_is_written(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    world.link.holding = True
    ending = world.send(end(*holder), SECOND)
    await world.world.advance(APPEND_TIMEOUT_MS)
    assert ending.answer.error_code == UNAVAILABLE
    assert not world.outcomes()
    world.link.release()
    await world.world.advance(5)
    assert world.outcomes() == {T0: [True], T1: [True], U0: [True], OFFSETS: [True]}
    again = await world.ask(end(*holder), SECOND)
    assert (again.error_code, again.producer_epoch) == (0, holder[1] + 1)


@in_world(run, TMP_PATH)
async def test_no_marker_leaves_under_a_coordinator_epoch_that_may_be_lost(
    world: TransactionActorWorld,
) -> None:
    """Two coordinators must never have the same: what the log has not, the next one takes."""

    await world.begin()
    holder = await opened(world)
    world.brokers[BROKER].leads = world.brokers[OTHER_BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    world.brokers[BROKER].leads = True
    local = world.leaders[LOCAL]
    local.link.answering = None
    await world.world.advance(2_000)
    first = local.link.take()
    world.link.holding = True
    await world.apply(PartitionChanged(id_of("t"), 0, leader=BROKER))  # it may hang
    await world.world.advance(2_000)
    sent = [request for request in local.link.requests if request is not first]
    assert not sent, "the next epoch is on its way into the log"
    world.log.refusals.append(TOO_FEW)
    world.link.release()
    await world.world.advance(100)
    assert not [request for request in local.link.requests if request is not first]
    local.link.answering = local._answer
    await world.world.advance(5_000)
    epochs = {one.coordinator_epoch for one in local.markers[T0]}
    assert epochs == {1}


@in_world(run, TMP_PATH)
async def test_a_successor_after_a_refused_epoch_has_one_of_its_own(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    world.log.refusals.append(TOO_FEW)
    assert (await world.ask(end(*holder), SECOND)).error_code == UNAVAILABLE
    assert not (await world.ask(end(*holder), SECOND)).error_code
    await world.world.advance(5)
    world.process.kill()
    await world.begin()
    other = await opened(world)
    assert not (await world.ask(end(*other), SECOND)).error_code
    await world.world.advance(5)
    first, second = world.leaders[LOCAL].markers[T0]
    assert (first.coordinator_epoch, second.coordinator_epoch) == (0, 1)


@in_world(run, TMP_PATH)
async def test_a_loaded_shard_completes_what_was_decided_as_soon_as_it_can_write(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    world.brokers[BROKER].leads = world.brokers[OTHER_BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    world.process.kill()
    world.log.failure = TOO_FEW
    before = appends(world)
    await world.begin()
    await world.world.advance(120_000)
    assert 5 < appends(world) - before < EFFORT_MAX
    assert await state(world) == "PrepareCommit", "it answers meanwhile"
    world.brokers[BROKER].leads = world.brokers[OTHER_BROKER].leads = True
    world.log.failure = None
    await world.world.advance(6_000)
    assert await state(world) == "CompleteCommit"
    assert loads(world) == 2


@in_world(run, TMP_PATH)
async def test_leadership_that_ends_ends_what_is_repeated(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world)
    world.brokers[BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    world.log.failure = TOO_FEW
    world.brokers[BROKER].leads = True
    await world.world.advance(5_000)
    await world.apply(PartitionChanged(id_of(TRANSACTIONS_TOPIC), 0, leader=OTHER_BROKER))
    before = appends(world)
    await world.world.advance(60_000)
    assert appends(world) == before
