"""Calls to the controller: deadlines and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from raylog.actors.gateway.controller_client import RETRY_MS, TIMEOUT_MAX_MS, TIMEOUT_MIN_MS
from raylog.actors.metadata.records import LeaderChanged
from raylog.actors.remote import Method
from raylog.wire.errors import InvalidRequest, NotController, RequestTimedOut
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeController, World, never, run
from tests.worlds.runtime import settle

WORK: Method[Any] = cast("Any", "work")
WORK_ON: Method[int, Any] = cast("Any", "work")
"""The name of a method, as `raylog.actors.remote` has it, without an argument and with one."""


async def while_time_passes(world: World, work: Awaitable[Any], ms: float) -> Any:
    task = asyncio.ensure_future(work)
    await world.runtime.advance(ms)
    await settle()
    assert task.done()
    return await task


@in_world(run)
async def test_a_restart_of_the_controller_is_waited_for(world: World) -> None:
    world.controller.lost = 3
    world.controller.script["work"] = lambda argument: argument + 1
    asked = world.gateway.controller.ask(WORK_ON, 1, timeout_ms=5_000)
    assert await while_time_passes(world, asked, 300) == 2
    assert len(world.controller.asked) == 4


def test_a_controller_that_does_not_serve_yet_is_asked_again() -> None:
    answers = [NotController("loading"), 5]

    def answer(_argument: Any) -> Any:
        next_answer = answers.pop(0)
        if isinstance(next_answer, Exception):
            raise next_answer
        return next_answer

    async def scenario(world: World) -> None:
        world.controller.script["work"] = answer
        asked = world.gateway.controller.ask(WORK, timeout_ms=5_000)
        assert await while_time_passes(world, asked, 100) == 5

    run(scenario)


@pytest.mark.parametrize(
    ("timeout_ms", "lasts_ms"),
    [
        (0, TIMEOUT_MIN_MS),
        (TIMEOUT_MIN_MS + 500, TIMEOUT_MIN_MS + 500),
        (5_000, 5_000),
        (TIMEOUT_MAX_MS + 500, TIMEOUT_MAX_MS),
    ],
)
@in_world(run)
async def test_the_deadline_ends_it_and_nothing_before(
    world: World, *, timeout_ms: int, lasts_ms: int
) -> None:
    world.controller.lost = 1_000_000
    asked = asyncio.ensure_future(world.gateway.controller.ask(WORK, timeout_ms=timeout_ms))
    await world.runtime.advance(lasts_ms - RETRY_MS - 1)
    assert not asked.done()
    with pytest.raises(RequestTimedOut, match=f"did not answer work within {lasts_ms} ms"):
        await while_time_passes(world, asked, RETRY_MS + 1)


@in_world(run)
async def test_no_answer_in_time(world: World) -> None:
    world.controller.script["work"] = never
    with pytest.raises(RequestTimedOut):
        await world.gateway.controller.ask(WORK, timeout_ms=5_000)
    assert len(world.controller.asked) == 1


def test_a_refusal_is_passed_on_at_once() -> None:
    def refuse(_argument: Any) -> None:
        raise InvalidRequest("nonsense")

    async def scenario(world: World) -> None:
        world.controller.script["work"] = refuse
        with pytest.raises(InvalidRequest, match="nonsense"):
            await world.gateway.controller.ask(WORK, timeout_ms=5_000)
        outcomes = await world.gateway.controller.outcomes(
            WORK_ON, 1, 5_000, lambda code, message: [(code, message)]
        )
        assert outcomes == [(int(InvalidRequest.code), "nonsense")]

    run(scenario)


@in_world(run)
async def test_another_controller_is_asked_as_soon_as_the_metadata_names_it(world: World) -> None:
    hung = asyncio.get_running_loop().create_future()

    async def hangs() -> Any:
        return await hung

    world.controller.script["work"] = lambda _argument: hangs()
    rival = FakeController()
    rival.script["work"] = lambda argument: argument + 1
    world.runtime.peers["rival"] = rival
    task = asyncio.ensure_future(world.gateway.controller.ask(WORK_ON, 1, timeout_ms=30_000))
    await settle()
    await world.topic("any")
    assert not task.done()
    await world.apply(LeaderChanged(5, "rival"))
    await world.runtime.advance(100)
    assert await task == 2
    assert hung.cancelled()
    assert await world.gateway.controller.ask(WORK_ON, 5, timeout_ms=1_000) == 6


@in_world(run)
async def test_a_caller_that_gives_up_ends_the_call(world: World) -> None:
    hung = asyncio.get_running_loop().create_future()

    async def hangs() -> Any:
        return await hung

    world.controller.script["work"] = lambda _argument: hangs()
    task = asyncio.ensure_future(world.gateway.controller.ask(WORK_ON, 1, timeout_ms=30_000))
    await settle()
    task.cancel()
    await settle()
    assert task.cancelled()
    assert hung.cancelled()
