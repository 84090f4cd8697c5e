"""`python -m bench.connections`: 500 busy connections, alone and beside 10,000 idle ones.

Each busy connection requests the metadata of one topic 10 times a second. A response time counts
from when its request was due. Runs with and without the idle connections alternate, so that both
see the same machine, and the ratio is the median over the rounds. An idle connection has sent
ApiVersions once, as clients do. Its size is the growth of the broker's processes per connection,
without the kernel's buffers.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench import report
from bench.groups import Connection
from bench.measure import cpu_seconds, usage
from bench.options import Settings
from bench.peers import Peer, Raylog
from bench.quantiles import quantile
from raylog.wire.api import ApiKey
from raylog.wire.collecting import without_collector
from raylog.wire.frame import encode_request
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC = "t"
DESCRIPTORS_MORE = 6_000
"""File descriptors of the gateway's process besides its connections."""
APART = {"gateway.in.replica.process": "false"}
"""The gateway has its own process, and so its own limit of open files."""
SETTLE_S = 2.0
AT_ONCE = 50
"""How many connections to open at the same time."""
_LENGTH = struct.Struct(">i")


class TooFewDescriptors(Exception):
    """The limit of open files is too low for the number of connections."""


def raise_limit(wanted: int) -> None:
    """Raise the limit of open files of this process and of the broker that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except (ValueError, PermissionError) as refused:
            raise TooFewDescriptors(
                f"{wanted:,} open files are needed, {hard:,} are allowed: `ulimit -Hn {wanted}` as "
                "root, or fewer --idle connections"
            ) from refused
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Busy(asyncio.Protocol):
    """A connection that sends a request whenever one is due, and records response times."""

    def __init__(self, request: bytes, taken_s: list[float]) -> None:
        self._request = request
        self._taken_s = taken_s
        self._due: deque[float] = deque()
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)  # no subclass with uvloop

    def ask(self, due_s: float) -> None:
        """Send a request that was due at a time of the loop's clock."""
        assert self._transport is not None, "it is connected"
        self._due.append(due_s)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Match responses with requests in order."""
        self._received += data
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            del self._received[:end]
            self._taken_s.append(asyncio.get_running_loop().time() - self._due.popleft())

    @property
    def waits(self) -> int:
        """The number of requests without a response."""
        return len(self._due)

    def close(self) -> None:
        """Close."""
        if self._transport is not None:
            self._transport.close()


@dataclass(frozen=True, slots=True)
class Run:
    """The measurements of one run."""

    taken_s: list[float]
    """Response times."""
    cpu_s: float
    """CPU time of the broker's processes per request."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of the busy connections."""

    peer: Peer
    connections: int
    per_s: float
    seconds: float

    async def run(self) -> Run:
        """Run the load until every request is answered."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        request = b"".join(encode_request(ApiKey.METADATA, 9, 1, "load", asked))
        host, _, port = self.peer.address.rpartition(":")
        loop = asyncio.get_running_loop()
        taken_s: list[float] = []
        busy: list[Busy] = []
        for _ in range(self.connections):
            _, one = await loop.create_connection(lambda: Busy(request, taken_s), host, int(port))
            busy.append(one)
        gc.collect()
        before_s = cpu_seconds(self.peer.mark)
        with without_collector():  # it would traverse this process's idle connections
            await asyncio.gather(*[self._ask(one, at) for at, one in enumerate(busy)])
        wanted = round(self.seconds * self.per_s) * self.connections
        async with asyncio.timeout(60):
            while any(one.waits for one in busy):  # noqa: ASYNC110 - nobody says so
                await asyncio.sleep(0.01)
        for one in busy:
            one.close()
        assert len(taken_s) == wanted, f"{len(taken_s)} of {wanted} answers"
        return Run(taken_s, (cpu_seconds(self.peer.mark) - before_s) / wanted)

    async def _ask(self, busy: Busy, at: int) -> None:
        loop = asyncio.get_running_loop()
        pause_s = 1 / self.per_s
        due_s = loop.time() + pause_s * at / self.connections
        for _ in range(round(self.seconds * self.per_s)):
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            busy.ask(due_s)
            due_s += pause_s


async def idle_connections(address: str, count: int) -> list[Connection]:
    """Open connections that have only requested the versions."""
    made: list[Connection] = []
    while len(made) < count:
        wanted = min(AT_ONCE, count - len(made))
        some = await asyncio.gather(*[Connection.to(address) for _ in range(wanted)])
        for one in some:
            assert (await one.ask(ApiVersionsRequest(), 0)).error_code == 0
        made += some
    return made


@dataclass(frozen=True, slots=True)
class Round:
    """A run without and one with idle connections, and the bytes per idle connection."""

    alone: Run
    beside: Run
    idle_bytes: float


async def one_round(peer: Peer, load: Load, idle: int, *, idle_first: bool) -> Round:
    """Run without and with idle connections, in either order."""
    alone = None if idle_first else await load.run()
    before = usage(peer.mark).pss_bytes
    held = await idle_connections(peer.address, idle)
    await asyncio.sleep(SETTLE_S)
    grown = usage(peer.mark).pss_bytes - before
    beside = await load.run()
    for one in held:
        one.close()
    await asyncio.sleep(SETTLE_S)
    return Round(alone or await load.run(), beside, grown / idle)


async def measured(peer: Peer, load: Load, idle: int, rounds: int) -> list[Round]:
    """Run all rounds, after a run that does not count."""
    connection = await Connection.to(peer.address)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    created = await connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    assert created.topics[0].error_code == 0, created
    connection.close()
    await load.run()
    return [
        await one_round(peer, load, idle, idle_first=bool(number % 2)) for number in range(rounds)
    ]


def table_of(rounds: list[Round], load: Load, idle: int) -> Table:
    """The medians over the rounds."""
    title = f"{load.connections} connections at {load.per_s:g} requests/s, {idle:,} idle ones"
    table = Table("", "alone", "beside idle ones", "ratio", title=title)
    rows: list[tuple[str, Callable[[Run], float]]] = [
        ("p50, ms", lambda one: 1e3 * (quantile(one.taken_s, 0.5) or 0.0)),
        ("p99, ms", lambda one: 1e3 * (quantile(one.taken_s, 0.99) or 0.0)),
        ("CPU of the broker for a request, µs", lambda one: 1e6 * one.cpu_s),
    ]
    for name, figure in rows:
        pairs = [(figure(one.alone), figure(one.beside)) for one in rounds]
        alone, beside = (statistics.median(found) for found in zip(*pairs, strict=True))
        ratio = statistics.median(with_them / without for without, with_them in pairs)
        table.add_row(name, f"{alone:.1f}", f"{beside:.1f}", f"{ratio:.2f}")
    # Freed memory is reused, so only the first connections show their cost.
    table.add_row("bytes of an idle connection", "", f"{rounds[0].idle_bytes:,.0f}", "")
    return table


def main(
    connections: Annotated[int, typer.Option(min=1, help="Busy ones.")] = 500,
    per_s: Annotated[float, typer.Option(min=0.1, help="Requests of each.")] = 10,
    idle: Annotated[int, typer.Option(min=1)] = 10_000,
    seconds: Annotated[float, typer.Option(min=1, help="Length of a run.")] = 10,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    setting: Settings = None,
) -> None:
    """Print what idle connections cost the others."""
    say = Console(stderr=True)
    try:
        raise_limit(connections + idle + DESCRIPTORS_MORE)
    except TooFewDescriptors as refused:
        say.print(f"[red]{refused}")
        raise typer.Exit(2) from refused
    given = (one.partition("=") for one in setting or [])
    with Raylog(APART | {key: value for key, _, value in given}).run() as peer:
        load = Load(peer, connections, per_s, seconds)
        found = uvloop.run(measured(peer, load, idle, rounds))
    Console().print(table_of(found, load, idle))
    say.print(report.circumstances(), soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
