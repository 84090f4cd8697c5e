"""Messages with more elements than the limit are refused before they are built."""

from __future__ import annotations

import tracemalloc

import pytest

from raylog.wire.api import USUAL_BYTES_MAX, ApiKey, limit_of
from raylog.wire.codec import decode, decode_counted, encode
from raylog.wire.codegen.primitives import put_uvarint
from raylog.wire.errors import DecodeError, TooManyElements
from raylog.wire.frame import HEADER_TAGS_MAX, decode_request_header
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.messages.registry import request_class


def produce(topics: int, partitions: int) -> bytes:
    parts = [PartitionProduceData(index=at, records=None) for at in range(partitions)]
    data = [TopicProduceData(name="t", partition_data=parts)] * topics
    return encode(ProduceRequest(topic_data=data), 9)


def test_the_elements_of_all_arrays_count_together() -> None:
    body = produce(10, 9)
    message, end, elements = decode_counted(ProduceRequest, 9, body, 0, 100)
    assert elements == 100
    assert end == len(body)
    assert message == decode(ProduceRequest, 9, body)
    with pytest.raises(TooManyElements, match="partition_data: 9 elements"):
        decode_counted(ProduceRequest, 9, body, 0, 99)


def test_plain_numbers_count_as_well() -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(50)))]
    body = encode(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(topics=topics)]), 8)
    assert decode_counted(OffsetFetchRequest, 8, body, 0, 52)[2] == 52
    with pytest.raises(TooManyElements):
        decode_counted(OffsetFetchRequest, 8, body, 0, 51)


def test_no_object_is_made_of_what_is_refused() -> None:
    body = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 500_000), 9)
    decode_counted(MetadataRequest, 9, encode(MetadataRequest(topics=[]), 9), 0, 0)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements):
            decode_counted(MetadataRequest, 9, body, 0, 20_000)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def tagged(body: bytes, count: int) -> bytes:
    """A message with unknown tagged fields at its end."""
    out = bytearray(body[:-1])
    put_uvarint(out, count)
    return bytes(out) + b"\x7f\x00" * count


def test_unknown_tagged_fields_count() -> None:
    body = tagged(encode(MetadataRequest(topics=[]), 9), 1_000)
    assert decode_counted(MetadataRequest, 9, body, 0, 1_000)[2] == 1_000
    with pytest.raises(TooManyElements, match="tagged fields: 1000 elements"):
        decode_counted(MetadataRequest, 9, body, 0, 999)


def test_a_header_has_few_tagged_fields() -> None:
    head = b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x00"
    sound = tagged(head, HEADER_TAGS_MAX)
    assert decode_request_header(sound)[1] == len(sound)
    with pytest.raises(DecodeError):
        decode_request_header(tagged(head, HEADER_TAGS_MAX + 1))


def test_ten_thousand_partitions_of_as_many_topics_are_always_allowed() -> None:
    for api_key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT):
        assert limit_of(api_key).elements_max >= 2 * 20_000
    assert limit_of(ApiKey.METADATA).elements_max >= 10_000
    assert limit_of(ApiKey.CREATE_TOPICS).elements_max >= 10_000 * (1 + 3) + 1


def test_every_api_has_a_limit() -> None:
    for api_key in ApiKey:
        limit = limit_of(api_key)
        assert limit.bytes_max >= USUAL_BYTES_MAX
        smallest = encode(request_class(api_key)(), api_key.last_version)
        assert len(smallest) < limit.bytes_max
    assert limit_of(9_999) == limit_of(ApiKey.API_VERSIONS), "as those that are unknown"
    assert limit_of(ApiKey.HEARTBEAT) == min(one.limit for one in ApiKey)
