"""ListPartitionReassignments 0: the partitions that are being moved (KIP-455).

Topics and partitions that do not exist are left out, like those that are not being moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from raylog.actors.gateway.context import RequestContext
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> None:
    """Answer from this gateway's metadata image."""
    image = context.gateway.cluster.image
    response = ListPartitionReassignmentsResponse(error_message=None, topics=[])

    def each() -> Iterator[int]:
        for name, indexes in _wanted(image, request):
            topic = _topic(image, name, indexes)
            if topic.partitions:
                response.topics.append(topic)
            yield 1 + len(indexes)

    context.in_turns(each(), partial(context.reply, response))


def _wanted(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterable[tuple[str, Sequence[int]]]:
    if request.topics is None:
        topics = tuple(image.topics.values())  # the image may change between two turns
        return ((one.name, range(len(one.partitions))) for one in topics)
    return ((topic.name, topic.partition_indexes) for topic in request.topics)


def _topic(image: MetadataImage, name: str, indexes: Iterable[int]) -> OngoingTopicReassignment:
    topic_id = image.topic_ids.get(name)
    states = [] if topic_id is None else [(one, image.partition(topic_id, one)) for one in indexes]
    return OngoingTopicReassignment(
        name=name,
        partitions=[
            _partition(index, state)
            for index, state in states
            if state is not None and state.is_reassigned
        ],
    )


def _partition(index: int, state: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )
