"""InitProducerId: ids from the controller's blocks, no id twice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from raylog.actors.controller.messages import AllocateProducerIds, ProducerIdBlock
from raylog.wire.errors import ErrorCode, StaleBrokerEpoch
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.runtime import settle


def plain(**more: Any) -> InitProducerIdRequest:
    fields = {"transactional_id": None, "transaction_timeout_ms": 1000, **more}
    return InitProducerIdRequest(**fields)


def blocks(world: World, size: int) -> None:
    starts = itertools.count(1000, size)
    world.controller.script["allocate_producer_ids"] = lambda _asked: ProducerIdBlock(
        next(starts), size
    )


@pytest.mark.parametrize("version", range(6))
@in_world(run)
async def test_ids_go_on_from_block_to_block(world: World, *, version: int) -> None:
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


@in_world(run)
async def test_many_at_once_share_the_blocks(world: World) -> None:
    await world.brokers(1)
    blocks(world, 4)
    clients = [world.client() for _ in range(10)]
    for client in clients:
        client.send(plain(), 5)
    await settle()
    given = [answer.producer_id for client in clients for answer in client.received()]
    assert sorted(given) == list(range(1000, 1010))
    assert len(world.controller.asked) == 3


@in_world(run)
async def test_a_refusing_controller_is_asked_again(world: World) -> None:
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


@in_world(run)
async def test_no_block_in_time_is_an_error_that_producers_retry(world: World) -> None:
    world.controller.lost = 1_000_000
    client = world.client()
    client.send(plain(), 5)
    await world.runtime.advance(10_000)
    (answer,) = client.received()
    assert answer == InitProducerIdResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1
    )


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (plain(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (plain(producer_id=5), ErrorCode.INVALID_REQUEST),
        (plain(producer_epoch=5), ErrorCode.INVALID_REQUEST),
        (plain(transactional_id="t"), ErrorCode.NOT_COORDINATOR),
    ],
)
@in_world(run)
async def test_refusals(
    world: World, *, request_: InitProducerIdRequest, expected: ErrorCode
) -> None:
    answer = await world.client().ask(request_, 5)
    assert answer == InitProducerIdResponse(error_code=expected, producer_epoch=-1)
    assert world.controller.asked == []


@in_world(run)
async def test_an_id_held_so_far_is_replaced(world: World) -> None:
    await world.brokers(1)
    blocks(world, 2)
    answer = await world.client().ask(plain(producer_id=5, producer_epoch=3), 5)
    assert (answer.producer_id, answer.producer_epoch) == (1000, 0)


@in_world(run)
async def test_a_controller_that_refuses_is_not_asked_for_nobody(world: World) -> None:
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
