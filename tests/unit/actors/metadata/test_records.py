"""Encoding and decoding metadata records, across versions."""

from typing import get_args

import msgpack
import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.metadata.records import (
    _NUMBERS,
    VERSION,
    BrokerRegistered,
    ClusterNamed,
    ConfigChanged,
    LeaderChanged,
    MetadataCorrupt,
    PartitionChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
    VotersChanged,
    decode_record,
    encode_record,
    newest_version,
    voters_in,
)

TOPIC = TopicId(b"0123456789abcdef")
SAMPLES: list[Record] = [
    LeaderChanged(7, "c/controller/1.2"),
    ClusterNamed("c", "m"),
    VotersChanged(((0, "d0"), (1, "d1"))),
    BrokerRegistered(
        broker_id=1,
        broker_epoch=5,
        host="h",
        port=9092,
        rack=None,
        directory_id="d",
        incarnation="i",
        fenced=True,
        endpoints=(("X", "h", 9092), ("Y", "::1", 9093)),
    ),
    TopicCreated(TOPIC, "t"),
    PartitionCreated(TOPIC, 0, (0, 1), (0,), 0, 3, 4, {0: "a", 1: "b"}),
    PartitionChanged(TOPIC, 0, isr=(), incarnations={0: "x"}, elr=(0,), last_known_elr=(0,)),
    PartitionChanged(TOPIC, 0, replicas=(1, 0), adding_replicas=(1,), removing_replicas=(0,)),
    ConfigChanged(2, "t", "retention.ms", None),
]


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_reads_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_every_record_type_has_its_own_number() -> None:
    numbers = [_NUMBERS[kind] for kind in get_args(Record)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_a_record_of_an_older_build_gets_the_defaults_of_newer_fields() -> None:
    old = msgpack.packb([10, 0, TOPIC, 0, (0,), (0,), 0])
    assert decode_record(old) == PartitionCreated(TOPIC, 0, (0,), (0,), 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb(17),
        msgpack.packb([]),
        msgpack.packb([99, 0]),
        msgpack.packb([1, 0]),
        msgpack.packb([1, 0, 7, "", 8, [], 9]),
    ],
)
def test_malformed_record_is_refused(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt):
        decode_record(data)


def test_unknown_fields_of_a_newer_record_are_ignored() -> None:
    newer = msgpack.packb([2, VERSION + 1, "cluster", "metadata", {"of a": "newer build"}, 7])
    assert decode_record(newer) == ClusterNamed("cluster", "metadata")


def test_a_record_of_a_type_that_this_build_lacks_is_named() -> None:
    with pytest.raises(MetadataCorrupt, match=f"type 99 and version {VERSION + 1}, this build"):
        decode_record(msgpack.packb([99, VERSION + 1, "x"]))


def test_voter_sets_are_found_without_decoding_the_rest() -> None:
    first = VotersChanged(((0, "a"),))
    second = VotersChanged(((0, "a"), (1, "b")))
    others = [encode_record(one) for one in (ClusterNamed("c"), TopicDeleted(TopicId(b"t" * 16)))]
    assert voters_in([*others, b"", b"\x93", b"rubbish"]) is None
    found = voters_in([*others, encode_record(first), *others, encode_record(second), *others])
    assert found == second.voters


def test_the_newest_version_of_records_is_known_without_reading_them() -> None:
    records = [encode_record(one) for one in SAMPLES]
    assert newest_version(records) == VERSION
    assert newest_version([*records, msgpack.packb([2, VERSION + 1, "c", "m", 7])]) == VERSION + 1
    assert newest_version([]) == newest_version([b"", b"no record"]) == 0
