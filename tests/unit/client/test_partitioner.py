"""Partitions by key are the same in all Kafka clients."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from raylog.client import Admin, AsyncProducer, InvalidSetting, NewTopic, Producer
from raylog.client.cluster import PartitionView, TopicView
from raylog.client.io import run_blocking
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.partitioner import Turns, crc32_partition, murmur2, partition_of_key
from raylog.client.settings import ProducerSettings
from raylog.testing import EmbeddedBroker
from tests.worlds.client.cluster import FakeCluster, core_of
from tests.worlds.client.producer_partitions import Logs


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


def view(leaders: dict[int, int]) -> TopicView:
    partitions = {index: PartitionView(index, leader, 0) for index, leader in leaders.items()}
    return TopicView("t", b"", partitions=partitions)


def test_turns_go_round_the_partitions_that_lead() -> None:
    topic = view({0: 1, 1: -1, 2: 1, 5: 2})
    turns = Turns(chance=lambda: 0.5)
    assert [turns.next(topic) for _ in range(5)] == [0, 2, 5, 0, 2]
    assert [Turns(chance=lambda: 0.99).any(topic), turns.any(topic)] == [5, 2]
    assert Turns(chance=lambda: 0.5).next(view({0: -1, 1: -1})) == 0, "none leads: any will do"


def test_partitions_where_batches_wait_get_fewer_records() -> None:
    """KIP-794: a partition's share is most + 1 - its own waiting batches."""
    chance = random.Random(7)
    turns = Turns(waiting=lambda topic: {0: 3, 1: 1}, chance=chance.random)
    topic = view({0: 1, 1: 1, 2: 2})
    chosen = Counter(turns.next_free(topic) for _ in range(7_000))
    assert chosen[0] == pytest.approx(1_000, rel=0.15)
    assert chosen[1] == pytest.approx(3_000, rel=0.15)
    assert chosen[2] == pytest.approx(3_000, rel=0.2), "at most 4 of 4, passed over by none"


def test_equally_loaded_partitions_are_used_in_turn() -> None:
    topic = view({0: 1, 1: 1, 2: 2})
    turns = Turns(waiting=lambda topic: {0: 9, 1: 9, 2: 9}, chance=lambda: 0.99)
    assert [turns.next_free(topic) for _ in range(4)] == [0, 1, 2, 0]


def test_brokers_that_take_nothing_are_avoided() -> None:
    turns = Turns(avoided=lambda: [1], chance=lambda: 0.0)
    topic = view({0: 1, 1: 2, 2: 1})
    assert {turns.next_free(topic) for _ in range(9)} == {1}
    everybody = Turns(avoided=lambda: [1, 2], chance=lambda: 0.0)
    assert everybody.next_free(topic) in (0, 1, 2)


def producer(settings: ProducerSettings) -> tuple[ProducerCore, Logs]:
    cluster = FakeCluster(1, {"t": dict.fromkeys(range(3), 1)})
    logs = Logs(cluster)
    made = ProducerCore(core_of(cluster), settings)
    run_blocking(made.prepare("t"))
    return made, logs


def sizes(logs: Logs) -> list[int]:
    return [len(logs.values.get(("t", partition), [])) for partition in range(3)]


def test_sticky_changes_by_bytes_and_not_by_batches() -> None:
    """KIP-794: batches that leave early, for lingering, do not end a partition's turn."""
    made, logs = producer(ProducerSettings(batch_bytes=2_000))
    seen = []
    for _ in range(63):
        made.append("t", b"x" * 180)  # 261 bytes as a batch of its own
        run_blocking(made.flush())
        seen.append(sizes(logs))
    assert seen[6] == [7, 0, 0]
    assert seen[13] == [7, 7, 0]
    assert seen[62] == [21, 21, 21]


def test_sticky_fills_one_batch_a_turn() -> None:
    made, logs = producer(ProducerSettings(batch_bytes=2_000, linger_ms=1_000))
    for _ in range(90):
        made.append("t", b"x" * 180)
    run_blocking(made.flush())
    assert sorted(sizes(logs)) == [27, 27, 36]  # nine a batch: four, three and three
    assert made.statistics().batches == 10


@pytest.mark.parametrize(
    ("name", "keyed", "keyless"),
    [
        ("default", "murmur2", "sticky"),
        ("murmur2_random", "murmur2", "sticky"),
        ("murmur2", "murmur2", "murmur2"),
        ("consistent", "crc32", "crc32"),
        ("consistent_random", "crc32", "sticky"),
        ("round_robin", "turns", "turns"),
        ("random", "any", "any"),
    ],
)
def test_partitioners_by_name(name: str, keyed: str, keyless: str) -> None:
    made, logs = producer(ProducerSettings(partitioner=name))
    made._turns._chance = random.Random(1).random
    keys = [b"key-%d" % number for number in range(30)]
    for key in keys:
        made.append("t", key, key)
    run_blocking(made.flush())
    hashes = {"murmur2": partition_of_key, "crc32": crc32_partition}
    if keyed in hashes:
        for (_, partition), found in logs.values.items():
            assert {hashes[keyed](key, 3) for key in found} == {partition}
    else:
        assert min(sizes(logs)) > 3
    logs.values.clear()
    for key in keys:
        made.append("t", key)
    run_blocking(made.flush())
    if keyless in ("turns", "any"):
        assert min(sizes(logs)) > 3
    else:
        assert sorted(sizes(logs)) == [0, 0, 30]
    if keyless in hashes:
        assert sizes(logs)[hashes[keyless](b"", 3)] == 30


def test_keys_may_be_ignored() -> None:
    made, logs = producer(ProducerSettings(partitioner_ignore_keys=True))
    for number in range(30):
        made.append("t", b"", b"key-%d" % number)
    run_blocking(made.flush())
    assert sorted(sizes(logs)) == [0, 0, 30]


def test_partitions_by_key_agree_with_librdkafka() -> None:
    """A program that leaves confluent-kafka with its partitioner finds its keys where they were."""
    keys = [b"key-%d" % number * (number % 3 + 1) for number in range(40)] + [b""]
    with EmbeddedBroker() as broker:
        for name, ours in (
            ("consistent", crc32_partition),
            ("murmur2", partition_of_key),
            ("consistent_random", crc32_partition),
            ("murmur2_random", partition_of_key),
        ):
            topic = f"keys-{name}"
            with Admin(broker.bootstrap) as admin:
                admin.create_topics([NewTopic(topic, 7)])
            theirs: dict[object, object] = {}
            client = ConfluentProducer(
                {"bootstrap.servers": broker.bootstrap, "partitioner": name, "linger.ms": 0}
            )
            for key in keys:
                client.produce(
                    topic,
                    key,
                    key,
                    on_delivery=lambda error, message: theirs.update(  # noqa: B023 — flushed below
                        {message.value(): message.partition()}
                    ),
                )
            client.flush()
            for key in keys if name in ("consistent", "murmur2") else keys[:-1]:
                assert ours(key, 7) == theirs[key], (name, key)


def by_first_byte(
    topic: str, data: bytes | None, key: object, value: object, partitions: Sequence[int]
) -> int:
    return data[0] % len(partitions) if data else 0


@pytest.mark.parametrize("face", [Producer, AsyncProducer])
def test_a_partitioner_may_be_given_by_name(face: Callable[..., Any]) -> None:
    made = face("127.0.0.1:1", partitioner="round_robin")
    assert made._producer.settings.partitioner == "round_robin"
    assert made._pipeline is None
    assert face("127.0.0.1:1", partitioner=by_first_byte)._pipeline.partitioner is by_first_byte


@pytest.mark.parametrize("face", [Producer, AsyncProducer])
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"partitioner": "nope"}, "partitioner.class: expected .*'round_robin'.*, found 'nope'"),
        ({"partitioner": 5}, "partitioner: expected a function or a name, found int"),
        ({"partitioner": "random", "partitioner_class": "random"}, "partitioner.class was given"),
        ({"partitioner": by_first_byte, "partitioner_class": "random"}, "partitioner.class contra"),
        (
            {"partitioner": by_first_byte, "partitioner_ignore_keys": True},
            "function, which partitioner.ignore.keys contradicts",
        ),
        (
            {"partitioner": "murmur2", "partitioner_ignore_keys": True},
            "murmur2 places all records by their keys: expected partitioner.ignore.keys=False",
        ),
    ],
)
def test_a_wrong_partitioner_is_refused_at_construction(
    face: Callable[..., Any], settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        face("127.0.0.1:1", **settings)
