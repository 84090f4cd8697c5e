"""Requests of consumer groups, forwarded as they came to the coordinator of this broker.

JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, OffsetCommit 2-10, OffsetFetch 1-10,
TxnOffsetCommit 0-5, OffsetDelete 0, ListGroups 0-5, DescribeGroups 0-6, DeleteGroups 0-2,
ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1. What each version added is told in
`actors/group` and `wire/messages`. The body is decoded here only if there is no coordinator to
answer.
"""

from __future__ import annotations

from typing import Any

from raylog.actors.coordination.requests import RequestHead, coordinator_error
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.coordinators import absent
from raylog.actors.group.api import GROUP_REQUEST, failed
from raylog.actors.names import GROUP
from raylog.wire.api import ApiKey
from raylog.wire.codec import decode_from
from raylog.wire.errors import CorruptMessage, KafkaError
from raylog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.registry import request_class


def group_requests(context: RequestContext, body: memoryview) -> None:
    """Pass a request on; the coordinator's answer is the client's."""
    link = context.gateway.coordinators.link(GROUP)
    header = context.header
    if link is None:
        _answer_absent(context, body)
        return

    def answered(_: Any, frame: memoryview) -> None:
        context.reply_frame(frame)

    def lost(failure: Exception) -> None:
        if isinstance(failure, CorruptMessage):
            context.refuse(f"{context} cannot be read: {failure}")
        else:
            _fail(context, body, coordinator_error(failure))

    head = RequestHead(
        int(header.api_key),
        header.api_version,
        header.correlation_id,
        header.client_id,
        f"/{context.connection.host}",
    )
    link.request(GROUP_REQUEST, head, (body,), answered, lost)


def _answer_absent(context: RequestContext, body: memoryview) -> None:
    """The coordinator is not running: because it is not needed here, or not yet."""
    request = _decoded(context, body)
    if isinstance(request, ListGroupsRequest):
        context.reply(ListGroupsResponse())
        return
    cluster = context.gateway.cluster
    group_id = getattr(request, "group_id", "")
    failure = absent(cluster.image, cluster.broker_id, group_id)
    context.reply(failed(request, context.version, failure))


def _fail(context: RequestContext, body: memoryview, failure: KafkaError) -> None:
    context.reply(failed(_decoded(context, body), context.version, failure))


def _decoded(context: RequestContext, body: memoryview) -> Any:
    api_key = ApiKey(context.header.api_key)
    request: Any
    request, _ = decode_from(request_class(api_key), context.version, body, 0)
    return request
