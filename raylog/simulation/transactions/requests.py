"""Finds coordinators, sends them a client's requests, and raises their errors."""

from __future__ import annotations

from random import Random
from typing import Any

from raylog.actors.names import GROUP, TRANSACTION
from raylog.actors.runtime.base import PeerLost
from raylog.simulation.clients import CALL_TIMEOUT_MS
from raylog.simulation.cluster import Cluster
from raylog.simulation.runtime import SimRuntime
from raylog.wire.api import ApiKey
from raylog.wire.codec import encode
from raylog.wire.errors import ErrorCode, error_of
from raylog.wire.frame import decode_response
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from raylog.wire.schema import layout_of

_LENGTH_BYTES = 4
_OTHERS = ErrorCode.OPERATION_NOT_ATTEMPTED
_Request = (
    InitProducerIdRequest
    | AddPartitionsToTxnRequest
    | AddOffsetsToTxnRequest
    | TxnOffsetCommitRequest
    | EndTxnRequest
    | OffsetFetchRequest
)


class NotSent(PeerLost):
    """A request was not sent, so it has no effect."""


class Coordinators:
    """The coordinators of one client's transactional id and group."""

    def __init__(self, cluster: Cluster, runtime: SimRuntime, random: Random) -> None:
        self._cluster = cluster
        self._runtime = runtime
        self._random = random
        self._known: dict[tuple[str, str], int] = {}
        """By role and key, until that broker fails or refuses."""

    async def ask(self, key: str, request: _Request, version: int) -> Any:
        """The coordinator's response. Raises its error, or PeerLost or PeerTimeout.

        `key` is the group or transactional id.
        """
        is_of_group = isinstance(request, TxnOffsetCommitRequest | OffsetFetchRequest)
        role = GROUP if is_of_group else TRANSACTION
        api_key = layout_of(type(request)).api_key
        assert api_key is not None, "requests have one"
        body = encode(request, version)
        broker_id = self._known.pop((role, key), -1)
        if broker_id < 0:
            broker_id = await self._find(role, key)
        frame = await self._call(broker_id, "forward", role, key, int(api_key), version, body)
        response = _taken(api_key, version, frame)
        self._known[role, key] = broker_id
        return response

    async def _find(self, role: str, key: str) -> int:
        any_broker = self._random.randrange(len(self._cluster.machines))
        broker_id: int = await self._call(any_broker, "coordinator_of", role, key)
        if broker_id < 0:
            raise NotSent("no coordinator is known")
        return broker_id

    async def _call(self, broker_id: int, method: str, *args: object) -> Any:
        gateway = self._cluster.gateway_of(broker_id)
        if gateway is None:
            raise NotSent("nobody listens there")
        return await self._runtime.call(gateway.ref, method, *args, timeout_ms=CALL_TIMEOUT_MS)


def _taken(api_key: ApiKey, version: int, frame: bytes) -> Any:
    """Decode a response frame. Raises its error."""
    _, response = decode_response(api_key, version, frame[_LENGTH_BYTES:])
    codes = [code for code in _codes(response) if code]
    if codes:
        code = next((one for one in codes if one != _OTHERS), codes[0])
        raise error_of(code, f"{api_key.name} was refused")
    return response


def _codes(response: Any) -> list[int]:
    """All error codes of a response."""
    match response:
        case AddPartitionsToTxnResponse():
            return [
                one.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
        case TxnOffsetCommitResponse():
            return [one.error_code for topic in response.topics for one in topic.partitions]
        case OffsetFetchResponse():
            stored = [one.error_code for topic in response.topics for one in topic.partitions]
            return [response.error_code, *stored]
        case _:
            return [response.error_code]
