"""Selects the replica that a consumer reads from: an in-sync one in its rack (KIP-392)."""

from __future__ import annotations

from raylog.actors.metadata.image import MetadataImage, PartitionState

SELECTOR_KEY = "replica.selector.class"
RACK_AWARE = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "rack")
"""The name of Kafka's class, and a short name."""


def replica_in_rack(
    image: MetadataImage, state: PartitionState, partition: int, rack: str, listener: str
) -> int | None:
    """Return the broker in a rack to read from; None for the leader, or if there is none.

    If there are several, the partition number selects one, so that readers are spread. An in-sync
    replica has everything that is committed; Kafka chooses the one with the longest log. Replicas
    without the client's listener are skipped.
    """
    leader = image.brokers.get(state.leader)
    if leader is None or leader.rack == rack:
        return None
    near = [
        broker_id
        for broker_id in sorted(state.isr)
        if (broker := image.brokers.get(broker_id)) is not None
        and broker.rack == rack
        and broker.is_live
        and broker.endpoint(listener) is not None
    ]
    return near[partition % len(near)] if near else None
