"""Maps exceptions to the error codes of the Kafka protocol."""

from __future__ import annotations

import logging

from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.errors import DecodeError, ErrorCode, KafkaError, error_text

log = logging.getLogger(__name__)
FORESEEN = (KafkaError, DecodeError, PeerLost, PeerTimeout, ActorGone)
"""Failures that may occur without a bug in Raylog."""


def error_code_of(failure: Exception) -> ErrorCode:
    """Return the error code to send to a client when a request for a partition fails."""
    match failure:
        case KafkaError():
            return failure.code
        case PeerLost() | ActorGone():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # gone or restarting: the client refreshes
        case PeerTimeout():
            return ErrorCode.REQUEST_TIMED_OUT
        case DecodeError():
            return ErrorCode.CORRUPT_MESSAGE
        case _:
            log.error("unexpected failure", exc_info=failure)
            return ErrorCode.UNKNOWN_SERVER_ERROR


def message_of(failure: Exception) -> str | None:
    """Return the error message to send with the code, or None."""
    return error_text(str(failure)) or None
