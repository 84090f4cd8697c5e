"""Telling a client who leads now, in the answer that says somebody else does (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.gateway.cluster_facts import reachable
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint

_HINTED = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))


def leader_hint(topic: Topic | None, partition: int, error_code: int) -> LeaderIdAndEpoch | None:
    """The leader to go to, for an error that means the client is at the wrong one."""
    if error_code not in _HINTED or topic is None or partition >= len(topic.partitions):
        return None
    state = topic.partitions[partition]
    return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)


def node_endpoints(
    image: MetadataImage, hints: Iterable[LeaderIdAndEpoch | None], listener: str
) -> list[NodeEndpoint]:
    """The addresses of the leaders named, for clients of a listener."""
    ids = sorted({hint.leader_id for hint in hints if hint is not None})
    named = (image.brokers[one] for one in ids if one in image.brokers)
    return [
        NodeEndpoint(node_id=broker.broker_id, host=at.host, port=at.port, rack=broker.rack)
        for broker, at in reachable(named, listener)
    ]
