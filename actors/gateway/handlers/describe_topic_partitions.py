"""DescribeTopicPartitions 0: topics, in pages with a limited number of partitions (KIP-966).

Topics are sorted by name. The cursor says where the next page starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from raylog.actors.controller.rules.topics import check_name
from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.rules.cluster_facts import (
    INTERNAL_TOPICS,
    TOPIC_OPERATIONS,
    leader_of,
    offline_replicas,
)
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.wire.errors import InvalidRequest
from raylog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

LIMIT_KEY = "max.request.partition.size.limit"


def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | None:
    """Answer one page from this gateway's metadata image."""
    try:
        names = _names(context.gateway.cluster.image, request)
    except InvalidRequest as refusal:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=int(refusal.code), name=topic.name)
                for topic in request.topics
            ]
        )
    response = DescribeTopicPartitionsResponse()
    page = _page(context, request, names, response)
    context.in_turns(page, partial(context.reply, response))
    return None


def _page(
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    names: list[str],
    response: DescribeTopicPartitionsResponse,
) -> Iterator[int]:
    image = context.gateway.cluster.image
    most = context.gateway.settings.number(LIMIT_KEY)
    room = max(1, min(most, request.response_partition_limit))
    for name in names:
        if room == 0:
            response.next_cursor = Cursor(topic_name=name)
            break
        cursor = request.cursor
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        described = _topic(context, name, first, room)
        response.topics.append(described)
        room -= len(described.partitions)
        topic = image.topic(name)
        end = first + len(described.partitions)
        if topic is not None and end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        yield 1 + len(described.partitions)


def _names(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> list[str]:
    """Return the topics from the cursor on, sorted; raises InvalidRequest for a bad cursor."""
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is None:
        return sorted(asked or image.topic_ids)
    if cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor's partition {cursor.partition_index} is below 0")
    if asked and cursor.topic_name not in asked:
        raise InvalidRequest(f"the cursor's topic {cursor.topic_name} is not among those asked for")
    return sorted(name for name in asked or image.topic_ids if name >= cursor.topic_name)


def _topic(
    context: RequestContext, name: str, first: int, room: int
) -> DescribeTopicPartitionsResponseTopic:
    answer = attempt(
        partial(_known, context, name, first, room),
        lambda code, _message: DescribeTopicPartitionsResponseTopic(error_code=code),
    )
    answer.name = name
    answer.is_internal = name in INTERNAL_TOPICS
    answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answer


def _known(
    context: RequestContext, name: str, first: int, room: int
) -> DescribeTopicPartitionsResponseTopic:
    check_name(name)
    cluster, listener = context.gateway.cluster, context.listener
    topic = cluster.topic_named(name)
    end = min(first + room, len(topic.partitions))
    return DescribeTopicPartitionsResponseTopic(
        topic_id=topic.topic_id,
        partitions=[
            _partition(cluster.image, topic, index, listener) for index in range(first, end)
        ],
    )


def _partition(
    image: MetadataImage, topic: Topic, index: int, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    state = topic.partitions[index]
    _, leader = leader_of(image, state, listener)  # having no leader is not an error here
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=offline_replicas(image, state, listener),
    )
