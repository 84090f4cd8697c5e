"""How many elements a message has."""

import pytest

from raylog.wire.counting import has_more_elements
from raylog.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from raylog.wire.messages.heartbeat import HeartbeatResponse
from raylog.wire.messages.metadata import MetadataRequest


def test_all_arrays_count_in_structs_too() -> None:
    topic = TopicPartitions(topic_id=bytes(16), topic_name="t", partitions=[1, 2, 3])
    member = Member(target_assignment=Assignment(topic_partitions=[topic]))
    response = ConsumerGroupDescribeResponse(groups=[DescribedGroup(members=[member] * 2)])
    elements = 1 + 2 * (1 + 1 + 3)
    assert has_more_elements(response, elements - 1)
    assert not has_more_elements(response, elements)


@pytest.mark.parametrize("message", [HeartbeatResponse(), MetadataRequest(topics=None)])
def test_a_message_without_elements_has_none(message: object) -> None:
    assert not has_more_elements(message, 0)
