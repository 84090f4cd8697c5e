"""InitProducerId: ids from blocks of the controller, no id twice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from raylog.actors.controller.api import AllocateProducerIds, ProducerIdBlock
from raylog.wire.errors import ErrorCode, StaleBrokerEpoch
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.gateway_world import World, run, settle


def plain(**more: Any) -> InitProducerIdRequest:
    fields = {"transactional_id": None, "transaction_timeout_ms": 1000, **more}
    return InitProducerIdRequest(**fields)


def blocks(world: World, size: int) -> None:
    starts = itertools.count(1000, size)
    world.controller.script["allocate_producer_ids"] = lambda _asked: ProducerIdBlock(
        next(starts), size
    )


@pytest.mark.parametrize("version", range(6))
def test_ids_go_on_from_block_to_block(version: int) -> None:
    async def scenario(world: World) -> None:
        await world.brokers(1)
        blocks(world, 2)
        client = world.client()
        answers = [await client.ask(plain(), version) for _ in range(5)]
        assert [answer.producer_id for answer in answers] == [1000, 1001, 1002, 1003, 1004]
        assert all(answer.producer_epoch == 0 and not answer.error_code for answer in answers)
        assert (
            world.controller.asked
            == [("allocate_producer_ids", AllocateProducerIds(broker_id=1, broker_epoch=51))] * 3
        )

    run(scenario)


def test_many_at_once_share_the_blocks() -> None:
    async def scenario(world: World) -> None:
        await world.brokers(1)
        blocks(world, 4)
        clients = [world.client() for _ in range(10)]
        for client in clients:
            client.send(plain(), 5)
        await settle()
        given = [answer.producer_id for client in clients for answer in client.received()]
        assert sorted(given) == list(range(1000, 1010))
        assert len(world.controller.asked) == 3

    run(scenario)


def test_a_refusing_controller_is_asked_again() -> None:
    async def scenario(world: World) -> None:
        await world.brokers(1)

        def refuse(_asked: Any) -> None:
            raise StaleBrokerEpoch("registering")

        world.controller.script["allocate_producer_ids"] = refuse
        client = world.client()
        client.send(plain(), 5)
        await world.runtime.advance(500)
        assert client.received() == []
        assert len(world.controller.asked) == 6, "every 100 ms"
        blocks(world, 2)
        await world.runtime.advance(200)
        (answer,) = client.received()
        assert answer.producer_id == 1000

    run(scenario)


def test_no_block_in_time_is_an_error_that_producers_retry() -> None:
    async def scenario(world: World) -> None:
        world.controller.lost = 1_000_000
        client = world.client()
        client.send(plain(), 5)
        await world.runtime.advance(10_000)
        (answer,) = client.received()
        assert answer == InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1
        )

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (plain(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (plain(producer_id=5), ErrorCode.INVALID_REQUEST),
        (plain(producer_epoch=5), ErrorCode.INVALID_REQUEST),
        (plain(transactional_id="t"), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_refusals(request_: InitProducerIdRequest, expected: ErrorCode) -> None:
    async def scenario(world: World) -> None:
        answer = await world.client().ask(request_, 5)
        assert answer == InitProducerIdResponse(error_code=expected, producer_epoch=-1)
        assert world.controller.asked == []

    run(scenario)


def test_an_id_held_so_far_is_replaced() -> None:
    async def scenario(world: World) -> None:
        await world.brokers(1)
        blocks(world, 2)
        answer = await world.client().ask(plain(producer_id=5, producer_epoch=3), 5)
        assert (answer.producer_id, answer.producer_epoch) == (1000, 0)

    run(scenario)


def test_a_controller_that_refuses_is_not_asked_for_nobody() -> None:
    async def scenario(world: World) -> None:
        await world.brokers(1)

        def refuse(_asked: Any) -> None:
            raise StaleBrokerEpoch("registering")

        world.controller.script["allocate_producer_ids"] = refuse
        client = world.client()
        client.send(plain(), 5)
        await world.runtime.advance(11_000)
        (answer,) = client.received()
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        asked = len(world.controller.asked)
        await world.runtime.advance(60_000)
        assert len(world.controller.asked) == asked
        assert world.runtime.pending_timers() == 0
        blocks(world, 2)
        assert (await client.ask(plain(), 5)).producer_id == 1000

    run(scenario)
