"""Which replica a consumer shall read from: one in its own rack, if that is in sync (KIP-392)."""

from __future__ import annotations

from raylog.actors.metadata.image import MetadataImage, PartitionState

SELECTOR_KEY = "replica.selector.class"
RACK_AWARE = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "rack")
"""Kafka's name for it, and a short one."""


def replica_in_rack(
    image: MetadataImage, state: PartitionState, partition: int, rack: str, listener: str
) -> int | None:
    """The broker to read from in a rack; None where the leader is as good or nobody is there.

    Of several the partition's number chooses, so that readers spread. An in-sync replica has all
    that is committed: Kafka takes the one whose log is longest. One without the listener that the
    client came on is nobody.
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
