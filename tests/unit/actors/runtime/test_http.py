"""The server for probes: its answers, and what hostile clients can do to it."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest
import uvloop

from raylog.actors.runtime import http
from raylog.actors.runtime.http import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HttpAnswer,
    HttpServer,
    document,
)
from tests.worlds.decorators import Fixture, in_loop, in_world

Scenario = Callable[[int], Awaitable[None]]
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


async def later(accept: str) -> HttpAnswer:
    await asyncio.sleep(0)
    return HttpAnswer(HTTPStatus.OK, json.dumps({"accepts": accept}).encode(), "x/y")


def serving(scenario: Scenario, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def run() -> None:
        server = HttpServer(
            {
                "/good": lambda _: document(HTTPStatus.OK, {"ready": True}),
                "/bad": lambda _: document(
                    HTTPStatus.SERVICE_UNAVAILABLE, {"reasons": ["because"]}
                ),
                "/later": later,
            }
        )
        port = await server.listen("127.0.0.1", 0)
        try:
            await scenario(port)
        finally:
            server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to some bytes; the server closes the connection behind it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def get(path: str, method: str = "GET", version: str = "1.1") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: there\r\n\r\n".encode()


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/good"), 200),
        (get("/good?verbose=1"), 200),
        (get("/good", version="1.0"), 200),
        (get("/later"), 200),
        (get("/later", method="HEAD"), 200),
        (get("/good", method="HEAD"), 200),
        (get("/good") * 3, 200),
        (get("/bad"), 503),
        (get("/"), 404),
        (get("http://there/good"), 404),
        (get("/good", method="POST"), 405),
        (get("/good", method="CONNECT"), 405),
        (
            b"GET /good HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
            200,
        ),
        (b"GET /good HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 200),
        (b"GET /good HTTP/1.1\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET /good HTTP/1.1\r\n" + b"a" * (HEAD_BYTES_MAX + 1), 431),
        (b"GET /" + b"a" * (HEAD_BYTES_MAX + 1), 431),
    ],
)
@in_world(serving, Fixture("new_loop"))
async def test_a_request_gets_one_answer(port: int, *, request_: bytes, status: int) -> None:
    found, body = await ask(port, request_)
    assert found == status
    assert (body == b"") if request_.startswith(b"HEAD") else isinstance(json.loads(body), dict)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_client_that_is_silent_or_slow_is_cut_off(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.05)

    async def scenario(port: int) -> None:
        for begun in (b"", b"GET /good HTTP/1.1\r\nHost:"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()

    serving(scenario, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
@in_world(serving, Fixture("new_loop"))
async def test_many_connections_keep_no_probe_out(port: int) -> None:
    hanging = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * CONNECTIONS_MAX)]
    try:
        assert (await ask(port, get("/good")))[0] == 200
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(hanging[0][0].read(), 10) == b""  # the oldest one
    finally:
        for _, writer in hanging:
            writer.close()


@pytest.mark.parametrize("new_loop", LOOPS)
@in_world(serving, Fixture("new_loop"))
async def test_bytes_behind_the_head_change_nothing(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
    writer.write(b"x" * 100_000)
    with contextlib.suppress(ConnectionResetError):  # what it did not read it refuses so
        assert b" 405 " in await reader.readline()
    writer.close()
    assert (await ask(port, get("/good")))[0] == 200


def test_a_page_may_take_longer_than_a_head_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.05)
    monkeypatch.setattr(http, "ANSWER_S", 0.5)

    async def run() -> None:
        async def slow(_: str) -> HttpAnswer:
            await asyncio.sleep(0.1)  # longer than a head may take
            return document(HTTPStatus.OK, {})

        async def never(_: str) -> HttpAnswer:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets the event")

        server = HttpServer({"/slow": slow, "/never": never})
        port = await server.listen("127.0.0.1", 0)
        assert (await ask(port, get("/slow")))[0] == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/never"))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        server.close()

    asyncio.run(run())


@in_loop
async def test_connections_that_ask_nothing_cut_off_no_scrape() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def page(_: str) -> HttpAnswer:
        began.set()
        await go_on.wait()
        return document(HTTPStatus.OK, {})

    server = HttpServer({"/": page})
    port = await server.listen("127.0.0.1", 0)
    scrape = asyncio.create_task(ask(port, get("/")))
    await began.wait()
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(idle[0][0].read(), 10) == b""
    go_on.set()
    assert (await scrape)[0] == 200
    for _, writer in idle:
        writer.close()
    server.close()


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_page_that_fails_is_answered_and_logged(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> HttpAnswer:
        raise ValueError("no page")

    async def run() -> None:
        server = HttpServer({"/broken": broken})
        port = await server.listen("127.0.0.1", 0)
        assert (await ask(port, get("/broken")))[0] == 500
        server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    assert "no page" in caplog.text


@in_world(serving, asyncio.new_event_loop)
async def test_a_long_head_is_refused_also_where_it_comes_at_once(port: int) -> None:
    long = b"GET /good HTTP/1.1\r\nHost: a\r\nX: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n"
    assert (await ask(port, long))[0] == 431


@in_world(serving, asyncio.new_event_loop)
async def test_a_page_that_takes_a_while_hears_what_the_client_accepts(port: int) -> None:
    request = b"GET /later HTTP/1.1\r\nHost: a\r\nAccept: a/b\r\naccept: c/d;q=0.5\r\n\r\n"
    assert await ask(port, request) == (200, b'{"accepts": "a/b, c/d;q=0.5"}')


@in_loop
async def test_a_page_is_not_made_on_for_a_client_that_has_gone() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def page(_: str) -> HttpAnswer:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("nobody sets the event")

    server = HttpServer({"/": page})
    port = await server.listen("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get("/"))
    await began.wait()
    writer.close()
    await asyncio.wait_for(ended.wait(), 10)
    server.close()
