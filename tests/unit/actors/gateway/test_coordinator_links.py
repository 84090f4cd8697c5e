"""A gateway's links to its broker's coordinators: one each, for as long as the broker says."""

from __future__ import annotations

import asyncio
from typing import Any

from raylog.actors.gateway.coordinators import CoordinatorLinks
from raylog.actors.names import GROUP
from raylog.actors.reopening import REOPEN_MS, REOPEN_MS_MAX
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import SlowRuntime, settle


def made() -> tuple[SlowRuntime, CoordinatorLinks, list[str]]:
    runtime = SlowRuntime()
    links = CoordinatorLinks(runtime)  # type: ignore[arg-type]  # a fake
    changes: list[str] = []
    links.on_change(lambda: changes.append("changed"))
    return runtime, links, changes


async def address_known(links: CoordinatorLinks, address: str | None) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(links.apply(GROUP, address))
    await settle()
    return task


@in_loop
async def test_a_coordinator_is_reached_and_that_is_reported() -> None:
    runtime, links, changes = made()
    await address_known(links, "first")
    assert (links.link(GROUP), changes) == (None, [])
    link = await runtime.connected()
    assert links.link(GROUP) is link
    assert changes == ["changed"]


@in_loop
async def test_coordinator_that_moves_while_connecting_is_reached_at_its_new_address() -> None:
    runtime, links, _ = made()
    await address_known(links, "first")
    await address_known(links, "second")
    late = await runtime.connected()
    assert not late.is_open, "nobody needs it"
    assert links.link(GROUP) is None
    link = await runtime.connected()
    assert links.link(GROUP) is link
    assert runtime.asked == ["first", "second"]


@in_loop
async def test_coordinator_reported_twice_is_reached_by_one_link() -> None:
    runtime, links, _ = made()
    await address_known(links, "first")
    await address_known(links, "first")
    link, late = await runtime.connected(), await runtime.connected()
    assert links.link(GROUP) is link
    assert (link.is_open, late.is_open) == (True, False)


@in_loop
async def test_a_link_that_breaks_is_opened_again_ever_more_slowly() -> None:
    runtime, links, changes = made()
    await address_known(links, "first")
    link = await runtime.connected()
    link.lose()
    assert links.link(GROUP) is None
    delay_ms = REOPEN_MS
    for _ in range(7):
        await runtime.advance(delay_ms - 1)
        assert not runtime.waiting
        await runtime.advance(1)
        await runtime.refused()
        delay_ms = min(2 * delay_ms, REOPEN_MS_MAX)
    await runtime.advance(delay_ms)
    changes.clear()
    again = await runtime.connected()
    assert links.link(GROUP) is again
    assert changes == ["changed"]
    await runtime.advance(10 * REOPEN_MS_MAX)
    assert not runtime.waiting


@in_loop
async def test_a_link_to_where_the_coordinator_was_is_not_opened_again() -> None:
    runtime, links, _ = made()
    await address_known(links, "first")
    old = await runtime.connected()
    await address_known(links, "second")
    new = await runtime.connected()
    assert not old.is_open
    await address_known(links, None)
    assert links.link(GROUP) is None
    assert not new.is_open
    await runtime.advance(10 * REOPEN_MS_MAX)
    assert runtime.asked == ["first", "second"]


@in_loop
async def test_removed_coordinator_is_not_reconnected() -> None:
    runtime, links, _ = made()
    await address_known(links, "first")
    await runtime.refused()
    await address_known(links, None)
    await runtime.advance(10 * REOPEN_MS_MAX)
    assert runtime.asked == ["first"]


@in_loop
async def test_at_the_end_links_are_closed_and_none_is_opened() -> None:
    runtime, links, _ = made()
    await address_known(links, "first")
    link = await runtime.connected()
    links.close()
    assert not link.is_open
    await runtime.advance(10 * REOPEN_MS_MAX)
    assert runtime.asked == ["first"]


@in_loop
async def test_removed_change_listener_is_not_called() -> None:
    runtime, links, changes = made()
    forget = links.on_change(lambda: changes.append("twice"))
    forget()
    await address_known(links, "first")
    await runtime.connected()
    assert changes == ["changed"]
