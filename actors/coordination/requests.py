"""What gateways send coordinators, and what clients are told of a coordinator's own failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from raylog.actors.coordination.step import Asked
from raylog.actors.metrics.errors import ErrorCounts
from raylog.actors.plain import message, taken
from raylog.actors.runtime.base import (
    ActorGone,
    Buffer,
    LinkRequest,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.wire.api import ApiKey
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
from raylog.wire.limits import LIGHT_ELEMENTS_MAX, limit_of
from raylog.wire.messages.registry import request_class

log = logging.getLogger(__name__)
Reply = Callable[[Any], None]
"""Answers a client's request with a response."""


@message
class RequestHead(NamedTuple):
    """What a gateway tells of a client's request beside its body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    """As Kafka tells it: `/127.0.0.1`."""


def take_request(
    runtime: Runtime,
    request: LinkRequest,
    take: Callable[[Asked[Any], Reply], None],
    take_large: Callable[[Asked[Any], Reply], Coroutine[Any, Any, None]],
    errors: ErrorCounts,
) -> None:
    """Decode a client's request that a gateway has forwarded; `take` gets it and what answers it.

    One that cannot be read fails. A large one is decoded beside the event loop, and `take_large`
    lets others have their turn. The gateway lets no later request of the same connection overtake
    it. Large answers are encoded beside the event loop, too. Errors in answers are counted.
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


def _decoded(request: LinkRequest, head: RequestHead, elements_max: int) -> Asked[Any]:
    message: Any
    message, _, _ = decode_counted(
        request_class(ApiKey(head.api_key)), head.version, request.payload, 0, elements_max
    )
    return Asked(0, message, head.version, head.client_id or "", head.client_host)


def _frame(head: RequestHead, response: Any) -> Sequence[Buffer] | UnknownServerError:
    """The answer's frame; the error to answer instead where it cannot be written."""
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
    take: Callable[[Asked[Any], Reply], Coroutine[Any, Any, None]],
    reply: Reply,
) -> None:
    try:
        elements_max = limit_of(head.api_key).elements_max
        taken = await runtime.run_blocking(_decoded, request, head, elements_max)
    except DecodeError as failure:
        request.fail(CorruptMessage(str(failure)))
        return
    taking = take(taken, reply)
    del taken  # `take` may let go of it bit by bit
    await taking


def _reply(
    runtime: Runtime, request: LinkRequest, head: RequestHead, errors: ErrorCounts, response: Any
) -> None:
    """Answer; what takes long to encode is encoded by a thread."""
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
    """What clients of a coordinator are told of a failure of its partition's log.

    Its errors mean something else to them: they would take them for their own partitions'.
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
