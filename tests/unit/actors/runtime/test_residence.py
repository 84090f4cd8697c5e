"""Actors that share a process: the links between them, and how one of them ends."""

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raylog.actors.runtime.addresses import endpoint_of
from raylog.actors.runtime.base import Link, LinkRequest, PeerLost
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.actors.runtime.link_settings import LinkPlace
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.residence import Residence, neighbour
from raylog.actors.runtime.stream import connect_link
from raylog.wire.errors import UnknownServerError
from tests.support.ports import free_port
from tests.worlds.decorators import in_loop, in_world

SECRET = LinkSecrets(b"s" * 32)


def unexpected(*what: object) -> None:
    pytest.fail(f"unexpected: {what}")


class Keeper:
    """Answers `echo` with its payload, fails at `break`, keeps everything else."""

    def __init__(self) -> None:
        self.held: list[LinkRequest] = []
        self.peers: set[int] = set()
        self.lost: list[int] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def link_received(self, request: LinkRequest) -> None:
        self.peers.add(request.peer)
        match request.kind:
            case "echo":
                request.reply(request.header, [request.payload])
            case "fail":
                raise ValueError("not foreseen")
            case "break":
                raise AssertionError("broken here")
            case _:
                self.held.append(request)

    def link_lost(self, peer: int) -> None:
        self.lost.append(peer)


class Home:
    """One actor in this process, and the failures that the event loop reported."""

    def __init__(self) -> None:
        self.actor = Keeper()
        self.runtime = LoopRuntime(f"keeper-{uuid.uuid4().hex}", self._broken)
        self.residence = Residence(self.actor, self.runtime)
        self.unhandled: list[BaseException] = []

    def _broken(self, failure: BaseException) -> None:
        self.unhandled.append(failure)


def tell(story: Callable[[Home], Awaitable[None]]) -> None:
    async def main() -> None:
        home = Home()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: home.unhandled.append(context["exception"])
        )
        await home.residence.open(SECRET)
        await story(home)
        home.residence.leave()
        assert neighbour(home.residence.address) is None

    asyncio.run(main())


@in_world(tell)
async def test_a_neighbour_is_found_by_address_and_gets_the_very_bytes(home: Home) -> None:
    assert neighbour(home.residence.address) is home.residence
    sent = bytearray(b"bytes")
    header = {"plain": ("data",)}
    answers: list[tuple[Any, memoryview]] = []
    link = home.residence.link()
    link.request("echo", header, [sent], lambda *what: answers.append(what), unexpected)
    [(answer, payload)] = answers
    assert answer is header
    assert payload.obj is sent


@in_world(tell)
async def test_links_of_both_kinds_have_numbers_of_their_own(home: Home) -> None:
    near = [home.residence.link() for _ in range(2)]
    far = await connect_link(home.residence.address, SECRET, "far", 5)
    links: list[Link] = [*near, far]
    for link in links:
        await link.ask("echo")
    assert len(home.actor.peers) == 3
    far.close()


@in_loop
async def test_peer_on_another_machine_connects_by_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()
    await home.residence.open(SECRET, LinkPlace("127.0.0.1", "127.0.0.1"))
    address = home.residence.address
    assert neighbour(address) is home.residence
    monkeypatch.setattr("raylog.actors.runtime.addresses.this_machine", lambda: "elsewhere")
    far = await connect_link(address, SECRET, "far", 5)
    assert await far.ask("echo", "over TCP") == "over TCP"
    assert isinstance(endpoint_of(address), tuple)
    home.residence.leave()
    with pytest.raises(PeerLost, match="nobody"):
        await connect_link(address, SECRET, "far", 5)


@in_world(tell)
async def test_a_link_that_one_side_closes_is_lost_to_both(home: Home) -> None:
    link = home.residence.link()
    lost = asyncio.Event()
    link.on_lost(lost.set)
    held = link.ask("hold")
    link.close()
    assert lost.is_set()
    assert len(home.actor.lost) == 1
    with pytest.raises(PeerLost):
        await held
    home.actor.held[0].reply("too late")


@in_world(tell)
async def test_leaving_closes_every_link_and_ends_the_tasks(home: Home) -> None:
    near = home.residence.link()
    far = await connect_link(home.residence.address, SECRET, "far", 5)
    task = home.runtime.start(asyncio.sleep(3600), "task")
    asked = [link.ask("hold") for link in (near, far)]
    while len(home.actor.held) < 2:  # noqa: ASYNC110 - the socket raises no event for it
        await asyncio.sleep(0)
    home.residence.leave()
    for one in asked:
        with pytest.raises(PeerLost):
            await one
    assert task.done()
    assert not near.is_open
    with pytest.raises(PeerLost):
        await connect_link(home.residence.address, SECRET, "far", 5)
    home.residence.leave()


@in_world(tell)
async def test_a_request_that_breaks_its_taker_ends_the_link_and_spares_the_asker(
    home: Home,
) -> None:
    link = home.residence.link()
    failures: list[Exception] = []
    link.request("break", None, (), unexpected, failures.append)
    [failure] = failures
    assert isinstance(failure, PeerLost)
    assert [str(one) for one in home.unhandled] == ["broken here"]
    assert len(home.actor.lost) == 1


@in_world(tell)
async def test_a_request_that_fails_unforeseen_is_answered_and_the_link_goes_on(home: Home) -> None:
    link = home.residence.link()
    with pytest.raises(UnknownServerError):
        await link.ask("fail")
    assert link.is_open
    assert not home.unhandled


@in_world(tell)
async def test_an_answer_that_breaks_its_taker_ends_the_link_and_spares_the_answerer(
    home: Home,
) -> None:
    def break_down(*_: object) -> None:
        raise ValueError("broken there")

    link = home.residence.link()
    link.request("hold", None, (), break_down, unexpected)
    waiting = link.ask("hold")
    home.actor.held[0].reply(None)
    assert [str(one) for one in home.unhandled] == ["broken there"]
    with pytest.raises(PeerLost):
        await waiting


# ---- from other machines ---------------------------------------------------------------------


@in_loop
async def test_others_are_told_the_advertised_host_and_a_port_of_the_range() -> None:
    first, second = Home(), Home()
    port = free_port()
    outside = LinkPlace("127.0.0.1", "gate.example", range(port, port + 1))
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(OSError, match=f"no port from {port} to {port} is free on 127.0.0.1"),
    ):
        await first.residence.open(SECRET, outside)
    await second.residence.open(SECRET, outside)
    _, reached = second.residence.address.split(",")
    assert reached == f"tcp:{second.runtime.instance}@gate.example:{port}"
    link = await connect_link(reached.replace("gate.example", "127.0.0.1"), SECRET, "c", 5)
    assert await link.ask("echo", 7) == 7
    link.close()
    second.residence.leave()


@in_loop
async def test_the_next_port_of_the_range_is_taken_where_the_first_is_not_free() -> None:
    homes = [Home(), Home()]
    port = free_port()
    for home in homes:
        await home.residence.open(SECRET, LinkPlace("127.0.0.1", "h", range(port, port + 20)))
    first, second = (int(home.residence.address.rpartition(":")[2]) for home in homes)
    assert port <= first < second < port + 20
    for home in homes:
        home.residence.leave()


@in_loop
async def test_an_address_of_no_interface_is_named() -> None:
    home = Home()
    said = r"links cannot be accepted on 192\.0\.2\.1: .*link\.bind\.host"
    with pytest.raises(OSError, match=said):
        await home.residence.open(SECRET, LinkPlace("192.0.2.1", "h"))
