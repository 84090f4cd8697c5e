"""DescribeQuorum 0-2: the copies of the metadata log, and how far each has got (KIP-595).

v1 adds the times of last contact (KIP-836), v2 directories and addresses (KIP-853). The reported
leader is the voter closest to the controller; the epoch is the controller's. The last contact is,
for voters, their last response to the controller, and for other brokers their last request for
metadata. The addresses are those of brokers, because voters have no ports of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.controller.messages import QuorumDescription, QuorumReplica
from raylog.actors.gateway.context import RequestContext
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.remote import Controller
from raylog.wire.errors import UnknownTopicOrPartition
from raylog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    RequestTopicData,
    TopicData,
)
from raylog.wire.uuids import from_base64

METADATA_TOPIC = "__cluster_metadata"
DIRECTORIES_SINCE = 2
TIMEOUT_MS = 10_000
"""For requests without their own deadline."""


async def describe_quorum(
    context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Ask the controller to describe the one metadata log."""
    if list(_partitions(request)) != [(METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(topics=[_unknown(topic) for topic in request.topics])
    found = await context.gateway.controller.ask(Controller.describe_quorum, timeout_ms=TIMEOUT_MS)
    log = _log(found)
    answer = DescribeQuorumResponse(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[log])])
    if context.version >= DIRECTORIES_SINCE:
        answer.nodes = _nodes(context.gateway.cluster.image, found.voters)
        _name_directories(log.current_voters, found.voters)
        _name_directories(log.observers, found.observers)
    return answer


def _partitions(request: DescribeQuorumRequest) -> Iterable[tuple[str, int]]:
    return ((one.topic_name, p.partition_index) for one in request.topics for p in one.partitions)


def _unknown(topic: RequestTopicData) -> TopicData:
    return TopicData(
        topic_name=topic.topic_name,
        partitions=[
            PartitionData(
                partition_index=part.partition_index,
                error_code=int(UnknownTopicOrPartition.code),
                error_message="This server does not host this topic-partition.",
            )
            for part in topic.partitions
        ],
    )


def _log(found: QuorumDescription) -> PartitionData:
    return PartitionData(
        partition_index=0,
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        current_voters=[_state(one) for one in found.voters],
        observers=[_state(one) for one in found.observers],
    )


def _state(replica: QuorumReplica) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.broker_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_contact_ms,
        last_caught_up_timestamp=replica.caught_up_ms,
    )


def _name_directories(states: Iterable[ReplicaState], replicas: Iterable[QuorumReplica]) -> None:
    for state, replica in zip(states, replicas, strict=True):
        state.replica_directory_id = from_base64(replica.directory_id)


def _nodes(image: MetadataImage, voters: Iterable[QuorumReplica]) -> list[Node]:
    return [
        Node(
            node_id=broker.broker_id,
            listeners=[
                Listener(name=at.listener, host=at.host, port=at.port) for at in broker.endpoints
            ],
        )
        for voter in voters
        if (broker := image.brokers.get(voter.broker_id)) is not None
    ]
