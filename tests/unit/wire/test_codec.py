"""Codecs: the rules of the format, one at a time."""

from dataclasses import dataclass

import pytest

from raylog.wire import codec
from raylog.wire.codec import decode, decode_from, encode, encode_chunks
from raylog.wire.errors import DecodeError, EncodeError, UnsupportedVersion
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from raylog.wire.messages.create_topics import CreateTopicsRequest
from raylog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from raylog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.messages.offset_fetch import OffsetFetchRequest
from raylog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC_ID = bytes(range(16))


def produce(records: object) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)  # type: ignore[arg-type]  # also wrong ones
    topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


class TestLayout:
    def test_old_version(self) -> None:
        assert encode(FindCoordinatorRequest(key="grp"), 0) == b"\x00\x03grp"
        request = FindCoordinatorRequest(key="grp", key_type=1)
        assert encode(request, 1) == b"\x00\x03grp\x01"

    def test_flexible_version(self) -> None:
        assert encode(FindCoordinatorRequest(key="grp", key_type=1), 3) == b"\x04grp\x01\x00"

    def test_array_and_null_array(self) -> None:
        named = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        assert encode(named, 1) == b"\x00\x00\x00\x01\x00\x01t"
        assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
        assert encode(MetadataRequest(topics=None), 9) == b"\x00\x01\x00\x00\x00"

    def test_tagged_fields_only_if_they_differ(self) -> None:
        assert encode(FetchRequest(), 15)[-1:] == b"\x00"
        tagged = encode(FetchRequest(replica_state=ReplicaState(replica_id=2)), 15)
        assert tagged[-16:] == b"\x01\x01\x0d" + b"\x00\x00\x00\x02" + b"\xff" * 8 + b"\x00"
        assert encode(FetchRequest(replica_state=ReplicaState()), 15) == encode(FetchRequest(), 15)

    def test_nullable_struct_has_a_presence_byte(self) -> None:
        with_cursor = DescribeTopicPartitionsRequest(
            response_partition_limit=7, cursor=Cursor(topic_name="t", partition_index=1)
        )
        assert encode(with_cursor, 0)[-9:] == b"\x01\x02t\x00\x00\x00\x01\x00\x00"
        assert encode(DescribeTopicPartitionsRequest(), 0)[-2:] == b"\xff\x00"
        heartbeat = ConsumerGroupHeartbeatResponse(assignment=Assignment())
        assert encode(heartbeat, 0)[-4:] == b"\x01\x01\x00\x00"

    @pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16382, 16383, 16384, 32767])
    def test_compact_lengths(self, size: int) -> None:
        request = FindCoordinatorRequest(key="k" * size)
        encoded = encode(request, 3)
        length_bytes = 1 if size < 127 else 2 if size < 16383 else 3
        assert len(encoded) == length_bytes + size + 2
        assert decode(FindCoordinatorRequest, 3, encoded) == request


class TestRecordData:
    def test_decoded_as_a_view(self) -> None:
        frame = encode(produce(b"batch"), 13)
        request = decode(ProduceRequest, 13, frame)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is frame
        assert bytes(records) == b"batch"

    def test_encoded_by_reference(self) -> None:
        pieces = [memoryview(b"first"), b"second"]
        chunks = encode_chunks(produce(pieces), 13)
        assert chunks[1] is pieces[0]
        assert chunks[2] is pieces[1]
        assert b"".join(chunks) == encode(produce(b"firstsecond"), 13)

    def test_none_and_empty(self) -> None:
        for version in (3, 13):
            for records in (None, b""):
                encoded = encode(produce(records), version)
                again = decode(ProduceRequest, version, encoded)
                assert again.topic_data[0].partition_data[0].records == records
        assert len(encode_chunks(produce([]), 13)) == 1

    def test_no_empty_chunk_behind_the_records(self) -> None:
        response = FetchResponse(
            responses=[FetchableTopicResponse(partitions=[PartitionData(records=b"batch")])]
        )
        assert [len(chunk) > 0 for chunk in encode_chunks(response, 4)] == [True, True]


class TestWhatAVersionLacks:
    def test_ignorable_is_left_out(self) -> None:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        assert encode(request, 2) == b""
        assert decode(ApiVersionsRequest, 2, b"") == ApiVersionsRequest()

    def test_refused_unless_ignorable(self) -> None:
        with pytest.raises(EncodeError, match=r"FetchRequest\.replica_id: version 15.*7"):
            encode(FetchRequest(replica_id=7), 15)
        with pytest.raises(EncodeError, match="coordinator_keys"):
            encode(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 3)
        with pytest.raises(EncodeError, match="replica_state"):
            encode(FetchRequest(replica_state=ReplicaState(replica_id=1)), 14)
        assert encode(FetchRequest(replica_state=ReplicaState()), 14)

    def test_absent_fields_take_defaults(self) -> None:
        request = decode(FetchRequest, 4, encode(FetchRequest(max_wait_ms=9), 4))
        assert request == FetchRequest(max_wait_ms=9)
        assert (request.session_epoch, request.rack_id) == (-1, "")
        first, second = (decode(FetchRequest, 4, encode(FetchRequest(), 4)) for _ in range(2))
        assert first.forgotten_topics_data is not second.forgotten_topics_data

    def test_null_only_where_the_version_has_it(self) -> None:
        request = OffsetFetchRequest(group_id="g", topics=None)
        assert encode(request, 2) == b"\x00\x01g\xff\xff\xff\xff"
        with pytest.raises(EncodeError):
            encode(request, 1)
        with pytest.raises(DecodeError):
            decode(OffsetFetchRequest, 1, b"\x00\x01g\xff\xff\xff\xff")

    def test_unknown_version(self) -> None:
        for version in (-1, 2, 14, 2**15):
            with pytest.raises(UnsupportedVersion, match="ProduceRequest has versions 3 to 13"):
                encode(ProduceRequest(), version)
            with pytest.raises(UnsupportedVersion):
                decode(ProduceRequest, version, b"")


class TestValuesThatDoNotFit:
    @pytest.mark.parametrize(
        "request_",
        [
            ProduceRequest(acks=2**15),
            ProduceRequest(timeout_ms=-(2**31) - 1),
            ProduceRequest(timeout_ms=None),  # type: ignore[arg-type]  # what is tested
            ProduceRequest(transactional_id="\ud800"),
            ProduceRequest(transactional_id="x" * 32768),
            ProduceRequest(transactional_id=7),  # type: ignore[arg-type]  # what is tested
            ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")]),
            ProduceRequest(topic_data=None),  # type: ignore[arg-type]  # what is tested
            produce(7),
        ],
    )
    def test_encode_error(self, request_: ProduceRequest) -> None:
        with pytest.raises(EncodeError):
            encode(request_, 13)

    def test_not_a_message(self) -> None:
        @dataclass
        class Stranger:
            name: str = "x"

        with pytest.raises(TypeError, match="Stranger is not a wire message"):
            encode(Stranger(), 0)


class TestMalformedInput:
    def test_invalid_utf8(self) -> None:
        with pytest.raises(DecodeError, match="utf-8"):
            decode(FindCoordinatorRequest, 0, b"\x00\x02\xc3\x28")

    def test_null_where_null_is_not_allowed(self) -> None:
        with pytest.raises(DecodeError, match=r"FindCoordinatorRequest\.key"):
            decode(FindCoordinatorRequest, 0, b"\xff\xff")
        with pytest.raises(DecodeError, match=r"FindCoordinatorRequest\.key"):
            decode(FindCoordinatorRequest, 3, b"\x00\x00\x00")

    @pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00", b"\x7f\xff", b"\x00\x01"])
    def test_bad_string_lengths(self, length: bytes) -> None:
        with pytest.raises(DecodeError):
            decode(FindCoordinatorRequest, 0, length)

    @pytest.mark.parametrize("count", [-2, -(2**31), 2**31 - 1, 33])
    def test_bad_counts(self, count: int) -> None:
        with pytest.raises(DecodeError, match=r"MetadataRequest\.topics"):
            decode(MetadataRequest, 1, count.to_bytes(4, "big", signed=True) + bytes(64))

    def test_string_longer_than_kafka_allows(self) -> None:
        body = b"\x81\x80\x02" + b"k" * 32768 + b"\x00\x00"  # length 32,768
        with pytest.raises(DecodeError, match="32768"):
            decode(FindCoordinatorRequest, 3, body)

    @pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\x01"])
    def test_varint_over_32_bits(self, varint: bytes) -> None:
        with pytest.raises(DecodeError, match="exceeds 32 bits"):
            decode(FindCoordinatorRequest, 3, varint + b"k" * 64)

    def test_longer_form_of_a_varint_is_accepted(self) -> None:
        """Kafka accepts it as well; some writers pad lengths they fill in later."""
        request = decode(FindCoordinatorRequest, 3, b"\x82\x80\x00k\x00\x00")
        assert request.key == "k"

    def test_any_byte_but_zero_is_true(self) -> None:
        for byte in (b"\x01", b"\x02", b"\xff"):
            encoded = encode(CreateTopicsRequest(validate_only=True), 2)
            assert decode(CreateTopicsRequest, 2, encoded[:-1] + byte).validate_only is True

    def test_any_negative_presence_byte_is_null(self) -> None:
        encoded = encode(DescribeTopicPartitionsRequest(), 0)
        request = decode(DescribeTopicPartitionsRequest, 0, encoded[:-2] + b"\x80\x00")
        assert request.cursor is None

    def test_left_over_bytes(self) -> None:
        with pytest.raises(DecodeError, match="1 bytes left over"):
            decode(FindCoordinatorRequest, 0, b"\x00\x01k\x00")
        assert decode_from(FindCoordinatorRequest, 0, b"\x00\x01k\x00", 0)[1] == 3


class TestTaggedFields:
    def body(self, tags: bytes) -> bytes:
        return encode(ProduceResponse(), 13)[:-1] + tags

    def test_unknown_ones_are_skipped(self) -> None:
        tags = b"\x02\x05\x03abc\x80\x01\x00"  # tag 5 of 3 bytes, tag 128 of none
        assert decode(ProduceResponse, 13, self.body(tags)) == ProduceResponse()
        assert decode(FindCoordinatorRequest, 3, b"\x02k\x00" + tags).key == "k"

    @pytest.mark.parametrize(
        "tags",
        [
            b"\x01\x05\x04abc",  # runs past the end
            b"\x02\x05\x00",  # one too few
            b"\xff\xff\xff\xff\x0f\x05\x00",  # count without end
            b"\x01\x05\xff\xff\xff\xff\xff\x01",  # size of more than 32 bits
        ],
    )
    def test_lies(self, tags: bytes) -> None:
        with pytest.raises(DecodeError):
            decode(ProduceResponse, 13, self.body(tags))
        with pytest.raises(DecodeError):
            decode(FindCoordinatorRequest, 3, b"\x02k\x00" + tags)

    @pytest.mark.parametrize("tags", [b"\x01\x00\x02\x01\x00", b"\x01\x00\x00\x01"])
    def test_size_of_a_known_tag_that_is_not_its_value_s(self, tags: bytes) -> None:
        with pytest.raises(DecodeError, match="ProduceResponse tags"):
            decode(ProduceResponse, 13, self.body(tags))

    def test_several(self) -> None:
        partition = PartitionData(
            current_leader=LeaderIdAndEpoch(leader_id=4, leader_epoch=5), records=b""
        )
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
        again = decode(FetchResponse, 16, encode(response, 16))
        assert again == response
        assert again.responses[0].partitions[0].diverging_epoch is None


def test_codecs_are_made_once() -> None:
    encode(ProduceRequest(), 5)
    decoder = codec.decoder_of(ProduceRequest, 5)
    assert codec.decoder_of(ProduceRequest, 5) is decoder
