"""The core of every client: connections, versions, metadata, routing and retries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

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
from raylog.client.refusals import check
from raylog.client.retries import Backoff, is_connection_failure, is_retriable
from raylog.client.security.tls import context_of
from raylog.client.settings import ClientSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, NotController
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
"""A connection that was used more recently is not checked for having been closed."""


class _Failed:
    """A broker that could not be connected to, or that refused the login."""

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
        """Brokers to which the last connection attempt failed."""
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
        at_least: int = 0,
    ) -> R:
        """Send a request to one broker and return its answer.

        `at_most` and `at_least` bound the version. Raises NotConnected, ConnectionLost,
        RequestTimedOut, NotSupported.
        """
        pending = await self.submit(
            node_id, request, expected, timeout_ms=timeout_ms, at_most=at_most, at_least=at_least
        )
        return await self.answer(pending)

    async def ask_controller(self, request: object, expected: type[R]) -> R:
        """Ask the controller. Connecting is retried; a request that was sent is not."""

        async def reached() -> int:
            return await self.reached(await self.controller())

        with until(self.io.now_ms() + self.settings.operation_timeout_ms):
            return await self.ask(await self.repeat(reached), request, expected)

    async def reached(self, node_id: int) -> int:
        """Connect to a broker and return its id; if that fails, refresh metadata and raise.

        After the refresh, another broker may be the right one.
        """
        try:
            await self.api_versions(node_id)
        except NotConnected:
            await self.refresh([])
            raise
        return node_id

    async def look(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run a read; repeat it if the connection failed or the controller has moved."""
        return await self.repeat(
            attempt,
            retriable=lambda error: (
                isinstance(error, NotController) or is_connection_failure(error)
            ),
        )

    async def ask_any(self, request: object, expected: type[R]) -> R:
        """Send a read-only request to any broker; repeat it if the answer was lost."""

        async def attempt() -> R:
            return await self.ask(await self.any_node(), request, expected)

        return await self.look(attempt)

    async def submit(
        self,
        node_id: int,
        request: object,
        expected: type[R],
        *,
        timeout_ms: float | None = None,
        at_most: int | None = None,
        at_least: int = 0,
        answered: bool = True,
    ) -> Pending[R]:
        """Send a request without waiting for its answer; connects if necessary."""
        channel = await self._channel(node_id)
        api_key = layout_of(type(request)).api_key
        assert api_key is not None, f"{type(request).__name__} is not a request"
        version = channel.version_for(api_key, at_most, at_least)
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
        """Wait for the answer to a request and return it, or raise the failure."""
        await self.wait_for(lambda: pending.done, min(pending.deadline_ms, end_ms()))
        return self.finished(pending)

    def finished(self, pending: Pending[R]) -> R:
        """Return the answer to a request that is done or overdue, or raise its failure."""
        if not pending.done:
            raise RequestTimedOut(f"{pending.api_key.name} was not answered in time")
        return pending.result()

    async def answers(self, pendings: Sequence[Pending[R]]) -> None:
        """Wait until all requests have an answer or a failure, or until the last deadline."""
        deadline_ms = max((pending.deadline_ms for pending in pendings), default=0.0)
        await self.wait_for(
            lambda: all(pending.done for pending in pendings), min(deadline_ms, end_ms())
        )

    async def wait_for(self, ready: Callable[[], bool], deadline_ms: float) -> bool:
        """Wait for a condition on answers; end connections with overdue requests meanwhile."""
        while not ready():
            now = self.io.now_ms()
            self._end_overdue(now)
            if ready() or now >= deadline_ms:
                break
            await self.io.wait(ready, min(deadline_ms, self._next_deadline_ms()) - now)
        return ready()

    async def version_on(self, node_id: int, api_key: ApiKey, at_most: int | None = None) -> int:
        """Return the version that a request to this broker would use."""
        return (await self._channel(node_id)).version_for(api_key, at_most)

    async def api_versions(self, node_id: int) -> dict[int, range]:
        """Return the versions that this broker speaks, by API key."""
        return dict((await self._channel(node_id)).versions)

    def feature_level(self, name: str) -> int:
        """Return a feature's finalized level (KIP-584) as of the last connection; 0: none."""
        return self._features.get(name, 0)

    def is_connected(self, node_id: int) -> bool:
        """Whether a request to this broker can be sent without connecting first."""
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
        """Return the number of unanswered requests on a broker's connection."""
        channel = self._channels.get(node_id)
        return len(channel.connection.pending) if channel is not None else 0

    def close(self) -> None:
        """Close all connections; the next request opens a new one."""
        for channel in self._channels.values():
            channel.end(ConnectionLost("the client was closed"))
        self._channels.clear()

    def close_for_good(self) -> None:
        """Close all connections; later requests raise ClientError."""
        self._is_closed = True
        self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientError("the client is closed")

    # -- which broker to ask -------------------------------------------------------------------

    async def any_node(self) -> int:
        """Return the least loaded broker: the connected one with the fewest unanswered requests.

        On a tie, a broker in the metadata comes before a bootstrap server, which may have left the
        cluster without its own metadata ever saying so. If no broker is connected, wait for a
        connection being made, or else make one. Raises NotConnected, naming every address tried.
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
        """Return brokers to connect to, best first; wait if all are in reconnect backoff."""
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
        """Return how much longer not to connect to a broker (reconnect.backoff.ms)."""
        failed = self._failed.get(node_id)
        return failed.until_ms - self.io.now_ms() if failed is not None else 0.0

    async def controller(self) -> int:
        """Return the controller's id; if unknown, any broker's: it forwards changes of topics."""
        if not self.cluster.nodes:
            await self.refresh([])
        controller_id = self.cluster.controller_id
        return controller_id if controller_id in self.cluster.nodes else await self.any_node()

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> None:
        """Fetch the metadata of these topics (None: of all topics)."""
        names = None if topics is None else sorted(set(topics))
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create,
        )
        response = await self._metadata(request)
        check(response.error_code, "metadata")
        if names is None:
            self._metadata_at_ms.clear()
        self.cluster.update(response, is_whole=names is None)
        now = self.io.now_ms()
        answered = {topic.name for topic in response.topics if topic.name}
        self._metadata_at_ms.update(dict.fromkeys(answered, now))
        for name in names or ():
            if name not in answered:
                raise NotKafka(f"expected an answer about topic {name!r}, found none")

    def forget_idle(self, since_ms: float, used: Container[str]) -> list[str]:
        """Forget topics that are unused and were last refreshed before a time; return them."""
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
        """Ask the least loaded broker; rebootstrap if metadata requests keep failing (KIP-1102)."""
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
        """Record that no broker answered a metadata request; rebootstrap if this lasts too long."""
        now_ms = self.io.now_ms()
        if self._metadata_failing_since_ms is None:
            self._metadata_failing_since_ms = now_ms
        failing_ms = now_ms - self._metadata_failing_since_ms
        if failing_ms >= self.settings.metadata_recovery_rebootstrap_trigger_ms:
            self._rebootstrap()

    def _rebootstrap(self) -> None:
        """Forget the brokers and start again from the bootstrap servers, resolving names anew."""
        if self.settings.metadata_recovery_strategy == "none":
            return
        self._metadata_failing_since_ms = None
        for node_id, channel in list(self._channels.items()):
            channel.end(ConnectionLost("the client begins again at the bootstrap servers"))
            del self._channels[node_id]
        self.cluster.nodes.clear()
        self._failed.clear()

    async def know(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Refresh the metadata of those topics whose metadata is missing or too old."""
        stale = [
            topic
            for topic in set(topics)
            if topic not in self.cluster.topics or self.is_aged(topic)
        ]
        if stale:
            await self.refresh(stale, create=create)

    async def by_leader(self, keys: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader; raises LeaderNotAvailable, UnknownTopicOrPartition."""
        keys = list(keys)
        await self.know(key.topic for key in keys)
        grouped: dict[int, list[TopicPartition]] = {}
        for key in keys:
            grouped.setdefault(self.cluster.leader_of(key), []).append(key)
        return grouped

    # -- retries -------------------------------------------------------------------------------

    async def partitions_of(
        self, topics: Collection[str], *, timeout_ms: float | None = None
    ) -> list[TopicPartition]:
        """Return all partitions of topics, from fresh metadata; raises UnknownTopicOrPartition."""

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
        retriable: Callable[[Exception], bool] = is_retriable,
    ) -> T:
        """Run an attempt until it succeeds, fails for good, or time is up.

        Raises the last failure. The deadline bounds attempts too; with a timeout of 0 there is a
        single attempt, bounded by its requests' timeouts. It must be safe to repeat an attempt
        after any failure that is `retriable`. If no broker was ever reached, NotConnected is raised
        at once.
        """
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
        """Return a duration, shortened to end by the current operation's deadline."""
        return max(0.0, min(most_ms, end_ms() - self.io.now_ms()))

    def backoff(self, retries: int = 0) -> Backoff:
        """Return the pauses between the attempts of one operation, after that many retries."""
        first_ms, max_ms = self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms
        return Backoff(first_ms, max_ms, self.io.chance, retries)

    # -- connections ---------------------------------------------------------------------------

    async def _channel(self, node_id: int) -> Channel:
        """Return the open channel to a broker; connect if necessary."""
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
        """Whether a broker's channel is open and its login does not expire soon."""
        channel = self._channels.get(node_id)
        if channel is None or not await self._is_fresh(node_id, channel):
            return False
        return self.io.now_ms() < channel.login_again_ms

    async def _prepare(self, node_id: int) -> None:
        """Connect or log in again; other tasks that need this broker wait meanwhile."""
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
        """Log in again on the same connection, behind unanswered requests (KIP-368)."""
        timeout_ms = self._within_ms(self.settings.request_timeout_ms)
        opening = Opening(self.io, channel, self.io.now_ms() + timeout_ms)
        try:
            await opening.log_in(self.settings.security)
        except (KafkaError, ClientError) as error:
            channel.end(ConnectionLost(f"logging in again failed: {error}"))
            raise

    def _has_moved(self, node_id: int, channel: Channel) -> bool:
        """Whether metadata has a new address for a broker that has no requests in flight."""
        if channel.connection.pending or node_id not in self.cluster.nodes:
            return False
        return channel.address != self._address(node_id)

    async def _is_fresh(self, node_id: int, channel: Channel) -> bool:
        """Whether a channel can be used: brokers close connections that were idle for too long.

        A blocking client reads its sockets only during calls, so it may notice the close only now.
        """
        now_ms = self.io.now_ms()
        idle_ms, channel.used_ms = now_ms - channel.used_ms, now_ms
        if channel.is_open and idle_ms > _IDLE_MS and not channel.connection.pending:
            await self.io.pause(0)
            if channel.is_open and idle_ms > self.settings.connections_max_idle_ms:
                channel.end(ConnectionLost("it was idle for long"))
        return channel.is_open and not self._has_moved(node_id, channel)

    def _is_worn(self, channel: Channel) -> bool:
        """Whether a channel has been idle so long that its broker may close it at any moment."""
        idle_ms = self.io.now_ms() - channel.used_ms
        return idle_ms > self.settings.connections_max_idle_ms and not channel.connection.pending

    async def _connect(self, node_id: int) -> Channel:
        """Open a connection; raise the last failure again while in reconnect backoff."""
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
                raise  # timed out here, which says nothing about the broker
            self._pause(node_id, self.io.now_ms(), error)
            raise
        return channel

    def _judge(self, node_id: int, channel: Channel) -> None:
        """After a closed connection that served no request, extend the reconnect backoff."""
        if channel.has_served:
            self._failed.pop(node_id, None)
        elif not channel.is_open:
            host, port = channel.address
            reason = f"{host}:{port} ended the connection without an answer to any request"
            self._pause(node_id, channel.opened_ms, NotConnected(reason))

    def _pause(self, node_id: int, since_ms: float, failure: Exception) -> None:
        """Start or extend the reconnect backoff of a broker (reconnect.backoff.ms)."""
        failed = self._failed.get(node_id)
        if failed is None:
            failed = self._failed[node_id] = _Failed(self._reconnect_backoff(), failure)
        failed.until_ms = since_ms + failed.backoff.next_ms()
        failed.failure = failure

    async def _open(self, host: str, port: int) -> Channel:
        """Connect, negotiate versions and log in."""
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
        except BaseException:  # a cancelled task must not leave a socket behind either
            transport.close()
            raise
        if self._is_closed:  # closed in the meantime
            transport.close()
            raise ClientError("the client is closed")
        channel.opened_ms = self.io.now_ms()
        channel.opening_answers = connection.answer_count
        return channel

    def _reconnect_backoff(self) -> Backoff:
        first_ms = self.settings.reconnect_backoff_ms
        return Backoff(first_ms, self.settings.reconnect_backoff_max_ms, self.io.chance)

    def _take_features(self, response: ApiVersionsResponse) -> None:
        """Keep the newest levels of the cluster's features."""
        if response.finalized_features_epoch > self._features_epoch:
            self._features_epoch = response.finalized_features_epoch
            self._features = {
                feature.name: feature.max_version_level for feature in response.finalized_features
            }

    def _address(self, node_id: int) -> tuple[str, int]:
        """Return a broker's host and port; raises NotConnected if it is unknown."""
        if node_id in self._bootstrap:
            return self._bootstrap[node_id]
        node = self.cluster.nodes.get(node_id)
        if node is None:
            raise NotConnected(f"broker {node_id} is not in the metadata")
        return node.host, node.port

    def _next_deadline_ms(self) -> float:
        """Return the earliest deadline of the pending requests."""
        return min(
            (
                channel.connection.pending[0].deadline_ms
                for channel in self._channels.values()
                if channel.connection.pending
            ),
            default=float("inf"),
        )

    def _end_overdue(self, now_ms: float) -> None:
        """Close connections whose oldest request is overdue (answers come in order)."""
        for channel in self._channels.values():
            if channel.connection.is_overdue(now_ms):
                oldest = channel.connection.pending[0]
                channel.end(RequestTimedOut(f"{oldest.api_key.name} was not answered in time"))
