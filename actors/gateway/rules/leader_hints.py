"""Adds the current leader to responses for partitions that another broker leads (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.gateway.rules.cluster_facts import reachable
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint

_HINTED = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))


def leader_hint(topic: Topic | None, partition: int, error_code: int) -> LeaderIdAndEpoch | None:
    """Return the leader to report with an error for a client that asked the wrong broker."""
    if error_code not in _HINTED or topic is None or partition >= len(topic.partitions):
        return None
    state = topic.partitions[partition]
    return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)


def node_endpoints(
    image: MetadataImage, hints: Iterable[LeaderIdAndEpoch | None], listener: str
) -> list[NodeEndpoint]:
    """Return the endpoints of the named leaders, for clients of a listener."""
    ids = sorted({hint.leader_id for hint in hints if hint is not None})
    named = (image.brokers[one] for one in ids if one in image.brokers)
    return [
        NodeEndpoint(node_id=broker.broker_id, host=at.host, port=at.port, rack=broker.rack)
        for broker, at in reachable(named, listener)
    ]
