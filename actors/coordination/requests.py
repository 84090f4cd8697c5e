"""What gateways send coordinators, and what clients are told of a coordinator's own failures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from raylog.actors.coordination.step import Asked
from raylog.actors.runtime.base import ActorGone, LinkRequest, PeerLost, PeerTimeout
from raylog.wire.api import ApiKey
from raylog.wire.codec import decode_from
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
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from raylog.wire.frame import encode_response
from raylog.wire.messages.registry import request_class

log = logging.getLogger(__name__)


class RequestHead(NamedTuple):
    """What a gateway tells of a client's request beside its body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    """As Kafka tells it: `/127.0.0.1`."""


def take_request(request: LinkRequest) -> tuple[Asked[Any], Callable[[Any], None]] | None:
    """A client's request that a gateway has forwarded, and what answers it with a response.

    None if it cannot be read: then it has failed.
    """
    head = RequestHead(*request.header)
    api_key = ApiKey(head.api_key)
    message: Any
    try:
        message, _ = decode_from(request_class(api_key), head.version, request.payload, 0)
    except DecodeError as failure:
        request.fail(CorruptMessage(str(failure)))
        return None

    def reply(response: Any) -> None:
        try:
            frame = encode_response(api_key, head.version, head.correlation_id, response)
        except EncodeError as failure:
            log.exception("the answer to %s v%d cannot be written", api_key.name, head.version)
            request.fail(UnknownServerError(str(failure)))
        else:
            request.reply(None, frame)

    return Asked(0, message, head.version, head.client_id or "", head.client_host), reply


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
