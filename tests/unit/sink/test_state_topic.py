"""The state topic is read to its end, however little a broker sends in one answer."""

from raylog.client.io import run_blocking
from raylog.sink.state_scan import registration
from raylog.sink.state_topic import StateTopic
from raylog.wire.api import ApiKey
from raylog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from raylog.wire.records import Record, assign, encode_batch
from tests.worlds.client.cluster import FakeCluster, core_of

SINK = "copy"
OTHERS = bytearray(encode_batch([Record(0, 1, b'["other", 0]', b"", [])]))
LOGS = {0: [OTHERS] * 3, 1: [bytearray(registration(SINK, 1))], 2: []}
"""By partition. The sink's own is another by now: the topic was given partitions since."""


def offsets(_: int, request: object) -> ListOffsetsResponse:
    assert isinstance(request, ListOffsetsRequest)
    (topic,) = request.topics
    answers = [
        ListOffsetsPartitionResponse(
            partition_index=one.partition_index,
            offset=0 if one.timestamp == -2 else len(LOGS[one.partition_index]),
        )
        for one in topic.partitions
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="state", partitions=answers)])


def fetched(_: int, request: object) -> FetchResponse:
    """One batch fills the answer, as where `max_bytes` is reached."""
    assert isinstance(request, FetchRequest)
    (topic,) = request.topics
    answers, is_full = [], False
    for one in topic.partitions:
        log, records = LOGS[one.partition], None
        if one.fetch_offset < len(log) and not is_full:
            batch = bytearray(log[one.fetch_offset])
            assign(batch, one.fetch_offset, 0)
            records, is_full = memoryview(batch), True
        answers.append(
            PartitionData(partition_index=one.partition, high_watermark=len(log), records=records)
        )
    return FetchResponse(responses=[FetchableTopicResponse(topic="state", partitions=answers)])


def test_partitions_for_which_an_answer_has_no_room_are_read() -> None:
    cluster = FakeCluster(1, {"state": dict.fromkeys(LOGS, 1)})
    cluster.handlers[ApiKey.LIST_OFFSETS] = offsets
    cluster.handlers[ApiKey.FETCH] = fetched
    topic = StateTopic(core_of(cluster), "state", SINK)
    assert run_blocking(topic.partition()).partition != 1
    assert run_blocking(topic.is_known())
