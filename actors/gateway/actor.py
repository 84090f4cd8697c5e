"""Shell of the Kafka port: accepts connections, decodes requests, calls the handlers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from raylog.actors.common_messages import RouteUpdate
from raylog.actors.config import BrokerSettings
from raylog.actors.endpoints import Endpoint
from raylog.actors.gateway.acceptor import Acceptor
from raylog.actors.gateway.backlog import Backlog
from raylog.actors.gateway.cluster import ClusterView
from raylog.actors.gateway.connection import ClientConnection, Slot
from raylog.actors.gateway.connections import Connections
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.controller_client import ControllerClient
from raylog.actors.gateway.coordinators import CoordinatorLinks
from raylog.actors.gateway.counts import GatewayCounts
from raylog.actors.gateway.descriptors import descriptor_budget, open_files_max
from raylog.actors.gateway.fetch_sessions import ClientFetchSession, FetchSessionCache
from raylog.actors.gateway.handlers.table import FORWARDED, handler_of, served_versions
from raylog.actors.gateway.lanes import Lanes
from raylog.actors.gateway.large_requests import LargeRequests
from raylog.actors.gateway.maps import SegmentMaps
from raylog.actors.gateway.memory import RequestMemory
from raylog.actors.gateway.producer_ids import ProducerIds
from raylog.actors.gateway.rules.replica_selection import RACK_AWARE, SELECTOR_KEY
from raylog.actors.gateway.sampling import sample_gateway
from raylog.actors.gateway.telemetry.intake import TelemetryIntake
from raylog.actors.gateway.topic_changes import MissingTopics
from raylog.actors.gateway.topic_metadata import TopicMetadata
from raylog.actors.gateway.topic_rules import TopicRulesCache
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.names import host_of
from raylog.actors.replica.messages import FETCH_END
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.actors.runtime.deadlines import Deadlines
from raylog.wire.api import LIGHT_ELEMENTS_MAX, ApiKey
from raylog.wire.codec import decode_counted
from raylog.wire.errors import DecodeError, ErrorCode, TooManyElements, UnsupportedVersion
from raylog.wire.frame import decode_request_header
from raylog.wire.messages.registry import request_class

log = logging.getLogger(__name__)
SESSION_ID_MAX = 2**31 - 1


class GatewayActor:
    """One gateway of a broker. Several share the port (SO_REUSEPORT)."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str,
        cluster_id: str,
        broker_id: int,
        listening: Sequence[Endpoint],
        settings: dict[str, str],
    ) -> None:
        self.runtime = runtime
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self.settings = BrokerSettings(settings)
        self.counts = GatewayCounts(self.settings.number("metrics.topics.max"))
        self.served = served_versions(
            two_phase_commit=self.settings.flag("transaction.two.phase.commit.enable")
        )
        self.cluster = ClusterView(runtime, broker_id)
        budget = descriptor_budget(open_files_max(), shared=host_of(name) != name)
        self.maps = SegmentMaps(budget.maps)
        self.memory = RequestMemory(self.settings.number("queued.max.request.bytes"))
        self.fetch_sessions = FetchSessionCache(
            # As in Kafka, whose cache has eight parts, each with its share of the slots.
            self.settings.number("max.incremental.fetch.session.cache.slots")
            // self.settings.number("gateway.actors"),
            lambda: runtime.random.randint(1, SESSION_ID_MAX),
            self.end_fetch_session,
        )
        self.rules = TopicRulesCache(runtime, self.cluster, self.settings)
        self.lanes = Lanes(runtime)
        self.fetch_bytes_max = self.settings.number("fetch.max.bytes")
        self.selects_replicas = self.settings.raw(SELECTOR_KEY) in RACK_AWARE
        self.topic_metadata = TopicMetadata()
        self.missing_topics = MissingTopics(self)
        self.deadlines = Deadlines(runtime)
        self.controller = ControllerClient(runtime, cluster_id, self.cluster)
        self.coordinators = CoordinatorLinks(runtime)
        self.backlog = Backlog(runtime)
        self.producer_ids = ProducerIds(runtime, self.cluster, self.controller)
        self.turn = asyncio.Lock()
        """Held by the large request that is being handled in turns."""
        self.large_requests = LargeRequests(runtime)
        self.telemetry = TelemetryIntake(self.cluster)
        self.telemetry_turn = asyncio.Lock()
        """Held by the push of metrics that is being decoded."""
        self._name = name
        self._listening = tuple(listening)
        self._routed = False
        self._held: dict[str, socket.socket] = {}
        """Bound sockets by listener, until they are served."""
        self._acceptors: list[Acceptor] = []
        self.connections = Connections(runtime, self.rules.layers, budget.connections, self.memory)

    async def start(self) -> None:
        """Bind the ports. They are served once there are routes and this broker is unfenced.

        Kafka does the same. After a response without brokers, librdkafka may not ask again for
        minutes.
        """
        try:
            for name, host, port in self._listening:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                listener = self._held[name] = socket.socket(family, socket.SOCK_STREAM)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # as in Kafka
                self._size_buffers(listener)
                listener.bind((host, port))
        except OSError:
            for listener in self._held.values():
                listener.close()
            raise

    def _size_buffers(self, listener: socket.socket) -> None:
        """Set the listener's buffer sizes, which every accepted connection inherits."""
        for option, key in (
            (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
            (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
        ):
            size = self.settings.number(key)
            if size != -1:
                listener.setsockopt(socket.SOL_SOCKET, option, size)

    def _serve_when_known(self) -> None:
        own = self.cluster.image.brokers.get(self.broker_id)
        if own is None or own.fenced or not self._routed:
            return
        held, self._held = self._held, {}
        request_bytes_max = self.settings.number("socket.request.max.bytes")
        self._acceptors += [
            Acceptor(
                self.runtime,
                listener,
                self.connections,
                name,
                partial(ClientConnection, self, request_bytes_max, name),
            )
            for name, listener in held.items()
        ]

    async def stop(self) -> None:
        """Stop listening, and close every connection and link."""
        for listener in self._held.values():
            listener.close()
        for acceptor in self._acceptors:
            acceptor.close()
        for connection in self.connections:
            connection.close()
        self.coordinators.close()
        self.cluster.close()

    async def ping(self) -> dict[str, Any]:
        """Return the identity of this process, so that a restarted Broker can adopt it."""
        return {"name": self._name, "pid": os.getpid(), "connections": len(self.connections)}

    async def apply_metadata(
        self, from_offset: int, to_offset: int, records: list[Any], parts: Sequence[bytes] = ()
    ) -> None:
        """Apply metadata from the Broker."""
        await self.cluster.apply_metadata(from_offset, to_offset, records, parts)
        self._serve_when_known()

    async def apply_routes(self, update: RouteUpdate) -> None:
        """Apply routes from the Broker."""
        self.maps.forget(await self.cluster.apply_routes(update))
        self._routed = True
        self._serve_when_known()

    async def apply_coordinator(self, role: str, address: str | None) -> None:
        """Set the address of this broker's coordinator in a role; None if it is not running."""
        await self.coordinators.apply(role, address)

    async def metrics(self) -> ProcessMetrics:
        """Sample this gateway's metrics."""
        samples = Samples()
        self.counts.sample(samples)
        self.telemetry.sample(samples, self.runtime.monotonic_ms())
        await sample_gateway(self, samples)
        return process_metrics(self.runtime, samples)

    def end_fetch_session(self, session: ClientFetchSession) -> None:
        """Make the replicas forget a fetch session."""
        for link in session.links:
            link.request(FETCH_END, (session.link_session_id, True), (), _ignore, _ignore)

    def link_received(self, request: LinkRequest) -> None:
        """Refuse the request: the Broker uses the link only to watch this gateway."""
        request.fail(UnsupportedVersion(f"a gateway does not answer {request.kind}"))

    def link_lost(self, peer: int) -> None:
        """Do nothing: the restarted Broker finds this gateway by name."""

    # ---- connections ---------------------------------------------------------------------

    def connected(self, connection: ClientConnection) -> bool:
        """Add a new connection; return whether it may stay."""
        is_admitted = self.connections.admit(connection)
        self.counts.accepted += 1
        self.counts.closed["limit"] += not is_admitted
        return is_admitted

    def disconnected(self, connection: ClientConnection) -> None:
        """Remove a connection."""
        self.connections.remove(connection)

    def requested(self, connection: ClientConnection, slot: Slot, request: memoryview) -> None:
        """Decode a request and start its handler; raises DecodeError to close the connection."""
        header, body = decode_request_header(request)
        context = RequestContext(self, connection, slot, header)
        api_key = header.api_key
        if not isinstance(api_key, ApiKey) or header.api_version not in self.served.get(
            api_key, ()
        ):
            _unsupported(context)
            return
        if api_key in FORWARDED:
            self._begin(context, request[body:])
            return
        # Trailing bytes are ignored, as in Kafka: librdkafka's Metadata requests have some.
        message_class: type[Any] = request_class(api_key)
        try:
            message, _, _ = decode_counted(
                message_class, header.api_version, request, body, LIGHT_ELEMENTS_MAX
            )
        except TooManyElements:
            context.takes_long()
            self.runtime.start(self._take_large(context, message_class, request[body:]), "decode")
            return
        self._begin(context, message)

    async def _take_large(
        self, context: RequestContext, message_class: type[Any], body: memoryview
    ) -> None:
        """Decode a large request in a thread, and start its handler when there is room."""
        try:
            message = await self.large_requests.decode(context, message_class, body)
        except DecodeError as failure:
            context.refuse(f"{context} cannot be read: {failure}")
        else:
            context.is_large = True
            context.slot.begun_s = self.runtime.clock()
            self._begin(context, message)
        finally:
            context.is_begun()

    def _begin(self, context: RequestContext, message: object) -> None:
        """Start a request's handler."""
        slot, api_key = context.slot, context.header.api_key
        assert isinstance(api_key, ApiKey), "unknown APIs are not served"
        counts = slot.api_counts = self.counts.apis[api_key]
        counts.requests += 1
        try:
            answer = handler_of(api_key)(context, message)
        except AssertionError as broken:
            self.runtime.start(_end_on(broken), str(context))
        except Exception as failure:  # noqa: BLE001 - logged there; other clients go on
            context.fail(failure)
        else:
            if answer is None:  # the handler answers through the context
                if slot.answer is None:
                    slot.left_s = self.runtime.clock()
                return
            if inspect.isawaitable(answer):
                slot.left_s = self.runtime.clock()
                self.runtime.start(_finish(context, answer), str(context))
            else:
                context.reply(answer)


def _ignore(*_: object) -> None:
    """Ignore the response to the end of a session: after a lost link the session is gone anyway."""


async def _finish(context: RequestContext, answer: Awaitable[Any]) -> None:
    """Answer when the handler is done. An unexpected exception closes the connection."""
    try:
        response = await answer
    except AssertionError:
        raise
    except Exception as failure:  # noqa: BLE001 - logged there; other clients go on
        context.fail(failure)
    else:
        if response is not None:
            context.reply(response)


async def _end_on(broken: AssertionError) -> None:
    """End the actor, which happens when an exception leaves a background task."""
    raise broken


def _unsupported(context: RequestContext) -> None:
    """Answer unknown ApiVersions versions in version 0 (KIP-511); close on anything else."""
    header = context.header
    if header.api_key != ApiKey.API_VERSIONS:
        context.refuse(f"request {header.api_key} version {header.api_version} is not served")
        return
    response = handler_of(ApiKey.API_VERSIONS)(context, None)
    response.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
    counts = context.slot.api_counts = context.gateway.counts.apis[header.api_key]
    counts.requests += 1
    context.reply(response, version=0)
