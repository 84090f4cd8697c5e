"""Links to those who write markers: opened late, broken, or of a leader that is one no more."""

import asyncio
from pathlib import Path

from raylog.actors.metadata.records import PartitionChanged
from raylog.actors.names import TRANSACTIONS_TOPIC, broker_name
from raylog.actors.runtime.base import PeerLost
from raylog.actors.transaction.api import AddPartitions
from tests.support.coordinator_world import BROKER
from tests.support.gateway_world import FakeLink, settle
from tests.support.shards import id_of
from tests.support.transaction_world import (
    CLUSTER,
    LOCAL,
    OTHER_BROKER,
    REMOTE,
    TransactionActorWorld,
    run,
)
from tests.support.transactions import INIT_VERSION, SECOND, end, init
from tests.unit.transaction.test_actor import EVERYWHERE, U0, opened, state


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


def test_markers_that_come_while_a_link_is_opened_go_over_it_too(tmp_path: Path) -> None:
    async def scenario(world: TransactionActorWorld) -> None:
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

    run(scenario, tmp_path)


def test_who_leads_no_longer_when_a_link_is_open_sends_nothing_over_it(tmp_path: Path) -> None:
    async def scenario(world: TransactionActorWorld) -> None:
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

    run(scenario, tmp_path)


def test_a_leader_that_cannot_be_reached_is_tried_again_and_so_is_its_broker(
    tmp_path: Path,
) -> None:
    async def scenario(world: TransactionActorWorld) -> None:
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

    run(scenario, tmp_path)


def test_a_late_answer_of_a_former_leader_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    """Its marker may be cut off again: it was not replicated, or the other one would have it."""

    async def scenario(world: TransactionActorWorld) -> None:
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

    run(scenario, tmp_path)


def test_a_marker_that_is_answered_when_its_shard_is_left_ends_nothing(tmp_path: Path) -> None:
    async def scenario(world: TransactionActorWorld) -> None:
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

    run(scenario, tmp_path)
