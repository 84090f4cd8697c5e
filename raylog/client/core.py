"""The heart of both clients: connections by broker, versions, metadata, routing, repeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.client.cluster import ClusterView, TopicPartition
from raylog.client.connection import Connection, Pending
from raylog.client.errors import (
    ClientError,
    ConnectionLost,
    NotConnected,
    NotSupported,
    RequestTimedOut,
)
from raylog.client.io import Io, Transport
from raylog.client.settings import ClientSettings
from raylog.wire.api import VERSIONS, ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, NotController, error_of
from raylog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raylog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from raylog.wire.schema import layout_of

R = TypeVar("R")
T = TypeVar("T")

_API_VERSIONS_VERSION = 3
_IDLE_MS = 100.0
"""A connection that was used less long ago is taken without a look."""
_SOFTWARE_NAME = "raylog"
_SOFTWARE_VERSION = "0.1.0"


@dataclass(slots=True, eq=False)
class Channel:
    """A connection that has agreed on versions."""

    connection: Connection
    transport: Transport
    versions: dict[int, range] = field(default_factory=dict)
    """API key to the versions the broker speaks."""
    used_ms: float = 0.0
    """When it was last asked for."""

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self.connection.ended is None

    def version_for(self, api_key: ApiKey, at_most: int | None = None) -> int:
        """The newest version that both sides know; raises NotSupported."""
        ours = VERSIONS[api_key]
        theirs = self.versions.get(api_key)
        if theirs is None:
            raise NotSupported(f"the broker does not serve {api_key.name}")
        newest = min(ours.last - (1 if ours.unstable else 0), theirs.stop - 1)
        if at_most is not None:
            newest = min(newest, at_most)
        if newest < max(ours.first, theirs.start):
            raise NotSupported(
                f"{api_key.name}: the client speaks versions {ours.first} to {ours.last}, "
                f"the broker {theirs.start} to {theirs.stop - 1}"
            )
        return newest


class Core:
    """Connections and the cluster's metadata, shared by all operations of one client."""

    def __init__(self, io: Io, settings: ClientSettings) -> None:
        self.io = io
        self.settings = settings
        self.cluster = ClusterView()
        self._channels: dict[int, Channel] = {}
        self._connecting: set[int] = set()
        self._bootstrap = {-2 - i: address for i, address in enumerate(settings.bootstrap)}
        self._metadata_at_ms: dict[str, float] = {}
        self._features: dict[str, int] = {}
        self._features_epoch = -1

    # -- requests ----------------------------------------------------------------------------

    async def ask(
        self,
        node_id: int,
        request: object,
        expected: type[R],
        *,
        timeout_ms: float | None = None,
        at_most: int | None = None,
    ) -> R:
        """Send a request to one broker and return its answer.

        `at_most` bounds the version. Raises NotConnected, ConnectionLost, RequestTimedOut,
        NotSupported.
        """
        pending = await self.submit(
            node_id, request, expected, timeout_ms=timeout_ms, at_most=at_most
        )
        return await self.answer(pending)

    async def ask_controller(self, request: object, expected: type[R]) -> R:
        """Ask the controller; connecting is repeated, a request that was sent is not."""

        async def reached() -> int:
            node_id = await self.controller()
            try:
                await self.api_versions(node_id)
            except NotConnected:
                await self.refresh([])  # another may be the one to ask by now
                raise
            return node_id

        return await self.ask(await self.repeat(reached), request, expected)

    async def look(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run what only looks, again when its broker was lost; what a broker answers stands."""
        return await self.repeat(
            attempt,
            retriable=lambda error: isinstance(
                error, NotConnected | ConnectionLost | RequestTimedOut | NotController
            ),
        )

    async def submit(
        self,
        node_id: int,
        request: object,
        expected: type[R],
        *,
        timeout_ms: float | None = None,
        at_most: int | None = None,
        answered: bool = True,
    ) -> Pending[R]:
        """Send a request without waiting for its answer; connects if need be."""
        channel = await self._channel(node_id)
        api_key = layout_of(type(request)).api_key
        assert api_key is not None, f"{type(request).__name__} is not a request"
        version = channel.version_for(api_key, at_most)
        if timeout_ms is None:
            timeout_ms = self.settings.request_timeout_ms
        pending, chunks = channel.connection.request(
            request, expected, version, self.io.now_ms() + timeout_ms
        )
        if not answered:
            channel.connection.unanswered(pending)
        channel.transport.send(chunks)
        return pending

    async def answer(self, pending: Pending[R]) -> R:
        """Wait for one answer."""
        await self.wait_for(lambda: pending.done, pending.deadline_ms)
        return self.finished(pending)

    def finished(self, pending: Pending[R]) -> R:
        """The answer to a request whose time is over; raises what went wrong."""
        if not pending.done:
            raise RequestTimedOut(f"{pending.api_key.name} was not answered in time")
        return pending.result()

    async def answers(self, pendings: Sequence[Pending[R]]) -> None:
        """Wait until all are done, each with an answer or a failure."""
        deadline_ms = max((pending.deadline_ms for pending in pendings), default=0.0)
        await self.wait_for(lambda: all(pending.done for pending in pendings), deadline_ms)

    async def wait_for(self, ready: Callable[[], bool], deadline_ms: float) -> bool:
        """Wait for a condition on answers; overdue connections are ended on the way."""
        while not ready():
            now = self.io.now_ms()
            self._end_overdue(now)
            if ready() or now >= deadline_ms:
                break
            await self.io.wait(ready, min(deadline_ms, self._next_deadline_ms()) - now)
        return ready()

    async def version_on(self, node_id: int, api_key: ApiKey, at_most: int | None = None) -> int:
        """The version that a request to this broker would use."""
        return (await self._channel(node_id)).version_for(api_key, at_most)

    async def api_versions(self, node_id: int) -> dict[int, range]:
        """API key to the versions this broker speaks."""
        return dict((await self._channel(node_id)).versions)

    def feature_level(self, name: str) -> int:
        """A feature's level in the cluster (KIP-584), as brokers told at connecting; 0: none."""
        return self._features.get(name, 0)

    def in_flight(self, node_id: int) -> int:
        """Unanswered requests of one broker's connection."""
        channel = self._channels.get(node_id)
        return len(channel.connection.pending) if channel is not None else 0

    def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            channel.connection.end(ConnectionLost("the client was closed"))
            channel.transport.close()
        self._channels.clear()

    # -- whom to ask ---------------------------------------------------------------------------

    async def any_node(self) -> int:
        """The connected broker with the fewest unanswered requests, or one to connect to.

        Raises NotConnected, naming every address tried.
        """
        open_nodes = [node for node, channel in self._channels.items() if channel.is_open]
        if open_nodes:
            return min(open_nodes, key=self.in_flight)
        failures = []
        for node_id in [*self.cluster.nodes, *self._bootstrap]:
            try:
                await self._channel(node_id)
            except ClientError as error:
                failures.append(str(error))
            else:
                return node_id
        tried = "; ".join(dict.fromkeys(failures))
        raise NotConnected(f"no broker can be reached: {tried}")

    async def controller(self) -> int:
        """The broker that takes changes of topics; any passes them on if none is named."""
        if not self.cluster.nodes:
            await self.refresh([])
        controller_id = self.cluster.controller_id
        return controller_id if controller_id in self.cluster.nodes else await self.any_node()

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> None:
        """Ask for metadata of these topics (None: of all)."""
        names = None if topics is None else sorted(set(topics))
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create,
        )
        response = await self.ask(await self.any_node(), request, MetadataResponse)
        if response.error_code != ErrorCode.NONE:
            raise error_of(response.error_code, "metadata")
        if names is None:
            self.cluster.forget(set(self.cluster.topics))
        self.cluster.update(response)
        now = self.io.now_ms()
        self._metadata_at_ms.update((topic.name, now) for topic in response.topics if topic.name)

    async def know(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Refresh those topics of which too little or nothing recent is known."""
        oldest = self.io.now_ms() - self.settings.metadata_max_age_ms
        stale = [
            topic
            for topic in set(topics)
            if topic not in self.cluster.topics or self._metadata_at_ms.get(topic, 0.0) < oldest
        ]
        if stale:
            await self.refresh(stale, create=create)

    async def by_leader(self, keys: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by their leaders; raises LeaderNotAvailable, UnknownTopicOrPartition."""
        keys = list(keys)
        await self.know(key.topic for key in keys)
        grouped: dict[int, list[TopicPartition]] = {}
        for key in keys:
            grouped.setdefault(self.cluster.leader_of(key), []).append(key)
        return grouped

    # -- repeats -------------------------------------------------------------------------------

    async def partitions_of(
        self, topics: Collection[str], *, timeout_ms: float | None = None
    ) -> list[TopicPartition]:
        """All partitions of topics, asked anew; raises UnknownTopicOrPartition."""

        async def attempt() -> list[TopicPartition]:
            await self.refresh(topics)
            return [
                TopicPartition(topic, partition)
                for topic in topics
                for partition in sorted(self.cluster.topic(topic).partitions)
            ]

        return await self.repeat(attempt, timeout_ms=timeout_ms)

    async def repeat(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: float | None = None,
        retriable: Callable[[Exception], bool] | None = None,
    ) -> T:
        """Run an attempt until it succeeds, fails for good, or time is up.

        The last failure is raised. Attempts must be harmless to repeat after every failure that
        is `retriable` (by default: `is_retriable`). As long as no broker was ever reached there
        is nothing to wait for: that is raised at once.
        """
        if retriable is None:
            retriable = is_retriable
        if timeout_ms is None:
            timeout_ms = self.settings.operation_timeout_ms
        deadline_ms = self.io.now_ms() + timeout_ms
        backoff_ms = self.settings.retry_backoff_ms
        while True:
            try:
                return await attempt()
            except (KafkaError, ClientError) as error:
                if not retriable(error) or self.io.now_ms() + backoff_ms >= deadline_ms:
                    raise
                if isinstance(error, NotConnected) and not self.cluster.nodes:
                    raise
            await self.io.pause(backoff_ms)
            backoff_ms = min(2 * backoff_ms, self.settings.retry_backoff_max_ms)

    # -- connections ---------------------------------------------------------------------------

    async def _channel(self, node_id: int) -> Channel:
        """The open channel to a broker, made if need be."""
        while True:
            channel = self._channels.get(node_id)
            if channel is not None and await self._is_fresh(channel):
                return channel
            if node_id not in self._connecting:
                break
            await self.io.wait(
                lambda: node_id not in self._connecting, self.settings.connect_timeout_ms
            )
        self._connecting.add(node_id)
        try:
            channel = await self._connect(node_id)
        finally:
            self._connecting.discard(node_id)
        self._channels[node_id] = channel
        return channel

    async def _is_fresh(self, channel: Channel) -> bool:
        """Whether a channel can be used; of one that was idle for long, brokers think otherwise.

        A blocking client looks at its sockets in calls only, so it learns just now what ended.
        """
        now_ms = self.io.now_ms()
        idle_ms, channel.used_ms = now_ms - channel.used_ms, now_ms
        if channel.is_open and idle_ms > _IDLE_MS and not channel.connection.pending:
            await self.io.pause(0)
            if channel.is_open and idle_ms > self.settings.connections_max_idle_ms:
                channel.connection.end(ConnectionLost("it was idle for long"))
                channel.transport.close()
        return channel.is_open

    async def _connect(self, node_id: int) -> Channel:
        """Open a connection and agree on versions."""
        stale = self._channels.pop(node_id, None)
        if stale is not None:
            stale.transport.close()
        host, port = self._address(node_id)
        connection = Connection(self.settings.client_id)
        timeout_ms = self.settings.connect_timeout_ms
        transport = await self.io.connect(host, port, connection, timeout_ms)
        channel = Channel(connection, transport, used_ms=self.io.now_ms())
        try:
            channel.versions = await self._negotiate(channel, f"{host}:{port}")
        except Exception:
            transport.close()
            raise
        return channel

    async def _negotiate(self, channel: Channel, address: str) -> dict[int, range]:
        """Ask what the broker speaks."""
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE_NAME, client_software_version=_SOFTWARE_VERSION
        )
        deadline_ms = self.io.now_ms() + self.settings.connect_timeout_ms
        pending, chunks = channel.connection.request(
            request, ApiVersionsResponse, _API_VERSIONS_VERSION, deadline_ms
        )
        channel.transport.send(chunks)
        await self.io.wait(lambda: pending.done, self.settings.connect_timeout_ms)
        if not pending.done:
            raise NotConnected(f"{address} takes connections but does not answer")
        try:
            response = pending.result()
        except ConnectionLost as error:
            raise NotConnected(f"{address} ended the connection: {error}") from error
        if response.error_code != ErrorCode.NONE:
            raise error_of(response.error_code, f"ApiVersions at {address}")
        if response.finalized_features_epoch > self._features_epoch:
            self._features_epoch = response.finalized_features_epoch
            self._features = {
                feature.name: feature.max_version_level for feature in response.finalized_features
            }
        return {
            key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys
        }

    def _address(self, node_id: int) -> tuple[str, int]:
        """Where a broker listens."""
        if node_id in self._bootstrap:
            return self._bootstrap[node_id]
        node = self.cluster.nodes.get(node_id)
        if node is None:
            raise NotConnected(f"broker {node_id} is not in the metadata")
        return node.host, node.port

    def _next_deadline_ms(self) -> float:
        """When the next request becomes overdue."""
        return min(
            (
                channel.connection.pending[0].deadline_ms
                for channel in self._channels.values()
                if channel.connection.pending
            ),
            default=float("inf"),
        )

    def _end_overdue(self, now_ms: float) -> None:
        """End connections whose oldest request got no answer in time: answers come in order."""
        for channel in self._channels.values():
            if channel.connection.is_overdue(now_ms):
                oldest = channel.connection.pending[0]
                channel.connection.end(
                    RequestTimedOut(f"{oldest.api_key.name} was not answered in time")
                )
                channel.transport.close()


def is_retriable(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, NotConnected | ConnectionLost | RequestTimedOut)
