"""Requests that gateways forward to coordinators, and errors for clients if a coordinator fails.

A gateway forwards a request over a link, under the coordinator's role. The header is a RequestHead,
the payload the unchanged body. The answer's payload is the whole response frame. A request about
something that this broker does not coordinate is answered with NOT_COORDINATOR, as in Kafka; it
does not fail over the link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.message import message, taken
from raylog.actors.metrics.errors import ErrorCounts
from raylog.actors.runtime.base import (
    ActorGone,
    Buffer,
    LinkRequest,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.wire.api import LIGHT_ELEMENTS_MAX, ApiKey, limit_of
from raylog.wire.codec import decode_counted
from raylog.wire.counting import has_more_elements
from raylog.wire.errors import (
    CoordinatorNotAvailable,
    CorruptMessage,
    DecodeError,
    EncodeError,
    FencedLeaderEpoch,
    InvalidFetchSize,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    TooManyElements,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from raylog.wire.frame import encode_response
from raylog.wire.messages.registry import request_class

log = logging.getLogger(__name__)
Reply = Callable[[Any], None]
"""Sends the response to a client's request."""


@message
class RequestHead(NamedTuple):
    """A client's request without its body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    """In Kafka's format: `/127.0.0.1`."""


def take_request(
    runtime: Runtime,
    request: LinkRequest,
    take: Callable[[ClientCall[Any], Reply], None],
    take_large: Callable[[ClientCall[Any], Reply], Coroutine[Any, Any, None]],
    errors: ErrorCounts,
) -> None:
    """Decode a request that a gateway has forwarded and call `take` with it and a reply function.

    A request that cannot be decoded fails. A large one is decoded in a thread and goes to
    `take_large`, which lets other tasks run in between; the gateway lets no later request of the
    same connection overtake it. Large answers are encoded in a thread too. Errors in answers are
    counted.
    """
    head = taken(RequestHead, request.header)
    try:
        asked = _decoded(request, head, LIGHT_ELEMENTS_MAX)
    except TooManyElements:
        reply = partial(_reply, runtime, request, head, errors)
        runtime.start(_take_large(runtime, request, head, take_large, reply), "a large request")
    except DecodeError as failure:
        request.fail(CorruptMessage(str(failure)))
    else:
        take(asked, partial(_reply, runtime, request, head, errors))


def _decoded(request: LinkRequest, head: RequestHead, elements_max: int) -> ClientCall[Any]:
    message: Any
    message, _, _ = decode_counted(
        request_class(ApiKey(head.api_key)), head.version, request.payload, 0, elements_max
    )
    return ClientCall(0, message, head.version, head.client_id or "", head.client_host)


def _frame(head: RequestHead, response: Any) -> Sequence[Buffer] | UnknownServerError:
    """Encode the answer's frame; return the error to send if it cannot be encoded."""
    api_key = ApiKey(head.api_key)
    try:
        return encode_response(api_key, head.version, head.correlation_id, response)
    except EncodeError as failure:
        log.exception("the answer to %s v%d cannot be written", api_key.name, head.version)
        return UnknownServerError(str(failure))


def _answer(request: LinkRequest, frame: Sequence[Buffer] | UnknownServerError) -> None:
    if isinstance(frame, UnknownServerError):
        request.fail(frame)
    else:
        request.reply(None, frame)


async def _take_large(
    runtime: Runtime,
    request: LinkRequest,
    head: RequestHead,
    take: Callable[[ClientCall[Any], Reply], Coroutine[Any, Any, None]],
    reply: Reply,
) -> None:
    try:
        elements_max = limit_of(head.api_key).elements_max
        taken = await runtime.run_blocking(_decoded, request, head, elements_max)
    except DecodeError as failure:
        request.fail(CorruptMessage(str(failure)))
        return
    taking = take(taken, reply)
    del taken  # `take` may release it piece by piece
    await taking


def _reply(
    runtime: Runtime, request: LinkRequest, head: RequestHead, errors: ErrorCounts, response: Any
) -> None:
    """Answer; large responses are encoded in a thread."""
    errors.answered(head.api_key, response)
    if has_more_elements(response, LIGHT_ELEMENTS_MAX):
        runtime.start(_reply_aside(runtime, request, head, response), "a large answer")
    else:
        _answer(request, _frame(head, response))


async def _reply_aside(
    runtime: Runtime, request: LinkRequest, head: RequestHead, response: Any
) -> None:
    _answer(request, await runtime.run_blocking(_frame, head, response))


def coordinator_error(failure: Exception) -> KafkaError:
    """The error that a coordinator's client gets when the log of its partition fails.

    The log's own errors would mislead clients, who would apply them to the partitions they use.
    """
    match failure:
        case (
            PeerLost()
            | ActorGone()
            | NotLeaderOrFollower()
            | FencedLeaderEpoch()
            | UnknownLeaderEpoch()
            | KafkaStorageError()
        ):
            return NotCoordinator(str(failure))
        case (
            PeerTimeout()
            | UnknownTopicOrPartition()
            | NotEnoughReplicas()
            | NotEnoughReplicasAfterAppend()
            | RequestTimedOut()
        ):
            return CoordinatorNotAvailable(str(failure))
        case MessageTooLarge() | RecordListTooLarge() | InvalidFetchSize():
            return UnknownServerError(str(failure))
        case KafkaError():
            return failure
        case _:
            raise failure
