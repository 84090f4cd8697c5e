"""asyncio's connections: what a full socket does not accept waits, and arrives whole."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from raylog.client.connection import Buffer, Connection
from raylog.client.streams import AsyncIo, StreamProtocol
from raylog.client.unsent import Unsent
from tests.support.certificates import authority, server_context

MIB = 1024 * 1024


def chunks_of(count: int) -> list[Buffer]:
    """Small pieces and large ones, all different; more than a socket takes at once."""
    large = bytes(range(256)) * (2 * MIB // 256)
    chunks: list[Buffer] = []
    for number in range(count):
        chunks += (b"head-%d" % number, b"", memoryview(large)[number:])
    return chunks


async def received(
    use: Callable[[StreamProtocol], None],
    server_tls: ssl.SSLContext | None = None,
    client_tls: ssl.SSLContext | None = None,
) -> bytes:
    """What a server reads, which begins to read when a client's connection has been used."""
    used = asyncio.Event()
    whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await used.wait()
        whole.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]
    io = AsyncIo()
    transport = await io.connect("127.0.0.1", port, Connection("test"), 10_000, client_tls)
    use(transport)
    used.set()
    found = await whole
    await io.finish()
    server.close()
    return found


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_full_socket_gets_all_pieces_in_order(run: Callable[..., bytes]) -> None:
    chunks = chunks_of(20)

    def use(transport: StreamProtocol) -> None:
        for start in range(0, len(chunks), 3):
            transport.send(chunks[start : start + 3])
        assert transport._unsent, "a socket that nobody reads does not take 40 MiB"
        assert transport._transport is not None
        held = transport._transport.get_write_buffer_size()
        assert held <= 64 * 1024, "asyncio copies what it holds"
        transport.close()
        transport.send([b"too late"])

    assert run(received(use)) == b"".join(chunks)


def test_more_pieces_than_one_call_takes() -> None:
    chunks: list[Buffer] = [b"%d," % number for number in range(1_000)]

    def use(transport: StreamProtocol) -> None:
        transport.send(chunks)
        transport.close()

    assert asyncio.run(received(use)) == b"".join(chunks)


def test_output_over_tls(tmp_path: Path) -> None:
    chunks = chunks_of(2)
    trusted = authority(tmp_path)
    server = server_context(trusted.issue("server"))
    client = ssl.create_default_context(cafile=trusted.certificate)

    def use(transport: StreamProtocol) -> None:
        transport.send(chunks)
        transport.close()

    assert asyncio.run(received(use, server, client)) == b"".join(chunks)


def test_a_lost_connection_keeps_nothing() -> None:
    def use(transport: StreamProtocol) -> None:
        transport.send(chunks_of(20))
        transport.connection_lost(ConnectionResetError("reset"))
        assert not transport._unsent
        transport.abort()

    asyncio.run(received(use))


@pytest.mark.parametrize("counts", [[3, 4, 3], [10], [1] * 10])
def test_unsent_bytes_are_dropped_and_taken_from_the_front(counts: list[int]) -> None:
    unsent = Unsent()
    assert not unsent
    unsent.add([b"abc", b"", b"defg", b"hij"])
    rest = b"abcdefghij"
    for count in counts:
        assert b"".join(unsent.first()) == rest
        unsent.drop(count)
        rest = rest[count:]
    assert not unsent
    unsent.add([b"abc", b"defg"])
    assert [bytes(unsent.take(2)), bytes(unsent.take(9))] == [b"ab", b"c"]
    assert b"".join(unsent.take_all()) == b"defg"
    assert not unsent
