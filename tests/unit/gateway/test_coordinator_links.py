"""A gateway's links to the coordinators of its broker: one each, for as long as it is told so."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from raylog.actors.gateway.coordinators import CoordinatorLinks
from raylog.actors.names import GROUP
from raylog.actors.reopening import REOPEN_MS, REOPEN_MS_MAX
from raylog.actors.runtime.base import PeerLost
from tests.support.gateway_world import FakeLink, FakeRuntime, settle


class Slow(FakeRuntime):
    """Connects when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.waiting: deque[asyncio.Future[FakeLink]] = deque()

    async def connect(self, address: str) -> FakeLink:
        self.asked.append(address)
        waiting: asyncio.Future[FakeLink] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiting)
        return await waiting

    async def connected(self) -> FakeLink:
        """Let the oldest attempt come to its end."""
        link = FakeLink()
        self.waiting.popleft().set_result(link)
        await settle()
        return link

    async def refused(self) -> None:
        self.waiting.popleft().set_exception(PeerLost("nobody is there"))
        await settle()


def made() -> tuple[Slow, CoordinatorLinks, list[str]]:
    runtime = Slow()
    links = CoordinatorLinks(runtime)  # type: ignore[arg-type]  # a fake
    told: list[str] = []
    links.on_change(lambda: told.append("changed"))
    return runtime, links, told


async def told_of(links: CoordinatorLinks, address: str | None) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(links.apply(GROUP, address))
    await settle()
    return task


def test_a_coordinator_is_reached_and_that_is_told() -> None:
    async def run() -> None:
        runtime, links, told = made()
        await told_of(links, "first")
        assert (links.link(GROUP), told) == (None, [])
        link = await runtime.connected()
        assert links.link(GROUP) is link
        assert told == ["changed"]

    asyncio.run(run())


def test_one_that_moves_while_it_is_being_reached_is_reached_where_it_is_then() -> None:
    async def run() -> None:
        runtime, links, _ = made()
        await told_of(links, "first")
        await told_of(links, "second")
        late = await runtime.connected()
        assert not late.is_open, "nobody needs it"
        assert links.link(GROUP) is None
        link = await runtime.connected()
        assert links.link(GROUP) is link
        assert runtime.asked == ["first", "second"]

    asyncio.run(run())


def test_one_that_is_told_twice_is_reached_by_one_link() -> None:
    async def run() -> None:
        runtime, links, _ = made()
        await told_of(links, "first")
        await told_of(links, "first")
        link, late = await runtime.connected(), await runtime.connected()
        assert links.link(GROUP) is link
        assert (link.is_open, late.is_open) == (True, False)

    asyncio.run(run())


def test_a_link_that_breaks_is_opened_again_ever_more_slowly() -> None:
    async def run() -> None:
        runtime, links, told = made()
        await told_of(links, "first")
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
        told.clear()
        again = await runtime.connected()
        assert links.link(GROUP) is again
        assert told == ["changed"]
        await runtime.advance(10 * REOPEN_MS_MAX)
        assert not runtime.waiting

    asyncio.run(run())


def test_a_link_to_where_the_coordinator_was_is_not_opened_again() -> None:
    async def run() -> None:
        runtime, links, _ = made()
        await told_of(links, "first")
        old = await runtime.connected()
        await told_of(links, "second")
        new = await runtime.connected()
        assert not old.is_open
        await told_of(links, None)
        assert links.link(GROUP) is None
        assert not new.is_open
        await runtime.advance(10 * REOPEN_MS_MAX)
        assert runtime.asked == ["first", "second"]

    asyncio.run(run())


def test_one_that_is_gone_before_it_was_reached_is_not_looked_for() -> None:
    async def run() -> None:
        runtime, links, _ = made()
        await told_of(links, "first")
        await runtime.refused()
        await told_of(links, None)
        await runtime.advance(10 * REOPEN_MS_MAX)
        assert runtime.asked == ["first"]

    asyncio.run(run())


def test_at_the_end_links_are_closed_and_none_is_opened() -> None:
    async def run() -> None:
        runtime, links, _ = made()
        await told_of(links, "first")
        link = await runtime.connected()
        links.close()
        assert not link.is_open
        await runtime.advance(10 * REOPEN_MS_MAX)
        assert runtime.asked == ["first"]

    asyncio.run(run())


def test_who_waits_no_more_hears_of_nothing() -> None:
    async def run() -> None:
        runtime, links, told = made()
        forget = links.on_change(lambda: told.append("twice"))
        forget()
        await told_of(links, "first")
        await runtime.connected()
        assert told == ["changed"]

    asyncio.run(run())
