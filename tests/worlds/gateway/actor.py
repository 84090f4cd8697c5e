"""A real gateway between fake clients and fake peers, under a clock that the test moves.

Requests are real bytes that pass through the real connection and decoder. Replica actors,
controller and broker are fakes scripted by the test. Nothing waits for real time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from struct import Struct
from typing import Any

from raylog.actors.common_messages import PartitionKey, Route, RouteUpdate, TopicId
from raylog.actors.endpoints import Endpoint
from raylog.actors.gateway.actor import GatewayActor
from raylog.actors.gateway.connection import ClientConnection
from raylog.actors.metadata.records import (
    BrokerRegistered,
    PartitionCreated,
    Record,
    TopicCreated,
)
from raylog.actors.names import controller_name
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.wire.api import ApiKey
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.schema import layout_of
from tests.worlds.runtime import FakeLink, FakeRuntime, settle

CLUSTER = "test-cluster"
_LENGTH = Struct(">i")


def topic_id(name: str) -> TopicId:
    """Return the id that `World.topic` gives a topic."""
    return TopicId(name.encode().rjust(16, b"\x01"))


class FakeController:
    """Answers calls with scripted functions; the first `lost` calls fail with PeerLost."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.lost = 0
        self.script: dict[str, Callable[[Any], Any]] = {}

    def __getattr__(self, method: str) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        async def call(argument: Any = None) -> Any:
            self.asked.append((method, argument))
            if self.lost:
                self.lost -= 1
                raise PeerLost("the controller restarts")
            answer = self.script[method](argument)
            return await answer if asyncio.iscoroutine(answer) else answer

        return call


async def never(_argument: Any) -> None:
    """A scripted call that misses its deadline."""
    raise PeerTimeout("took too long")


# ---- clients ------------------------------------------------------------------------------


class FakeTransport:
    """The socket of a fake client, which collects what is written to it."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.written = bytearray()
        self.closed = False
        self.aborted = False
        self.reading = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.host, 40_000

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high > 0

    def writelines(self, chunks: Sequence[Any]) -> None:
        for chunk in chunks:
            self.written += chunk

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class FakeClient:
    """One connection to the gateway."""

    def __init__(
        self, gateway: GatewayActor, host: str = "127.0.0.1", listener: str = "PLAINTEXT"
    ) -> None:
        self.transport = FakeTransport(host)
        self.connection = ClientConnection(gateway, 1 << 20, listener)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]  # a fake
        self._asked: deque[tuple[ApiKey, int]] = deque()

    def send(self, request: Any, version: int, client_id: str = "test") -> None:
        """Send a request."""
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        self._asked.append((api_key, version))
        self.send_bytes(b"".join(encode_request(api_key, version, 7, client_id, request)))

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes."""
        at = 0
        while at < len(data):
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            self.connection.buffer_updated(count)
            at += count

    def received(self) -> list[Any]:
        """Return the decoded responses that arrived since the last call."""
        answers = []
        written = self.transport.written
        while written:
            (length,) = _LENGTH.unpack_from(written)
            answers.append(decode_response(*self._asked.popleft(), bytes(written[4 : 4 + length])))
            del written[: 4 + length]
        return [answer for _, answer in answers]

    def skip_answer(self) -> None:
        """Expect no response to the oldest request (acks=0)."""
        self._asked.popleft()

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its response, which must not need time to pass."""
        self.send(request, version)
        await settle()
        (answer,) = self.received()
        return answer


# ---- the world ----------------------------------------------------------------------------


class World:
    """Broker 1 with a gateway, and the fakes around it."""

    def __init__(self, **settings: str) -> None:
        settings = {"connections_max_idle_ms": "-1"} | settings
        self.runtime = FakeRuntime()
        self.controller = FakeController()
        self.runtime.peers[controller_name(CLUSTER)] = self.controller
        self.gateway = GatewayActor(
            self.runtime,  # type: ignore[arg-type]  # a fake
            name="gateway",
            cluster_id=CLUSTER,
            broker_id=1,
            listening=(Endpoint("PLAINTEXT", "127.0.0.1", 0),),
            settings={name.replace("_", "."): value for name, value in settings.items()},
        )

    def client(self, host: str = "127.0.0.1", listener: str = "PLAINTEXT") -> FakeClient:
        """Return a new connection from `host` to a listener."""
        return FakeClient(self.gateway, host, listener)

    def link(self, address: str) -> FakeLink:
        """Return the link to a Replica actor."""
        return self.runtime.links.setdefault(address, FakeLink())

    async def apply(self, *records: Record) -> None:
        """Push metadata records, as the Broker does."""
        at = self.gateway.cluster.image.offset
        await self.gateway.apply_metadata(at, at + len(records), list(records))

    async def brokers(self, *broker_ids: int, fenced: Sequence[int] = ()) -> None:
        """Register brokers."""
        for one in broker_ids:
            await self.apply(
                BrokerRegistered(
                    one, 50 + one, f"host{one}", 9000 + one, f"r{one}", "d", "i", one in fenced
                )
            )

    async def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        leader: int = 1,
        replicas: tuple[int, ...] = (1,),
        id_of: str | None = None,
        opened: bool = True,
    ) -> TopicId:
        """Create a topic led by `leader`, which has opened its logs if `opened`."""
        new_id = topic_id(id_of or name)
        incarnations = {leader: "log"} if opened else {}
        await self.apply(
            TopicCreated(new_id, name),
            *(
                PartitionCreated(new_id, i, replicas, replicas, leader, incarnations=incarnations)
                for i in range(partitions)
            ),
        )
        return new_id

    async def route(
        self, address: str, *keys: PartitionKey, directory: str = "/none", leads: bool = True
    ) -> FakeLink:
        """Route partitions to the Replica actor at `address`."""
        link = self.link(address)
        added = [Route(*key, 0, address, address, directory, leads) for key in keys]
        await self.gateway.apply_routes(RouteUpdate(added))
        return link

    async def unroute(self, *keys: PartitionKey) -> None:
        """Remove the routes of partitions."""
        await self.gateway.apply_routes(RouteUpdate([], list(keys)))


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Run a scenario in a new world; fail if a task failed."""

    async def main() -> None:
        world = World(**settings)
        await scenario(world)
        await settle()
        assert not world.runtime.failures

    asyncio.run(main())


async def served(world: World) -> FakeLink:
    """Create topic t with one partition that is led here; return the link to its leader."""
    await world.brokers(1)
    await world.topic("t")
    return await world.route("replica", (topic_id("t"), 0))
