"""Partitions by key must be the same for every Kafka client."""

import pytest

from raylog.client.producer.partitioner import murmur2, next_sticky, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside kafka-python
def test_partitions_by_key_agree_with_kafka_python() -> None:
    from kafka.partitioner.default import murmur2 as theirs

    for length in range(70):
        key = bytes((length * 7 + i * 31) & 0xFF for i in range(length))
        assert murmur2(key) == theirs(key) & 0xFFFFFFFF
        assert partition_of_key(key, 7) == (theirs(key) & 0x7FFFFFFF) % 7


def test_keyless_records_go_round_the_partitions_that_lead() -> None:
    assert [next_sticky(current, [0, 2, 5]) for current in (-1, 0, 2, 5)] == [0, 2, 5, 0]
