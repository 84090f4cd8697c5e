"""A cluster of brokers in memory for the client's coroutines, under virtual time.

Each broker answers by a function of the request. Time passes only in waits, so that timeouts and
pauses cost nothing.
"""

from __future__ import annotations

import heapq
import itertools
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from raylog.client.connection import Buffer, Connection
from raylog.client.core import Core
from raylog.client.errors import ConnectionLost, NotConnected
from raylog.client.settings import ClientSettings
from raylog.wire.api import VERSIONS, ApiKey
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

Handler = Callable[[int, object], object]
"""(broker id, request) to response, or one of the three below."""
SILENT = object()
"""The request has no answer (acks=0); the connection goes on."""
NOTHING = object()
"""The broker hangs: neither this request nor what follows on the connection is answered."""
LOST = object()
"""The connection ends."""
LATENCY_MS = 1.0


def topic_id(name: str) -> bytes:
    """A stable id for a topic of the fake cluster."""
    return name.encode().ljust(16, b"\1")[:16]


@dataclass
class FakeCluster:
    """Brokers 1 to n on ports 9001 to 9000 + n, topics with leaders, handlers by API."""

    brokers: int = 1
    topics: dict[str, dict[int, int]] = field(default_factory=dict)
    """Topic to partition to leader."""
    handlers: dict[ApiKey, Handler] = field(default_factory=dict)
    newest: dict[ApiKey, int] = field(default_factory=dict)
    """Newest version served, where it is not ours; -1: the API is not served."""
    down: set[int] = field(default_factory=set)
    closing: set[int] = field(default_factory=set)
    """Brokers that end each connection with their answer to ApiVersions."""
    offline: set[int] = field(default_factory=set)
    """Replicas that metadata calls offline."""
    seen: list[tuple[int, object]] = field(default_factory=list)
    """(broker id, request) of all but ApiVersions."""
    versions: list[tuple[ApiKey, int]] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    """Leader epoch by topic."""
    ids: dict[str, bytes] = field(default_factory=dict)
    """Ids of topics that were created anew; others have those of `topic_id`."""
    features: dict[str, int] = field(default_factory=dict)
    """Levels that are finalized."""
    connections: int = 0
    """Made so far."""

    def requests(self, kind: type) -> list[object]:
        """The requests of one class."""
        return [request for _, request in self.seen if isinstance(request, kind)]

    def answer(self, broker_id: int, header: RequestHeader, request: object) -> object:
        """What a broker says."""
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
        """All brokers that are up, and the topics asked for."""
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
                    min_version=versions.first,
                    max_version=self.newest.get(key, versions.last),
                )
                for key, versions in VERSIONS.items()
                if self.newest.get(key, versions.last) >= 0
            ],
            finalized_features_epoch=1,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.features.items()
            ],
        )


class FakeTransport:
    """Hands whole requests to a broker; answers arrive a little later."""

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
                version = 0  # a broker that does not know the version answers so (KIP-511)
            answer = encode_response(header.api_key, version, header.correlation_id, response)
            self.io.later(LATENCY_MS, lambda: self._feed(b"".join(answer), header.api_key))

    def _feed(self, answer: bytes, api_key: int) -> None:
        feed(self.connection, answer)
        if api_key == ApiKey.API_VERSIONS and self.broker_id in self.io.cluster.closing:
            self.connection.end(ConnectionLost("closed"))

    def close(self) -> None:
        """Remember it."""
        self.closed = True


class FakeIo:
    """`Io` under virtual time; its coroutines never suspend."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self._now_ms = 1000.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> float:
        """Virtual time."""
        return self._now_ms

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run an action when time has come there."""
        heapq.heappush(self._timers, (self._now_ms + delay_ms, next(self._order), action))

    def chance(self) -> float:
        """The middle: pauses are as long as they are set."""
        return 0.5

    async def connect(
        self,
        host: str,
        port: int,
        connection: Connection,
        timeout_ms: float,
        tls: ssl.SSLContext | None = None,
    ) -> FakeTransport:
        """Connect to a broker that is up."""
        broker_id = port - 9000
        if broker_id in self.cluster.down or not 1 <= broker_id <= self.cluster.brokers:
            raise NotConnected(f"{host}:{port} refused")
        self.cluster.connections += 1
        return FakeTransport(self, broker_id, connection)

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Let time pass from event to event."""
        deadline_ms = self._now_ms + timeout_ms
        assert deadline_ms < float("inf") or ready() or self._timers, "waits for ever"
        while not ready() and self._timers and self._timers[0][0] <= deadline_ms:
            self._now_ms, _, action = heapq.heappop(self._timers)
            action()
        if not ready():
            self._now_ms = deadline_ms
        return ready()

    def wake(self) -> None:
        """Nobody waits while somebody calls."""

    async def pause(self, duration_ms: float) -> None:
        """Let time pass."""
        await self.wait(lambda: False, duration_ms)

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Run work to its end."""
        await work
        return lambda: None


def feed(connection: Connection, data: bytes, step: int = 1 << 30) -> None:
    """Give a connection bytes, at most `step` at a time."""
    position = 0
    while position < len(data):
        room = connection.writable()
        count = min(len(room), len(data) - position, step)
        room[:count] = data[position : position + count]
        connection.written(count)
        position += count


def core_of(cluster: FakeCluster) -> Core:
    """A client's core on a fake cluster."""
    return Core(FakeIo(cluster), ClientSettings((("fake", 9001),)))
