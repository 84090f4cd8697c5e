"""Links behave the same in one process and over sockets."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raylog.actors.runtime.base import Link, LinkRequest, PeerLost
from raylog.actors.runtime.inproc import InprocLink
from raylog.actors.runtime.stream import ServingLink, StreamLink, connect_link, serve_links
from raylog.wire.errors import NotLeaderOrFollower

SECRET = b"s" * 32


class Echo:
    """Answers `echo`, refuses `refuse`, keeps `hold` until `release`."""

    def __init__(self) -> None:
        self.held: list[LinkRequest] = []
        self.lost: list[int] = []
        self.seen: list[str] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def link_received(self, request: LinkRequest) -> None:
        self.seen.append(request.kind)
        match request.kind:
            case "echo":
                request.reply(request.header, [b"<", request.payload, b">"])
            case "refuse":
                raise NotLeaderOrFollower("no")
            case "hold":
                self.held.append(request)

    def link_lost(self, peer: int) -> None:
        self.lost.append(peer)


@asynccontextmanager
async def stream_link(echo: Echo) -> AsyncIterator[Link]:
    address = f"unix:test-{uuid.uuid4().hex}"
    links: set[ServingLink] = set()
    server = await serve_links(address, SECRET, "server", echo, links)
    link = await connect_link(address, SECRET, "client", 5)
    try:
        yield link
    finally:
        link.close()
        server.close()
        for serving in tuple(links):
            serving.abort()
        await asyncio.sleep(0)
        await server.wait_closed()


@asynccontextmanager
async def inproc_link(echo: Echo) -> AsyncIterator[Link]:
    link = InprocLink(echo, 1)
    yield link
    link.close()


Opener = Callable[[Echo], Any]


def run(case: Callable[[Link, Echo], Awaitable[None]], opener: Opener) -> None:
    async def main() -> None:
        echo = Echo()
        async with opener(echo) as link:
            await case(link, echo)

    asyncio.run(main())


@pytest.fixture(params=[stream_link, inproc_link], ids=["stream", "inproc"])
def opener(request: pytest.FixtureRequest) -> Opener:
    chosen: Opener = request.param
    return chosen


def test_answers_carry_header_and_payload(opener: Opener) -> None:
    async def case(link: Link, echo: Echo) -> None:
        future: asyncio.Future[tuple[Any, bytes]] = asyncio.get_running_loop().create_future()
        link.request(
            "echo",
            [1, "x"],
            [b"ab", memoryview(b"cd")],
            lambda header, payload: future.set_result((header, bytes(payload))),
            future.set_exception,
        )
        assert await future == ([1, "x"], b"<abcd>")

    run(case, opener)


def test_a_refusal_is_raised_as_the_same_class(opener: Opener) -> None:
    async def case(link: Link, echo: Echo) -> None:
        with pytest.raises(NotLeaderOrFollower, match="no"):
            await link.ask("refuse")

    run(case, opener)


def test_requests_arrive_in_order_and_may_be_answered_out_of_order(opener: Opener) -> None:
    async def case(link: Link, echo: Echo) -> None:
        held = asyncio.ensure_future(link.ask("hold"))
        assert await link.ask("echo", 5) == 5
        assert echo.seen == ["hold", "echo"]
        echo.held[0].reply("late")
        assert await held == "late"

    run(case, opener)


def test_a_closed_link_fails_what_waits_and_tells_both_sides(opener: Opener) -> None:
    async def case(link: Link, echo: Echo) -> None:
        lost = asyncio.Event()
        link.on_lost(lost.set)
        held = asyncio.ensure_future(link.ask("hold"))
        await asyncio.sleep(0)
        link.close()
        await lost.wait()
        with pytest.raises(PeerLost):
            await held
        with pytest.raises(PeerLost):
            await link.ask("echo")
        assert not link.is_open
        for _ in range(100):
            if echo.lost:
                break
            await asyncio.sleep(0.001)
        assert len(echo.lost) == 1
        if echo.held:
            echo.held[0].reply("nobody hears this")

    run(case, opener)


def test_a_peer_without_the_secret_is_turned_away() -> None:
    async def main() -> None:
        echo = Echo()
        address = f"unix:test-{uuid.uuid4().hex}"
        server = await serve_links(address, SECRET, "server", echo, set())
        try:
            with pytest.raises(PeerLost):
                await connect_link(address, b"x" * 32, "client", 5)
            assert echo.seen == []
        finally:
            server.close()
            await server.wait_closed()

    asyncio.run(main())


def test_nobody_at_an_address_is_a_lost_peer() -> None:
    async def main() -> None:
        with pytest.raises(PeerLost, match="nobody"):
            await connect_link(f"unix:none-{uuid.uuid4().hex}", SECRET, "client", 5)

    asyncio.run(main())


def test_the_stream_link_is_a_link() -> None:
    async def main() -> Link:
        return StreamLink(SECRET, "x")

    assert not asyncio.run(main()).is_open
