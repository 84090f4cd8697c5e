"""The heart of both clients: connections by broker, versions, metadata, routing, repeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from raylog.client.backoff import Backoff
from raylog.client.channel import Channel, Opening
from raylog.client.cluster import ClusterView, TopicPartition
from raylog.client.connection import Connection, Pending
from raylog.client.deadlines import end_ms, until
from raylog.client.errors import (
    ClientError,
    ConnectionLost,
    NotConnected,
    NotKafka,
    RequestTimedOut,
)
from raylog.client.security.tls import context_of
from raylog.client.settings import ClientSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, NotController, error_of
from raylog.wire.messages.api_versions import ApiVersionsResponse
from raylog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from raylog.wire.schema import layout_of

if TYPE_CHECKING:
    from raylog.client.io import Io

R = TypeVar("R")
T = TypeVar("T")

_IDLE_MS = 100.0
"""A connection that was used less long ago is taken without a look."""


class _Failed:
    """A broker to which no connection could be made, or that refused our login."""

    def __init__(self, backoff: Backoff, failure: Exception) -> None:
        self.backoff = backoff
        self.failure = failure
        self.until_ms = 0.0
        """When to try again."""


class Core:
    """Connections and the cluster's metadata, shared by all operations of one client."""

    def __init__(self, io: Io, settings: ClientSettings) -> None:
        self.io = io
        self.settings = settings
        self.cluster = ClusterView()
        self._channels: dict[int, Channel] = {}
        self._tls = context_of(settings.security)
        self._connecting: set[int] = set()
        self._failed: dict[int, _Failed] = {}
        """Brokers to which the last connection could not be made."""
        self._metadata_failing_since_ms: float | None = None
        self._bootstrap = {-2 - i: address for i, address in enumerate(settings.bootstrap)}
        self._metadata_at_ms: dict[str, float] = {}
        self._features: dict[str, int] = {}
        self._features_epoch = -1
        self._is_closed = False

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

        with until(self.io.now_ms() + self.settings.operation_timeout_ms):
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
            timeout_ms = min(self.settings.request_timeout_ms, self.settings.operation_timeout_ms)
        pending, chunks = channel.connection.request(
            request, expected, version, self.io.now_ms() + timeout_ms
        )
        if not answered:
            channel.connection.unanswered(pending)
        channel.transport.send(chunks)
        return pending

    async def answer(self, pending: Pending[R]) -> R:
        """Wait for one answer."""
        await self.wait_for(lambda: pending.done, min(pending.deadline_ms, end_ms()))
        return self.finished(pending)

    def finished(self, pending: Pending[R]) -> R:
        """The answer to a request whose time is over; raises what went wrong."""
        if not pending.done:
            raise RequestTimedOut(f"{pending.api_key.name} was not answered in time")
        return pending.result()

    async def answers(self, pendings: Sequence[Pending[R]]) -> None:
        """Wait until all are done, each with an answer or a failure, or time is up."""
        deadline_ms = max((pending.deadline_ms for pending in pendings), default=0.0)
        await self.wait_for(
            lambda: all(pending.done for pending in pendings), min(deadline_ms, end_ms())
        )

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

    def is_connected(self, node_id: int) -> bool:
        """Whether a request to this broker would leave without waiting for a connection."""
        channel = self._channels.get(node_id)
        return (
            channel is not None
            and channel.is_open
            and node_id not in self._connecting
            and not self._has_moved(node_id, channel)
            and not self._is_worn(channel)
            and self.io.now_ms() < channel.login_again_ms
        )

    def is_aged(self, topic: str) -> bool:
        """Whether a topic's metadata is older than `metadata_max_age_ms`."""
        age_ms = self.io.now_ms() - self._metadata_at_ms.get(topic, float("-inf"))
        return age_ms > self.settings.metadata_max_age_ms

    def in_flight(self, node_id: int) -> int:
        """Unanswered requests of one broker's connection."""
        channel = self._channels.get(node_id)
        return len(channel.connection.pending) if channel is not None else 0

    def close(self) -> None:
        """End all connections; the next request makes a new one."""
        for channel in self._channels.values():
            channel.end(ConnectionLost("the client was closed"))
        self._channels.clear()

    def close_for_good(self) -> None:
        """End all connections; whoever asks for one after that gets ClientError."""
        self._is_closed = True
        self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientError("the client is closed")

    # -- whom to ask ---------------------------------------------------------------------------

    async def any_node(self) -> int:
        """The least loaded broker: the connected one with the fewest unanswered requests.

        Of those, brokers of the metadata come before bootstrap servers: one may have left the
        cluster, and its metadata never says so. Where none is connected: one that is being
        connected to, else one to connect to. Raises NotConnected, naming every address tried.
        """
        open_nodes = [node for node, channel in self._channels.items() if channel.is_open]
        if open_nodes:
            nodes = self.cluster.nodes
            return min(open_nodes, key=lambda node: (self.in_flight(node), node not in nodes))
        self._require_open()
        failures = []
        for node_id in await self._candidates():
            try:
                await self._channel(node_id)
            except ClientError as error:
                failures.append(str(error))
            else:
                return node_id
        tried = "; ".join(dict.fromkeys(failures))
        raise NotConnected(f"no broker can be reached: {tried}")

    async def _candidates(self) -> list[int]:
        """Brokers to connect to, the best first; those that just failed have a pause."""
        known = [*self.cluster.nodes]
        if not known or self.settings.metadata_recovery_strategy == "rebootstrap":
            known += self._bootstrap
        nodes = sorted(known, key=lambda node: node not in self._connecting)
        ready = [node for node in nodes if self._pause_left_ms(node) <= 0]
        if not ready:
            await self.io.pause(self._within_ms(min(map(self._pause_left_ms, nodes))))
            ready = [node for node in nodes if self._pause_left_ms(node) <= 0]
        return ready or nodes[:1]

    def _pause_left_ms(self, node_id: int) -> float:
        """How long not to connect to a broker where that failed (reconnect.backoff.ms)."""
        failed = self._failed.get(node_id)
        return failed.until_ms - self.io.now_ms() if failed is not None else 0.0

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
        response = await self._metadata(request)
        if response.error_code != ErrorCode.NONE:
            raise error_of(response.error_code, "metadata")
        if names is None:
            self._metadata_at_ms.clear()
        self.cluster.update(response, is_whole=names is None)
        now = self.io.now_ms()
        told = {topic.name for topic in response.topics if topic.name}
        self._metadata_at_ms.update(dict.fromkeys(told, now))
        for name in names or ():
            if name not in told:
                raise NotKafka(f"expected an answer about topic {name!r}, found none")

    def forget_idle(self, since_ms: float, used: Container[str]) -> list[str]:
        """Drop topics, those in use apart, that were not asked for since a time; returns them."""
        idle = [
            topic
            for topic, at_ms in self._metadata_at_ms.items()
            if at_ms < since_ms and topic not in used
        ]
        for topic in idle:
            del self._metadata_at_ms[topic]
        self.cluster.forget(idle)
        return idle

    async def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Ask the least loaded broker; when all fail for long, begin again (KIP-1102)."""
        try:
            node_id = await self.any_node()
            response = await self.ask(node_id, request, MetadataResponse)
        except ConnectionLost as error:
            self._metadata_failed()
            if self.cluster.nodes or self.settings.security.uses_sasl:
                raise
            raise NotConnected(
                f"{error}, at the first request: does the listener expect a login "
                "(security.protocol SASL_SSL or SASL_PLAINTEXT)?"
            ) from error
        except ClientError:
            self._metadata_failed()
            raise
        self._metadata_failing_since_ms = None
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap()
            node_id = await self.any_node()
            response = await self.ask(node_id, request, MetadataResponse)
        return response

    def _metadata_failed(self) -> None:
        """Nobody answered a metadata request."""
        now_ms = self.io.now_ms()
        if self._metadata_failing_since_ms is None:
            self._metadata_failing_since_ms = now_ms
        failing_ms = now_ms - self._metadata_failing_since_ms
        if failing_ms >= self.settings.metadata_recovery_rebootstrap_trigger_ms:
            self._rebootstrap()

    def _rebootstrap(self) -> None:
        """Forget the brokers and begin at the bootstrap servers, whose addresses may be new."""
        if self.settings.metadata_recovery_strategy == "none":
            return
        self._metadata_failing_since_ms = None
        for node_id, channel in list(self._channels.items()):
            channel.end(ConnectionLost("the client begins again at the bootstrap servers"))
            del self._channels[node_id]
        self.cluster.nodes.clear()
        self._failed.clear()

    async def know(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Refresh those topics of which too little or nothing recent is known."""
        stale = [
            topic
            for topic in set(topics)
            if topic not in self.cluster.topics or self.is_aged(topic)
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

        The last failure is raised. An attempt ends when time is up, too; with a time of 0 there is
        one, as long as its requests may take. Attempts must be harmless to repeat after every
        failure that is `retriable` (by default: `is_retriable`). As long as no broker was ever
        reached there is nothing to wait for: that is raised at once.
        """
        if retriable is None:
            retriable = is_retriable
        if timeout_ms is None:
            timeout_ms = self.settings.operation_timeout_ms
        deadline_ms = min(self.io.now_ms() + timeout_ms, end_ms())
        backoff = self.backoff()
        while True:
            try:
                with until(deadline_ms if timeout_ms > 0 else float("inf")):
                    return await attempt()
            except (KafkaError, ClientError) as error:
                pause_ms = backoff.next_ms()
                if not retriable(error) or self.io.now_ms() + pause_ms >= deadline_ms:
                    raise
                if isinstance(error, NotConnected) and not self.cluster.nodes:
                    raise
            await self.io.pause(pause_ms)

    def _within_ms(self, most_ms: float) -> float:
        """So long, or until the operation must end."""
        return max(0.0, min(most_ms, end_ms() - self.io.now_ms()))

    def backoff(self) -> Backoff:
        """The pauses between repeats of one operation."""
        settings = self.settings
        return Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, self.io.chance)

    # -- connections ---------------------------------------------------------------------------

    async def _channel(self, node_id: int) -> Channel:
        """The open channel to a broker, made if need be."""
        while node_id in self._connecting or not await self._is_usable(node_id):
            if node_id not in self._connecting:
                await self._prepare(node_id)
                continue
            await self.io.wait(
                lambda: node_id not in self._connecting,
                self._within_ms(self.settings.connect_timeout_ms),
            )
            if self.io.now_ms() >= end_ms():
                raise RequestTimedOut(f"broker {node_id} was not connected to in time")
        return self._channels[node_id]

    async def _is_usable(self, node_id: int) -> bool:
        """Whether a broker's channel is open, and its login good for a while."""
        channel = self._channels.get(node_id)
        if channel is None or not await self._is_fresh(node_id, channel):
            return False
        return self.io.now_ms() < channel.login_again_ms

    async def _prepare(self, node_id: int) -> None:
        """Connect, or log in again; others wait meanwhile."""
        self._connecting.add(node_id)
        try:
            channel = self._channels.get(node_id)
            if channel is not None and channel.is_open and not self._has_moved(node_id, channel):
                await self._log_in_again(channel)
            else:
                self._channels[node_id] = await self._connect(node_id)
        finally:
            self._connecting.discard(node_id)

    async def _log_in_again(self, channel: Channel) -> None:
        """On the same connection, behind what is unanswered (KIP-368)."""
        timeout_ms = self._within_ms(self.settings.request_timeout_ms)
        opening = Opening(self.io, channel, self.io.now_ms() + timeout_ms)
        try:
            await opening.log_in(self.settings.security)
        except (KafkaError, ClientError) as error:
            channel.end(ConnectionLost(f"logging in again failed: {error}"))
            raise

    def _has_moved(self, node_id: int, channel: Channel) -> bool:
        """Whether metadata has a new address for a broker that nobody waits for."""
        if channel.connection.pending or node_id not in self.cluster.nodes:
            return False
        return channel.address != self._address(node_id)

    async def _is_fresh(self, node_id: int, channel: Channel) -> bool:
        """Whether a channel can be used; of one that was idle for long, brokers think otherwise.

        A blocking client looks at its sockets in calls only, so it learns just now what ended.
        """
        now_ms = self.io.now_ms()
        idle_ms, channel.used_ms = now_ms - channel.used_ms, now_ms
        if channel.is_open and idle_ms > _IDLE_MS and not channel.connection.pending:
            await self.io.pause(0)
            if channel.is_open and idle_ms > self.settings.connections_max_idle_ms:
                channel.end(ConnectionLost("it was idle for long"))
        return channel.is_open and not self._has_moved(node_id, channel)

    def _is_worn(self, channel: Channel) -> bool:
        """Whether a channel was idle for so long that its broker may end it any moment."""
        idle_ms = self.io.now_ms() - channel.used_ms
        return idle_ms > self.settings.connections_max_idle_ms and not channel.connection.pending

    async def _connect(self, node_id: int) -> Channel:
        """Open a connection; after a failure only when its pause is over."""
        self._require_open()
        stale = self._channels.pop(node_id, None)
        if stale is not None:
            stale.transport.close()
            self._judge(node_id, stale)
        failed = self._failed.get(node_id)
        if failed is not None and self._pause_left_ms(node_id) > 0:
            raise failed.failure.with_traceback(None)
        try:
            channel = await self._open(*self._address(node_id))
        except (ClientError, KafkaError) as error:
            if self.io.now_ms() >= end_ms():
                raise  # it had no time: that says nothing of the broker
            self._pause(node_id, self.io.now_ms(), error)
            raise
        return channel

    def _judge(self, node_id: int, channel: Channel) -> None:
        """Look back at a connection: if it was of no use, the next one waits longer each time."""
        if channel.has_served:
            self._failed.pop(node_id, None)
        elif not channel.is_open:
            host, port = channel.address
            reason = f"{host}:{port} ended the connection without an answer to any request"
            self._pause(node_id, channel.opened_ms, NotConnected(reason))

    def _pause(self, node_id: int, since_ms: float, failure: Exception) -> None:
        """Do not connect to a broker for a while (reconnect.backoff.ms)."""
        failed = self._failed.get(node_id)
        if failed is None:
            failed = self._failed[node_id] = _Failed(self._reconnect_backoff(), failure)
        failed.until_ms = since_ms + failed.backoff.next_ms()
        failed.failure = failure

    async def _open(self, host: str, port: int) -> Channel:
        """A connection that has agreed on versions and is logged in."""
        connection = Connection(self.settings.client_id)
        timeout_ms = self._within_ms(self.settings.connect_timeout_ms)
        deadline_ms = self.io.now_ms() + timeout_ms
        transport = await self.io.connect(host, port, connection, timeout_ms, self._tls)
        encrypted = self._tls is not None
        channel = Channel(connection, transport, (host, port), is_encrypted=encrypted)
        channel.used_ms = self.io.now_ms()
        opening = Opening(self.io, channel, deadline_ms)
        try:
            self._take_features(await opening.negotiate())
            if self.settings.security.uses_sasl:
                await opening.log_in(self.settings.security)
        except BaseException:  # a task that is cancelled leaves no socket behind, either
            transport.close()
            raise
        if self._is_closed:  # meanwhile
            transport.close()
            raise ClientError("the client is closed")
        channel.opened_ms = self.io.now_ms()
        channel.opening_answers = connection.answer_count
        return channel

    def _reconnect_backoff(self) -> Backoff:
        settings = self.settings
        return Backoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self.io.chance
        )

    def _take_features(self, response: ApiVersionsResponse) -> None:
        """Keep the newest levels of the cluster's features."""
        if response.finalized_features_epoch > self._features_epoch:
            self._features_epoch = response.finalized_features_epoch
            self._features = {
                feature.name: feature.max_version_level for feature in response.finalized_features
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
                channel.end(RequestTimedOut(f"{oldest.api_key.name} was not answered in time"))


def is_retriable(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, NotConnected | ConnectionLost | RequestTimedOut)
