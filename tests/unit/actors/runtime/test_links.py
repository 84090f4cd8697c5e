"""Links behave the same in one process and over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raylog.actors.runtime.addresses import endpoint_of, tcp_address, unix_address
from raylog.actors.runtime.base import Buffer, Link, LinkRequest, PeerLost
from raylog.actors.runtime.frames import frame
from raylog.actors.runtime.handshake import CONNECTING, Handshake
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.actors.runtime.links import InprocLink
from raylog.actors.runtime.stream import ServingLink, StreamLink, connect_link, serve_links
from raylog.wire.errors import DecodeError, NotLeaderOrFollower, UnknownServerError
from tests.worlds.decorators import Fixture, in_loop, in_world

SECRET = LinkSecrets(b"s" * 32)


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
            case "hold and fail":
                self.held.append(request)
                raise ValueError("not foreseen")
            case "answer and fail":
                request.reply("answered")
                raise ValueError("not foreseen")
            case "write":
                request.reply(1 << 70)

    def link_lost(self, peer: int) -> None:
        self.lost.append(peer)


@asynccontextmanager
async def serving(address: str, echo: Echo) -> AsyncIterator[str]:
    """Links are accepted at an address, which comes back with its port."""
    links: set[ServingLink] = set()
    server = await serve_links(address, SECRET, "server", echo, links)
    try:
        yield served_at(address, server)
    finally:
        server.close()
        for serving in tuple(links):
            serving.abort()
        await asyncio.sleep(0)
        await server.wait_closed()


def served_at(address: str, server: asyncio.Server) -> str:
    port = server.sockets[0].getsockname()[1]
    return tcp_address("127.0.0.1", port) if address.startswith("tcp:") else address


@asynccontextmanager
async def unix_link(echo: Echo) -> AsyncIterator[Link]:
    async with serving(unix_address(f"test-{uuid.uuid4().hex}"), echo) as address:
        link = await connect_link(address, SECRET, "client", 5)
        yield link
        link.close()


@asynccontextmanager
async def tcp_link(echo: Echo) -> AsyncIterator[Link]:
    async with serving("tcp:127.0.0.1:0", echo) as address:
        link = await connect_link(address, SECRET, "client", 5)
        yield link
        link.close()


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


@pytest.fixture(params=[unix_link, tcp_link, inproc_link], ids=["unix", "tcp", "inproc"])
def opener(request: pytest.FixtureRequest) -> Opener:
    chosen: Opener = request.param
    return chosen


@in_world(run, Fixture("opener"))
async def test_answers_carry_header_and_payload(link: Link, echo: Echo) -> None:
    future: asyncio.Future[tuple[Any, bytes]] = asyncio.get_running_loop().create_future()
    link.request(
        "echo",
        [1, "x"],
        [b"ab", memoryview(b"cd")],
        lambda header, payload: future.set_result((header, bytes(payload))),
        future.set_exception,
    )
    assert await future == ([1, "x"], b"<abcd>")


@in_world(run, Fixture("opener"))
async def test_a_refusal_is_raised_as_the_same_class(link: Link, echo: Echo) -> None:
    with pytest.raises(NotLeaderOrFollower, match="no"):
        await link.ask("refuse")


@in_world(run, Fixture("opener"))
async def test_requests_arrive_in_order_and_may_be_answered_out_of_order(
    link: Link, echo: Echo
) -> None:
    held = asyncio.ensure_future(link.ask("hold"))
    assert await link.ask("echo", 5) == 5
    assert echo.seen == ["hold", "echo"]
    echo.held[0].reply("late")
    assert await held == "late"


@pytest.mark.parametrize("kind", ["hold and fail", "answer and fail"])
@in_world(run, Fixture("opener"))
async def test_a_request_that_fails_unforeseen_is_answered_and_the_link_goes_on(
    link: Link, echo: Echo, *, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.ensure_future(link.ask("hold"))
    if kind == "answer and fail":
        assert await link.ask(kind) == "answered"
    else:
        with pytest.raises(UnknownServerError, match=kind):
            await link.ask(kind)
        echo.held[1].reply("too late")
    assert await link.ask("echo", 5) == 5
    echo.held[0].reply("in time")
    assert await waiting == "in time"
    assert link.is_open
    logged = [one for one in caplog.records if one.name == "raylog.actors.runtime.links"]
    [failure] = [one.exc_info[1] for one in logged if one.exc_info is not None]
    assert isinstance(failure, ValueError)


@pytest.mark.parametrize("opener", [unix_link, tcp_link])
@in_world(run, Fixture("opener"))
async def test_unencodable_message_fails_without_breaking_the_link(link: Link, echo: Echo) -> None:
    with pytest.raises(UnknownServerError, match="cannot be written"):
        await link.ask("write")
    with pytest.raises(UnknownServerError, match="cannot be written"):
        await link.ask("echo", 1 << 70)
    with pytest.raises(UnknownServerError, match="at most"):
        await link.ask("echo", None, [memoryview(bytearray(1 << 20))] * 257)
    assert await link.ask("echo", 5) == 5
    assert echo.seen == ["write", "echo"]


@in_world(run, Fixture("opener"))
async def test_a_closed_link_fails_what_waits_and_tells_both_sides(link: Link, echo: Echo) -> None:
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
    async with asyncio.timeout(60):
        while not echo.lost:  # noqa: ASYNC110 - the actor raises no event for it
            await asyncio.sleep(0.001)
    assert len(echo.lost) == 1
    if echo.held:
        echo.held[0].reply("nobody hears this")


def test_the_log_tells_of_a_link_that_the_other_end_has_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "raylog.actors.runtime.stream")

    async def lost(*, by_peer: bool) -> None:
        links: set[ServingLink] = set()
        address = unix_address(f"test-{uuid.uuid4().hex}")
        server = await serve_links(address, SECRET, "server", Echo(), links)
        link = await connect_link(address, SECRET, "client", 5)
        held = asyncio.ensure_future(link.ask("hold"))
        await asyncio.sleep(0)
        if by_peer:
            (serving,) = links
            serving.abort()
        else:
            link.close()
        with pytest.raises(PeerLost):
            await held
        server.close()
        await server.wait_closed()

    asyncio.run(lost(by_peer=False))
    assert caplog.messages == []
    asyncio.run(lost(by_peer=True))
    (message,) = caplog.messages
    assert message.startswith("the link to server is lost: ")
    assert message.endswith("; 1 requests fail with it")


@pytest.mark.parametrize("address", ["unix:test-secret", "tcp:127.0.0.1:0"])
@in_loop
async def test_a_peer_without_the_secret_is_turned_away(address: str) -> None:
    echo = Echo()
    async with serving(address, echo) as at:
        with pytest.raises(PeerLost):
            await connect_link(at, LinkSecrets(b"x" * 32), "client", 5)
        assert echo.seen == []


async def first_words(address: str, *said: Buffer) -> bytes:
    """What a peer gets that says this and nothing else, until it is turned away."""
    endpoint = endpoint_of(address)
    assert not isinstance(endpoint, str)
    reader, writer = await asyncio.open_connection(*endpoint)
    writer.writelines(said)
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while chunk := await reader.read(4096):
            received += chunk
    writer.close()
    return bytes(received)


@in_loop
async def test_requests_before_the_handshake_are_not_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    echo = Echo()
    async with serving("tcp:127.0.0.1:0", echo) as address:
        await first_words(address, *frame([1, "echo", None]))
        assert "does not speak the link protocol" in caplog.text
        greeting = Handshake(SECRET, CONNECTING, "x").greeting()
        await first_words(address, *frame(greeting), *frame([1, "echo", None]))
        assert "without the cluster's secret" in caplog.text
        await first_words(address, (64 << 20).to_bytes(4, "big"))
        assert "a long frame from a peer that has proved nothing" in caplog.text
    assert echo.seen == []


def test_a_peer_that_says_nothing_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.actors.runtime.stream.HANDSHAKE_TIMEOUT_S", 0.01)

    async def main() -> None:
        async with serving("tcp:127.0.0.1:0", Echo()) as address:
            assert SECRET.current not in await first_words(address)

    asyncio.run(main())


@in_loop
async def test_a_peer_to_which_no_socket_is_left_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("raylog.actors.runtime.stream.socket.socket", none_left)
    with pytest.raises(PeerLost, match="Too many open files"):
        await connect_link("unix:somebody", SECRET, "client", 5)


@in_loop
async def test_connecting_to_an_unused_address_raises_peer_lost() -> None:
    with pytest.raises(PeerLost, match="nobody"):
        await connect_link(f"unix:none-{uuid.uuid4().hex}", SECRET, "client", 5)


def test_the_stream_link_is_a_link() -> None:
    async def main() -> Link:
        return StreamLink(SECRET, "x")

    assert not asyncio.run(main()).is_open


def test_failing_answer_callback_does_not_break_the_link(
    opener: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise DecodeError("what was asked cannot be read")

    async def case(link: Link, echo: Echo) -> None:
        for kind in ("echo", "refuse"):
            link.request(kind, None, (), broken, broken)
        assert await link.ask("echo", 5) == 5
        reopened = []
        link.on_lost(lambda: reopened.append(True))
        link.request("hold", None, (), broken, broken)
        held = asyncio.ensure_future(link.ask("hold"))
        await link.ask("echo")
        link.close()
        with pytest.raises(PeerLost):
            await held
        assert reopened == [True]
        assert caplog.text.count("an answer over a link was not taken") == 3

    run(case, opener)


@in_loop
async def test_a_port_that_another_process_has_by_now_is_not_the_one_that_is_meant() -> None:
    async with serving("tcp:127.0.0.1:0", Echo()) as address:
        port = int(address.rpartition(":")[2])
        meant = tcp_address("127.0.0.1", port, "server")
        (await connect_link(meant, SECRET, "client", 5)).close()
        gone = tcp_address("127.0.0.1", port, "gone")
        with pytest.raises(PeerLost, match="expected the actor process gone there, found serv"):
            await connect_link(gone, SECRET, "client", 5)
