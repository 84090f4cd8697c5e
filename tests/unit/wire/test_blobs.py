"""Records of internal topics and blobs of the consumer protocol."""

import pytest

from raylog.wire.api import ApiKey, limit_of
from raylog.wire.errors import DecodeError, EncodeError
from raylog.wire.internal.blobs import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    decode_blob,
    decode_record,
    encode_key,
    encode_value,
)
from raylog.wire.internal.consumer_groups import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from raylog.wire.internal.offsets import OffsetCommitKey, OffsetCommitValue
from raylog.wire.internal.transactions import TransactionLogKey, TransactionLogValue
from tests.support.cpu_time import cpu_s

KEY = OffsetCommitKey(group="g", topic="t", partition=3)


def test_offset_commit() -> None:
    key = encode_key(KEY)
    assert key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
    encoded = encode_value(value, 3)
    assert encoded[:2] == b"\x00\x03"
    assert decode_record(OFFSETS_TOPIC, key, encoded) == (KEY, value)
    assert decode_record(OFFSETS_TOPIC, key, None) == (KEY, None)


def test_every_kind_round_trips() -> None:
    for kinds in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        for number, kind in kinds.items():
            key, value = kind.key(), kind.value()
            assert encode_key(key)[:2] == number.to_bytes(2, "big")
            again = decode_record(kinds, encode_key(key), encode_value(value, 0))
            assert again == (key, value)


def test_kind_of_a_newer_version_is_passed_over() -> None:
    assert decode_record(OFFSETS_TOPIC, b"\x00\x63whatever", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", b""),
        (encode_key(KEY)[:-1], b""),
        (encode_key(KEY), b"\x00"),
        (encode_key(KEY), b"\x00\x05" + bytes(30)),
        (encode_key(KEY), b"\xff\xff" + bytes(30)),
    ],
)
def test_malformed_records(key: bytes, value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(OFFSETS_TOPIC, key, value)


def test_member_without_classic_metadata_as_apache_kafka_writes_it() -> None:
    value = bytes.fromhex(
        "0000 0000 0a 776972652d74657374 0b 2f3132372e302e302e31 01 08 283f3c6e3e6129 00007530 00"
        "01 00 01 00"  # one tagged field, tag 0 of one byte: no struct
    )
    found = decode_record(OFFSETS_TOPIC, b"\x00\x05\x00\x01g\x00\x01a", value)
    assert found is not None
    member = found[1]
    assert isinstance(member, ConsumerGroupMemberMetadataValue)
    assert member.classic_member_metadata is None
    assert member.subscribed_topic_regex == "(?<n>a)"
    assert member.rebalance_timeout_ms == 30_000


def test_member_with_classic_metadata_in_a_tagged_field() -> None:
    classic = ClassicMemberMetadata(session_timeout_ms=6, supported_protocols=[])
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=classic,
    )
    encoded = encode_value(value, 0)
    assert encoded.endswith(bytes.fromhex("01 00 07 01 00000006 01 00"))
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="a")
    assert decode_record(OFFSETS_TOPIC, encode_key(key), encoded) == (key, value)


def test_transaction_of_version_2_needs_the_flexible_record() -> None:
    value = TransactionLogValue(producer_id=5, next_producer_id=6, client_transaction_version=2)
    key = TransactionLogKey(transactional_id="tx")
    record = (encode_key(key), encode_value(value, 1))
    assert decode_record(TRANSACTIONS_TOPIC, *record) == (key, value)
    with pytest.raises(EncodeError, match="next_producer_id"):
        encode_value(value, 0)


class TestConsumerProtocol:
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"],
        user_data=b"mine",
        owned_partitions=[TopicPartition(topic="a", partitions=[0, 2])],
        generation_id=4,
        rack_id="r",
    )

    def test_versions(self) -> None:
        assert decode_blob(ConsumerProtocolSubscription, encode_value(self.subscription, 3)) == (
            self.subscription
        )
        oldest = decode_blob(ConsumerProtocolSubscription, encode_value(self.subscription, 0))
        assert oldest == ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"mine")

    def test_newer_version_is_read_as_ours(self) -> None:
        newer = b"\x00\x09" + encode_value(self.subscription, 3)[2:] + b"more"
        assert decode_blob(ConsumerProtocolSubscription, newer) == self.subscription

    @pytest.mark.long
    @pytest.mark.parametrize("topics", [[""] * 4_000_000, [f"{n:05}" for n in range(1_000_000)]])
    def test_blob_that_expands_too_much_is_not_decoded(self, topics: list[str]) -> None:
        blob = encode_value(ConsumerProtocolSubscription(topics=topics), 3)
        assert len(blob) < limit_of(ApiKey.JOIN_GROUP).bytes_max

        def decoding() -> None:
            with pytest.raises(DecodeError):
                decode_blob(ConsumerProtocolSubscription, blob)

        assert cpu_s(decoding, 0.05) < 0.05

    @pytest.mark.parametrize("blob", [b"", b"\x00", b"\xff\xff\x00", b"\x00\x00\x00\x00\x00\x01"])
    def test_malformed(self, blob: bytes) -> None:
        with pytest.raises(DecodeError):
            decode_blob(ConsumerProtocolAssignment, blob)
