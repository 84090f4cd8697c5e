"""Links to the writers of markers: opened late, broken, or to a leader that is deposed."""

import asyncio

import pytest

from raylog.actors.metadata.records import PartitionChanged
from raylog.actors.names import TRANSACTIONS_TOPIC, broker_name
from raylog.actors.runtime.base import PeerLost
from raylog.actors.transaction import markers
from raylog.actors.transaction.messages import AddPartitions
from tests.unit.actors.transaction.test_actor import EVERYWHERE, U0, opened, state
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import BROKER
from tests.worlds.metadata import id_of
from tests.worlds.runtime import FakeLink, settle
from tests.worlds.transaction.actor import (
    CLUSTER,
    LOCAL,
    OTHER_BROKER,
    REMOTE,
    TransactionActorWorld,
    run,
)
from tests.worlds.transaction.shard import INIT_VERSION, SECOND, end, init


def opening(world: TransactionActorWorld) -> list[asyncio.Future[None]]:
    """Attempts to reach the other broker's leader from now on; the test says what becomes of each.

    The list grows.
    """
    attempts: list[asyncio.Future[None]] = []
    connect = world.world.connect

    async def slow(address: str) -> FakeLink:
        if address == REMOTE:
            attempts.append(asyncio.get_running_loop().create_future())
            await attempts[-1]
        return await connect(address)

    world.world.connect = slow  # type: ignore[method-assign]  # one that takes its time
    return attempts


@in_world(run, TMP_PATH)
async def test_markers_that_come_while_a_link_is_opened_go_over_it_too(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    attempts = opening(world)
    for name in "ab":
        answer = await world.ask(init(name), INIT_VERSION)
        holder = answer.producer_id, answer.producer_epoch
        one = AddPartitions(name, *holder, verify_only=False, topics=EVERYWHERE)
        assert await world.ask_add(one) == [0, 0, 0]
        request = end(*holder)
        request.transactional_id = name
        await world.ask(request, SECOND)
        await world.world.advance(100)
    assert world.leaders[REMOTE].markers == {}
    (attempt,) = attempts
    attempt.set_result(None)
    await settle()
    assert len(world.leaders[REMOTE].markers[U0]) == 2


@in_world(run, TMP_PATH)
async def test_former_leader_sends_nothing_over_a_link_that_opens_late(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    attempts = opening(world)
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    await world.apply(PartitionChanged(id_of(TRANSACTIONS_TOPIC), 0, leader=OTHER_BROKER))
    attempts[0].set_result(None)
    await world.world.advance(5_000)
    assert world.leaders[REMOTE].frames == 0
    assert len(attempts) == 1


@in_world(run, TMP_PATH)
async def test_a_leader_that_cannot_be_reached_is_tried_again_and_so_is_its_broker(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    attempts = opening(world)
    name = broker_name(CLUSTER, OTHER_BROKER)
    broker = world.world.peers.pop(name)
    await world.ask(end(*holder), SECOND)
    await world.world.advance(2_000)
    assert attempts == []
    world.world.peers[name] = broker
    await world.world.advance(2_000)
    attempts[0].set_exception(PeerLost("refused"))
    await world.world.advance(2_000)
    assert await state(world) == "PrepareCommit"
    attempts[1].set_result(None)
    await world.world.advance(5)
    assert await state(world) == "CompleteCommit"
    assert len(world.leaders[REMOTE].markers[U0]) == 1


@in_world(run, TMP_PATH)
async def test_a_late_answer_of_a_former_leader_says_nothing_of_the_next_one(
    world: TransactionActorWorld,
) -> None:
    """Its marker may be cut off again: it was not replicated, or the other one would have it."""

    await world.begin()
    holder = await opened(world, with_offsets=False)
    former, now = world.leaders[REMOTE].link, world.leaders[LOCAL].link
    former.answering = None
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    now.answering = None
    await world.apply(PartitionChanged(id_of("u"), 0, leader=BROKER))
    await world.world.advance(1_000)
    former.take().reply([[0]])
    await settle()
    assert await state(world) == "PrepareCommit"
    now.take().reply([[0]])
    await world.world.advance(5)
    assert await state(world) == "CompleteCommit"


@in_world(run, TMP_PATH)
async def test_a_marker_that_is_answered_when_its_shard_is_left_ends_nothing(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    link = world.leaders[REMOTE].link
    link.answering = None
    await world.ask(end(*holder), SECOND)
    await world.world.advance(5)
    batches = len(world.log.batches)
    await world.apply(PartitionChanged(id_of(TRANSACTIONS_TOPIC), 0, leader=OTHER_BROKER))
    link.take().reply([[0]])
    await world.world.advance(5_000)
    assert len(world.log.batches) == batches
    assert len(link.requests) == 1, "nothing more is asked"


@in_world(run, TMP_PATH)
async def test_the_number_of_known_leaders_is_limited(
    world: TransactionActorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions whose leader is forgotten have their leader located again."""

    monkeypatch.setattr(markers, "ADDRESSES_MAX", 1)
    await world.begin()
    holder = await opened(world)
    await world.ask(end(*holder), SECOND)
    await world.world.advance(5_000)
    assert await state(world) == "CompleteCommit"
    assert len(world.actor._sender._addresses) == 1
