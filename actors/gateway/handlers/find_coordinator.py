"""FindCoordinator 0-6: the broker that coordinates a group or a transactional id.

v1 adds transactional ids (KIP-98), v4 several keys (KIP-699), v6 share partitions (KIP-932). The
first group creates `__consumer_offsets`, the first transactional id `__transaction_state`. The
request waits briefly for that, and for the start of this broker's own coordinator; Kafka lets the
client retry. Left out: share groups, which get COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from raylog.actors.coordination.rules.placement import key_weight, partition_of
from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.topic_changes import create_internal
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import CoordinatorNotAvailable, ErrorCode, InvalidRequest
from raylog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

SHARE_KEY = 2
_ROLES = {kind.key_type: role for role, kind in KINDS.items()}
_SHARE_PARTITION = re.compile(r".+:[A-Za-z0-9_-]{22}:[0-9]+", re.DOTALL)
SEVERAL_SINCE = 4
SHARE_SINCE = 6
START_TIMEOUT_MS = 5_000


async def find_coordinator(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Answer from this gateway's metadata image."""
    gateway = context.gateway
    image = gateway.cluster.image
    role = _ROLES.get(request.key_type)
    if role is not None and image.topic(KINDS[role].topic) is None:
        await create_internal(gateway, KINDS[role].topic, START_TIMEOUT_MS)
    response = await _answer(context, request)
    found = response.coordinators if context.version >= SEVERAL_SINCE else [response]
    if role is not None and _names(found, gateway.cluster.broker_id):
        links = gateway.coordinators
        await until(
            gateway.runtime,
            links.on_change,
            lambda: links.link(role) is not None,
            START_TIMEOUT_MS,
        )
    return response


def _names(found: Sequence[Coordinator | FindCoordinatorResponse], broker_id: int) -> bool:
    """Whether a broker is among the coordinators found."""
    return any(not one.error_code and one.node_id == broker_id for one in found)


async def _answer(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.version >= SEVERAL_SINCE:
        response = FindCoordinatorResponse(coordinators=[])

        def each() -> Iterator[int]:
            for key in request.coordinator_keys:
                response.coordinators.append(_found(context, key, request.key_type))
                yield key_weight(key)

        await context.turns(each())
        return response
    found = _found(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(context: RequestContext, key: str, key_type: int) -> Coordinator:
    return attempt(
        lambda: _coordinator(context, key, key_type),
        partial(_failed, key),
    )


def _failed(key: str, code: int, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
    )


def _coordinator(context: RequestContext, key: str, key_type: int) -> Coordinator:
    image, version = context.gateway.cluster.image, context.version
    if key_type == SHARE_KEY and version < SHARE_SINCE:
        raise InvalidRequest(f"version {version} does not find share coordinators")
    role = _ROLES.get(key_type)
    if role is None and key_type != SHARE_KEY:
        raise InvalidRequest(f"key type {key_type} is unknown")
    if key_type == SHARE_KEY and not _SHARE_PARTITION.fullmatch(key):
        raise InvalidRequest(f"{key!r} is no share partition: group, topic id, partition by colons")
    if role is None:
        raise CoordinatorNotAvailable("no broker coordinates share groups")
    index, partition = partition_of(image, role, key)
    broker = image.brokers.get(partition.leader)
    if broker is None or broker.fenced:
        raise CoordinatorNotAvailable(f"{KINDS[role].topic}-{index} has no leader")
    at = broker.endpoint(context.listener)
    if at is None:
        raise CoordinatorNotAvailable(
            f"broker {broker.broker_id} has no listener {context.listener}"
        )
    return Coordinator(
        key=key,
        node_id=broker.broker_id,
        host=at.host,
        port=at.port,
        error_code=int(ErrorCode.NONE),
        error_message="",
    )
