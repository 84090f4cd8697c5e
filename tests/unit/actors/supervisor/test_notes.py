"""Values in Ray's key-value store: written, read, refused, removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raylog.actors.roles import role_class
from raylog.actors.runtime.inproc import InprocRuntime, InprocWorld
from raylog.actors.supervisor.notes import (
    HOLD,
    LOSS,
    forget_loss,
    hold,
    holds_of,
    losses_of,
    note_key,
    note_loss,
    release,
)
from raylog.actors.supervisor.rules.holds import Hold
from tests.worlds.decorators import in_world


def tell(story: Callable[[InprocRuntime], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(InprocRuntime(InprocWorld(role_class), "i"))

    asyncio.run(run())


@in_world(tell)
async def test_a_hold_is_read_as_it_was_made_and_is_gone_when_it_is_released(
    runtime: InprocRuntime,
) -> None:
    held = Hold(3, "why", "node", 7)
    await hold(runtime, "c", held)
    await hold(runtime, "other", Hold(4, "why"))
    assert await holds_of(runtime, "c") == {3: held}
    await release(runtime, "c", 3)
    await release(runtime, "c", 3)
    assert await holds_of(runtime, "c") == {}


@in_world(tell)
async def test_first_note_of_a_loss_is_kept(runtime: InprocRuntime) -> None:
    await note_loss(runtime, "c", 1, "d")
    first = (await losses_of(runtime, "c"))[1]
    await asyncio.sleep(0.002)
    await note_loss(runtime, "c", 1, "d")
    assert await losses_of(runtime, "c") == {1: first}
    await note_loss(runtime, "c", 1, "next")
    (again,) = (await losses_of(runtime, "c")).values()
    assert again.directory_id == "next"
    assert again.since_ms > first.since_ms
    await forget_loss(runtime, "c", 1)
    assert await losses_of(runtime, "c") == {}


@pytest.mark.parametrize(
    "contents", [b"", b"[]", b"{}", b'{"version": 2, "broker_id": 1}', b'{"version": "1"}', b"\xff"]
)
@in_world(tell)
async def test_malformed_note_holds_its_broker_and_reports_no_loss(
    runtime: InprocRuntime, *, contents: bytes
) -> None:
    await hold(runtime, "c", Hold(2, "why"))
    for key in (note_key(HOLD, "c", 1), note_key(LOSS, "c", 1), f"{HOLD}/c/x"):
        await runtime.kv_put(key, contents)
    held = await holds_of(runtime, "c")
    assert {*held} == {1, 2}
    assert held[1].why.startswith("hold/c/1 ")
    assert not held[1].node_id, "it ends by command only"
    assert await losses_of(runtime, "c") == {}
    await release(runtime, "c", 1, held[1])
    assert {*(await holds_of(runtime, "c"))} == {2}
