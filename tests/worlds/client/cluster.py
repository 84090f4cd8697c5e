"""A cluster of brokers in memory for the client's coroutines, under virtual time.

Each broker answers a request by calling a function. Time passes only while the client waits, so
timeouts and pauses cost nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from raylog.client.connection import Buffer, Connection
from raylog.client.core import Core
from raylog.client.errors import ConnectionLost, NotConnected
from raylog.client.settings import ClientSettings
from raylog.wire.api import ApiKey
from raylog.wire.frame import RequestHeader, decode_request, decode_request_header, encode_response
from raylog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from raylog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.worlds.runtime import Clock

Handler = Callable[[int, object], object]
"""Maps (broker id, request) to a response, or to one of the three values below."""
SILENT = object()
"""The request has no answer (acks=0); the connection goes on."""
NOTHING = object()
"""The broker hangs: it answers neither this request nor later ones on the connection."""
LOST = object()
"""The connection breaks."""
LATENCY_MS = 1.0


def topic_id(name: str) -> bytes:
    """Return a stable id for a topic of the fake cluster."""
    return name.encode().ljust(16, b"\1")[:16]


@dataclass
class FakeCluster:
    """Brokers 1 to n on ports 9001 to 9000 + n, with topics, leaders and one handler per API."""

    brokers: int = 1
    topics: dict[str, dict[int, int]] = field(default_factory=dict)
    """Topic to partition to leader (broker id)."""
    handlers: dict[ApiKey, Handler] = field(default_factory=dict)
    newest: dict[ApiKey, int] = field(default_factory=dict)
    """Newest version served, if not our newest; -1 if the API is not served."""
    down: set[int] = field(default_factory=set)
    closing: set[int] = field(default_factory=set)
    """Brokers that close each connection after their response to ApiVersions."""
    offline: set[int] = field(default_factory=set)
    """Replicas (broker ids) that metadata reports as offline."""
    seen: list[tuple[int, object]] = field(default_factory=list)
    """(broker id, request) of all requests except ApiVersions."""
    versions: list[tuple[ApiKey, int]] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    """Leader epoch by topic."""
    ids: dict[str, bytes] = field(default_factory=dict)
    """Ids of recreated topics; the other topics have those of `topic_id`."""
    features: dict[str, int] = field(default_factory=dict)
    """Finalized feature levels."""
    connections: int = 0
    """How many connections were made."""

    def requests(self, kind: type) -> list[object]:
        """Return the requests of one class."""
        return [request for _, request in self.seen if isinstance(request, kind)]

    def answer(self, broker_id: int, header: RequestHeader, request: object) -> object:
        """Return a broker's response, or SILENT, NOTHING or LOST."""
        assert isinstance(header.api_key, ApiKey)
        if header.api_key is ApiKey.API_VERSIONS:
            opened = self.handlers.get(ApiKey.API_VERSIONS)
            if opened is not None:
                return opened(broker_id, request)
            newest = self.newest.get(ApiKey.API_VERSIONS, header.api_version)
            if header.api_version > newest:
                key = ApiVersion(api_key=header.api_key, min_version=0, max_version=newest)
                return ApiVersionsResponse(error_code=35, api_keys=[key])
            return self._api_versions()
        self.seen.append((broker_id, request))
        self.versions.append((header.api_key, header.api_version))
        handler = self.handlers.get(header.api_key)
        if handler is not None:
            return handler(broker_id, request)
        assert isinstance(request, MetadataRequest), f"no handler for {header.api_key.name}"
        return self.metadata(request)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Answer with all brokers and the topics asked for."""
        names = (
            list(self.topics)
            if request.topics is None
            else [topic.name for topic in request.topics if topic.name is not None]
        )
        return MetadataResponse(
            cluster_id="fake",
            controller_id=1,
            brokers=[
                MetadataResponseBroker(node_id=broker_id, host="fake", port=9000 + broker_id)
                for broker_id in range(1, self.brokers + 1)
            ],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = self.topics.get(name)
        if partitions is None:
            return MetadataResponseTopic(error_code=3, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.ids.get(name, topic_id(name)),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.epochs.get(name, 0),
                    replica_nodes=[1],
                    isr_nodes=[1],
                    offline_replicas=sorted(self.offline),
                )
                for index, leader in partitions.items()
            ],
        )

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=key,
                    min_version=key.first_version,
                    max_version=self.newest.get(key, key.last_version),
                )
                for key in ApiKey
                if self.newest.get(key, key.last_version) >= 0
            ],
            finalized_features_epoch=1,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.features.items()
            ],
        )


class FakeTransport:
    """A connection that passes whole requests to a broker; responses arrive a little later."""

    def __init__(self, io: FakeIo, broker_id: int, connection: Connection) -> None:
        self.io = io
        self.broker_id = broker_id
        self.connection = connection
        self.closed = False
        self.hangs = False

    def send(self, chunks: list[Buffer]) -> None:
        """Answer one request."""
        frame = b"".join(bytes(chunk) for chunk in chunks)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, position = decode_request_header(memoryview(frame)[4:])
        request = decode_request(header, memoryview(frame)[4:], position)
        if self.hangs:
            return
        response = self.io.cluster.answer(self.broker_id, header, request)
        if response is LOST:
            self.io.later(LATENCY_MS, lambda: self.connection.end(ConnectionLost("gone")))
        elif response is NOTHING:
            self.hangs = True
        elif response is not SILENT:
            assert isinstance(header.api_key, ApiKey)
            version = header.api_version
            if isinstance(response, ApiVersionsResponse) and response.error_code:
                version = 0  # a broker that does not know the version uses version 0 (KIP-511)
            answer = encode_response(header.api_key, version, header.correlation_id, response)
            self.io.later(LATENCY_MS, lambda: self._feed(b"".join(answer), header.api_key))

    def _feed(self, answer: bytes, api_key: int) -> None:
        feed(self.connection, answer)
        if api_key == ApiKey.API_VERSIONS and self.broker_id in self.io.cluster.closing:
            self.connection.end(ConnectionLost("closed"))

    def close(self) -> None:
        """Mark the transport as closed."""
        self.closed = True


class FakeIo(Clock):
    """`Io` under virtual time; its coroutines never suspend."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(1000.0)
        self.cluster = cluster

    def now_ms(self) -> float:
        """Return the virtual time."""
        return self._now_ms

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run an action after a delay in virtual time."""
        self.call_later(delay_ms, action)

    def chance(self) -> float:
        """Return the middle of the range, so that pauses last as long as configured."""
        return 0.5

    async def connect(
        self,
        host: str,
        port: int,
        connection: Connection,
        timeout_ms: float,
        tls: ssl.SSLContext | None = None,
    ) -> FakeTransport:
        """Connect to a broker; raise NotConnected if it is down."""
        broker_id = port - 9000
        if broker_id in self.cluster.down or not 1 <= broker_id <= self.cluster.brokers:
            raise NotConnected(f"{host}:{port} refused")
        self.cluster.connections += 1
        return FakeTransport(self, broker_id, connection)

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Advance time from timer to timer until `ready` or the timeout."""
        deadline_ms = self._now_ms + timeout_ms
        assert deadline_ms < float("inf") or ready() or self._timers, "waits for ever"
        while not ready() and self.turn(deadline_ms):
            pass
        if not ready():
            self._now_ms = deadline_ms
        return ready()

    def wake(self) -> None:
        """Do nothing: no call comes while another one waits."""

    async def pause(self, duration_ms: float) -> None:
        """Let time pass."""
        await self.wait(lambda: False, duration_ms)

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Run work to its end at once."""
        await work
        return lambda: None


def feed(connection: Connection, data: bytes, step: int = 1 << 30) -> None:
    """Feed a connection bytes, at most `step` at a time."""
    position = 0
    while position < len(data):
        room = connection.writable()
        count = min(len(room), len(data) - position, step)
        room[:count] = data[position : position + count]
        connection.written(count)
        position += count


def core_of(cluster: FakeCluster) -> Core:
    """Return a client's core on a fake cluster."""
    return Core(FakeIo(cluster), ClientSettings((("fake", 9001),)))
