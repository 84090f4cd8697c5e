"""What gateways send coordinators, and what clients are told of a coordinator's own failures."""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.errors import (
    CoordinatorNotAvailable,
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


class RequestHead(NamedTuple):
    """What a gateway tells of a client's request beside its body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    """As Kafka tells it: `/127.0.0.1`."""


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
