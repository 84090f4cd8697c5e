"""Replacements for what owns sockets: the gateway, and the listening ports that a broker holds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.common_messages import TopicId
from raylog.actors.coordination.requests import RequestHead, coordinator_error
from raylog.actors.coordination.rules.placement import partition_of
from raylog.actors.gateway.actor import GatewayActor
from raylog.actors.gateway.cluster import OpenRoute
from raylog.actors.gateway.coordinators import absent
from raylog.actors.gateway.handlers.produce import ANY_EPOCH
from raylog.actors.names import BROKER, GATEWAY
from raylog.actors.replica.messages import (
    FETCH,
    LATEST_TIMESTAMP,
    OFFSET_FOR,
    PRODUCE,
    PRODUCE_IN_TRANSACTION,
    FetchAsk,
    FetchedPartition,
    Interest,
    ProduceAnswer,
    ProducePart,
    TransactionalWrite,
    produced,
)
from raylog.actors.roles import role_class
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.simulation.sockets import CLIENT_REQUEST, DiskMaps, SimConnection
from raylog.simulation.world import ActorClass
from raylog.wire.errors import ErrorCode, KafkaStorageError, error_of

FETCH_BYTES = 1 << 20
_FIRST_SESSION = 1 << 40
"""Those of the gateway's own fetches are smaller."""


class Fetched(NamedTuple):
    """What a reader gets from one partition."""

    high_watermark: int
    log_start_offset: int
    data: bytes
    last_stable_offset: int = -1
    aborted: Sequence[Sequence[int]] = ()
    """(producer id, first offset) of aborted transactions in `data`, for read_committed."""


class SimulatedGateway(GatewayActor):
    """A gateway without a socket: simulated clients reach it over links (`sockets.py`).

    Clients that need only a partition or a coordinator call its methods, which is cheaper.
    """

    def __init__(self, runtime: Runtime, **args: Any) -> None:
        super().__init__(runtime, **args)
        self.maps = self._files = DiskMaps(runtime.disk)
        self._sessions = itertools.count(_FIRST_SESSION)
        self._clients: dict[int, SimConnection] = {}
        """Connections by link."""

    async def start(self) -> None:
        """Start without a listening socket."""

    async def stop(self) -> None:
        """Close the links."""
        self.coordinators.close()
        self.cluster.close()

    def link_received(self, request: LinkRequest) -> None:
        """Handle a client's request."""
        if request.kind != CLIENT_REQUEST:
            super().link_received(request)
            return
        connection = self._clients.get(request.peer)
        if connection is None:
            client, listener = request.header
            connection = self._clients[request.peer] = SimConnection(self, client, listener)
        connection.received(request)

    def link_lost(self, peer: int) -> None:
        """Close the connection of a client that is gone."""
        connection = self._clients.pop(peer, None)
        if connection is not None:
            connection.lost()

    # ---- for clients ---------------------------------------------------------------------

    async def leader_of(self, topic_id: TopicId, partition: int) -> tuple[int, int]:
        """The leader's broker id and epoch as this broker knows them; -1 if there is none."""
        topic = self.cluster.image.topics.get(topic_id)
        if topic is None:
            return -1, -1
        state = topic.partitions[partition]
        return state.leader, state.leader_epoch

    def _route(self, topic_id: TopicId, partition: int) -> OpenRoute:
        return self.cluster.route(self.cluster.topic(topic_id), partition)

    async def produce(
        self, topic_id: TopicId, partition: int, batch: bytes, acks: int, timeout_ms: int
    ) -> ProduceAnswer:
        """Write one batch. Raises the error of the replica."""
        route = self._route(topic_id, partition)
        part = ProducePart(topic_id, partition, ANY_EPOCH, len(batch))
        [outcome] = await route.link.ask(PRODUCE, (acks, timeout_ms, [part]), [batch])
        return produced(outcome)

    async def produce_in_transaction(
        self,
        topic_id: TopicId,
        partition: int,
        batch: bytes,
        timeout_ms: int,
        transaction: TransactionalWrite,
    ) -> ProduceAnswer:
        """Write one batch of a transaction with acks=all."""
        route = self._route(topic_id, partition)
        part = ProducePart(topic_id, partition, ANY_EPOCH, len(batch))
        header = (-1, timeout_ms, [part], transaction)
        [outcome] = await route.link.ask(PRODUCE_IN_TRANSACTION, header, [batch])
        return produced(outcome)

    async def fetch(
        self, topic_id: TopicId, partition: int, offset: int, isolation: int = 0
    ) -> Fetched:
        """Read from an offset. Raises the error of the replica."""
        route = self._route(topic_id, partition)
        epoch = route.leader_epoch
        interest = Interest(topic_id, partition, offset, FETCH_BYTES, epoch, -1)
        session = next(self._sessions)
        ask = FetchAsk(session, True, True, isolation, FETCH_BYTES, 0, False, [interest], [])
        [answer] = await route.link.ask(FETCH, ask)
        part = FetchedPartition(*answer)
        if part.error_code:
            raise error_of(ErrorCode(part.error_code), "refused by the replica")
        data = b""
        if part.length:
            data = self._read(f"{route.directory}/{part.segment_id}", part)
        return Fetched(
            part.high_watermark,
            part.log_start_offset,
            data,
            part.last_stable_offset,
            part.aborted or (),
        )

    async def latest(self, topic_id: TopicId, partition: int, leader_epoch: int) -> int:
        """The end of what can be read. Raises the error of the replica."""
        route = self._route(topic_id, partition)
        asked = (topic_id, partition, leader_epoch, LATEST_TIMESTAMP, 0)
        offset, _, _ = await route.link.ask(OFFSET_FOR, asked)
        return int(offset)

    # ---- coordinators --------------------------------------------------------------------

    async def coordinator_of(self, role: str, key: str) -> int:
        """The broker that coordinates a group or transactional id; -1 if there is none."""
        _, state = partition_of(self.cluster.image, role, key)
        return state.leader

    async def forward(self, role: str, key: str, api_key: int, version: int, body: bytes) -> bytes:
        """Forward a request to this broker's coordinator. Returns the response frame.

        `key` is the group or transactional id of the request.
        """
        link = self.coordinators.link(role)
        if link is None:
            raise absent(self.cluster.image, self.cluster.broker_id, role, key)
        answered = asyncio.get_running_loop().create_future()

        def answer(_: Any, frame: memoryview) -> None:
            if not answered.done():
                answered.set_result(bytes(frame))

        def fail(failure: Exception) -> None:
            if not answered.done():
                answered.set_exception(coordinator_error(failure))

        head = RequestHead(api_key, version, 0, None, "/simulated")
        link.request(role, head, (body,), answer, fail)
        frame: bytes = await answered
        return frame

    def _read(self, path: str, part: FetchedPartition) -> bytes:
        """What a map of the segment file would show."""
        directory, _, segment_id = path.rpartition("/")
        try:
            return bytes(self._files.slice(directory, segment_id, part.position, part.length))
        except OSError as failure:
            raise KafkaStorageError(f"{path} cannot be read: {failure}") from failure


class PortlessBroker(BrokerActor):
    """A broker that holds no ports, because there are no sockets."""

    def _hold_ports(self, *, adopting: bool) -> None:
        """Do nothing: simulated brokers do not compete for ports."""


_STAND_INS: dict[str, ActorClass] = {GATEWAY: SimulatedGateway, BROKER: PortlessBroker}


def simulated_role(role: str) -> ActorClass:
    """The class of a role: the real one, or its replacement if it owns sockets."""
    return _STAND_INS.get(role) or role_class(role)
