"""The one place where a failure becomes an error code of the protocol."""

from __future__ import annotations

import logging

from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.errors import DecodeError, ErrorCode, KafkaError, error_text

log = logging.getLogger(__name__)
FORESEEN = (KafkaError, DecodeError, PeerLost, PeerTimeout, ActorGone)
"""What may go wrong without a bug of ours."""


def error_code_of(failure: Exception) -> ErrorCode:
    """The code a client gets for a failure on a partition's way."""
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
    """The text beside the code, where an answer has room for one."""
    return error_text(str(failure)) or None
