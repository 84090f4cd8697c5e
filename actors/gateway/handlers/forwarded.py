"""Forwards requests unchanged to a coordinator of this broker, whose response goes to the client.

To the GroupCoordinator: JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, OffsetCommit
2-10, OffsetFetch 1-10, TxnOffsetCommit 0-5, OffsetDelete 0, ListGroups 0-5, DescribeGroups 0-6,
DeleteGroups 0-2, ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1.

To the TransactionCoordinator: EndTxn 0-5, DescribeTransactions 0, ListTransactions 0-2; through
their own handlers InitProducerId 0-6, AddPartitionsToTxn 0-3 and AddOffsetsToTxn 0-4. What each
version added is documented in `actors/group`, `actors/transaction` and `wire/messages`. The body is
decoded here only if no coordinator can answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from raylog.actors.coordination.requests import RequestHead, coordinator_error
from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.coordinators import absent, check_none_led
from raylog.actors.gateway.handlers.table import FORWARDED
from raylog.actors.metadata.features import GROUP_VERSION, level_of
from raylog.actors.names import GROUP, TRANSACTION
from raylog.actors.roles import of_role
from raylog.actors.runtime.base import Buffer, Link
from raylog.actors.transaction.rules import failures as transaction_failures
from raylog.actors.transaction.rules import filtering
from raylog.wire.api import ApiKey, limit_of
from raylog.wire.codec import decode_counted
from raylog.wire.errors import (
    CoordinatorNotAvailable,
    CorruptMessage,
    DecodeError,
    InvalidRequest,
    KafkaError,
    NotCoordinator,
    UnsupportedVersion,
)
from raylog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from raylog.wire.messages.registry import request_class
from raylog.wire.messages.sync_group import SyncGroupRequest

log = logging.getLogger(__name__)
_CONSUMER_PROTOCOL = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
"""Served only if `group.version` is 1 (KIP-848)."""
LARGE_BODY_BYTES = 16 << 10
"""A coordinator may handle larger requests in parts; later requests must not overtake them."""


_FAILED: dict[str, Callable[[Any, int, KafkaError], Any]] = {
    role: of_role(role, "rules.failures", "failed") for role in KINDS
}
"""Builds the response to a failed request, by the coordinator's role."""


def forwarded(context: RequestContext, body: memoryview) -> None:
    """Forward a request to the coordinator of its API."""
    api_key = ApiKey(context.header.api_key)
    features = context.gateway.cluster.image.features
    if api_key in _CONSUMER_PROTOCOL and not level_of(GROUP_VERSION, features):
        off = UnsupportedVersion(f"the feature {GROUP_VERSION} has level 0")
        context.reply(_FAILED[GROUP](_decoded(context, body), context.version, off))
        return
    forward(context, FORWARDED[api_key], body)


def forward(context: RequestContext, role: str, body: Buffer) -> None:
    """Forward a request's body to the coordinator of a role."""
    link = context.gateway.coordinators.link(role)
    takes_long = len(body) > LARGE_BODY_BYTES
    if takes_long:
        context.takes_long()
        context.is_large = True
    if link is None:
        _reply_to(context, body, partial(_absent, context, role))
        return
    forwarding = _Forwarding(context, role, body, takes_long=takes_long)
    context.gateway.backlog.send(link, context, partial(forwarding.send, link))


class _Forwarding:
    """A request that a coordinator is to answer."""

    __slots__ = ("_body", "_context", "_remains", "_role", "_takes_long")

    def __init__(
        self, context: RequestContext, role: str, body: Buffer, *, takes_long: bool
    ) -> None:
        self._context = context
        self._role = role
        self._body = body
        self._remains: Any = None
        """The fields of a waiting request that the response needs if the request fails."""
        self._takes_long = takes_long

    def send(self, link: Link) -> None:
        """Send it. A request that waits for other members holds no bytes and no memory quota."""
        context = self._context
        header = context.header
        head = RequestHead(
            int(header.api_key),
            header.api_version,
            header.correlation_id,
            header.client_id,
            f"/{context.connection.host}",
        )
        body = self._body
        self._remains = _remains_of(context, body)
        if self._remains is not None:
            self._body = b""
            context.waits(_nobody_to_tell)
        link.request(self._role, head, (body,), self._answered, self._lost)

    def _answered(self, _: Any, frame: memoryview) -> None:
        if self._takes_long:
            self._context.is_begun()
        self._context.reply_frame(frame)

    def _lost(self, failure: Exception) -> None:
        context = self._context
        if isinstance(failure, CorruptMessage):
            context.refuse(f"{context} cannot be read: {failure}")
            return
        log.info("%s fails at its coordinator: %s", context, failure)
        if self._remains is not None:
            if self._takes_long:
                context.is_begun()
            context.reply(self._failed(failure, self._remains))
        else:
            _reply_to(context, self._body, partial(self._failed, failure))

    def _failed(self, failure: Exception, request: Any) -> Any:
        return _FAILED[self._role](request, self._context.version, _shown(request, failure))


def _nobody_to_tell() -> None:
    """Do nothing: if a waiting member disconnects, its session at the coordinator will expire."""


def _remains_of(context: RequestContext, body: Buffer) -> Any:
    """Return the fields that the response needs if a request that waits for other members fails.

    None for any other request, and for one that cannot be decoded.
    """
    api_key = context.header.api_key
    if api_key == ApiKey.SYNC_GROUP:
        return SyncGroupRequest()
    if api_key != ApiKey.JOIN_GROUP:
        return None
    try:
        return JoinGroupRequest(member_id=_decoded(context, body).member_id)
    except DecodeError:
        return None


def _shown(request: Any, failure: Exception) -> KafkaError:
    """Return the error that a client gets when its coordinator fails.

    A request that lists everything never gets NOT_COORDINATOR, since there is no other coordinator
    to look for.
    """
    shown = coordinator_error(failure)
    lists = isinstance(request, ListGroupsRequest | ListTransactionsRequest)
    if lists and isinstance(shown, NotCoordinator):
        return CoordinatorNotAvailable(str(failure))
    return shown


def _reply_to(context: RequestContext, body: Buffer, answer: Callable[[Any], Any]) -> None:
    """Answer without a coordinator; a large request, which blocks its connection, in a thread."""
    if not context.is_large:
        try:
            request = _decoded(context, body)
        except DecodeError as failure:
            context.refuse(f"{context} cannot be read: {failure}")
        else:
            context.reply(answer(request))
        return

    gateway = context.gateway

    async def reply() -> None:
        try:
            request = await gateway.large_requests.decode(
                context, request_class(ApiKey(context.header.api_key)), memoryview(body)
            )
            made = await gateway.runtime.run_blocking(answer, request)
        except DecodeError as failure:
            context.refuse(f"{context} cannot be read: {failure}")
        else:
            context.reply(made)
        context.is_begun()

    gateway.runtime.start(reply(), str(context))


def _absent(context: RequestContext, role: str, request: Any) -> Any:
    """Return the response while no coordinator runs here, as none is needed or it is starting."""
    match request:
        case ListGroupsRequest() | ListTransactionsRequest():
            return _none_listed(context, role, request)
        case DescribeTransactionsRequest():
            return DescribeTransactionsResponse(
                transaction_states=[
                    _not_described(context, one) for one in request.transactional_ids
                ]
            )
        case AddPartitionsToTxnRequest():
            key = request.v3_and_below_transactional_id
        case _:
            key = getattr(request, KINDS[role].key_field, "") or ""
    return _FAILED[role](request, context.version, _why(context, role, key))


def _why(context: RequestContext, role: str, key: str) -> KafkaError:
    if role == TRANSACTION and not key:
        return InvalidRequest("the transactional id is empty")
    cluster = context.gateway.cluster
    return absent(cluster.image, cluster.broker_id, role, key)


def _none_listed(
    context: RequestContext, role: str, request: ListGroupsRequest | ListTransactionsRequest
) -> Any:
    """Return an empty list if this broker coordinates nothing; the request is still validated."""
    cluster = context.gateway.cluster
    try:
        if isinstance(request, ListTransactionsRequest):
            filtering.filter_of(request)
        check_none_led(cluster.image, cluster.broker_id, role)
    except KafkaError as failure:
        return _FAILED[role](request, context.version, failure)
    if isinstance(request, ListGroupsRequest):
        return ListGroupsResponse()
    return ListTransactionsResponse(unknown_state_filters=filtering.unknown_states(request))


def _not_described(context: RequestContext, transactional_id: str) -> TransactionState:
    code = int(_why(context, TRANSACTION, transactional_id).code)
    return transaction_failures.described_failed(transactional_id, code)


def _decoded(context: RequestContext, body: Buffer) -> Any:
    api_key = ApiKey(context.header.api_key)
    request: Any
    elements_max = limit_of(api_key).elements_max
    request, _, _ = decode_counted(request_class(api_key), context.version, body, 0, elements_max)
    return request
