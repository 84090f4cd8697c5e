"""What Kafka promises of producers: buffer, sender, keys, acks, idempotence."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import InvalidSetting
from raylog.client.interceptors import RecordMetadata
from raylog.client.io import run_blocking
from raylog.client.producer.batch import RECORD_OBJECTS_BYTES
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.partitioner import partition_of_key
from raylog.client.settings import ProducerSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.produce import ProduceRequest
from raylog.wire.records import decode_batch, read_header
from tests.worlds.client.cluster import NOTHING, FakeCluster, core_of
from tests.worlds.client.producer_partitions import Logs, refused


class Rig:
    """A producer on a fake cluster of two brokers."""

    def __init__(
        self,
        settings: ProducerSettings | None = None,
        topics: dict[str, dict[int, int]] | None = None,
    ) -> None:
        self.cluster = FakeCluster(2, topics or {"t": {0: 1, 1: 2}})
        self.logs = Logs(self.cluster)
        self.core = core_of(self.cluster)
        self.producer = ProducerCore(self.core, settings or ProducerSettings())
        for topic in self.cluster.topics:
            run_blocking(self.producer.prepare(topic))

    @property
    def requests(self) -> list[tuple[int, ProduceRequest]]:
        """(broker, request) of all produce requests."""
        return [
            (broker, one) for broker, one in self.cluster.seen if isinstance(one, ProduceRequest)
        ]

    @property
    def batches(self) -> list[bytes]:
        """All batches sent, repeats included."""
        return [
            data.records.tobytes() if isinstance(data.records, memoryview) else b""
            for _, request in self.requests
            for topic in request.topic_data
            for data in topic.partition_data
        ]

    def flush(self) -> None:
        run_blocking(self.producer.flush())


def test_accumulator_a_deque_of_batches_for_each_partition() -> None:
    """Records are appended to the last batch, the sender takes from the first."""
    rig = Rig(ProducerSettings(batch_bytes=200, in_flight_max=1))
    for number in range(6):
        rig.producer.append("t", b"%d" % number * 60, partition=0)
    queue = rig.producer._accumulator._queues["t", 0]
    assert [batch.record_count for batch in queue.batches] == [1] * 6
    assert queue.open is queue.batches[-1]
    first = queue.batches[0]
    run_blocking(rig.producer.step())
    assert queue.in_flight == [first]
    rig.flush()
    assert rig.logs.values["t", 0] == [b"%d" % number * 60 for number in range(6)]


def test_accumulator_defaults() -> None:
    """buffer.memory 32 MiB, max.block.ms 60,000, 5 in flight; batch.size is 128 KiB here."""
    settings = ProducerSettings()
    assert settings.buffer_bytes == 32 * 1024 * 1024
    assert settings.max_block_ms == 60_000
    assert settings.in_flight_max == 5
    assert settings.transaction_timeout_ms == 60_000
    assert Rig().core.settings.metadata_max_age_ms == 300_000


def test_accumulator_a_batch_is_batch_size_unless_one_record_is_larger() -> None:
    rig = Rig(ProducerSettings(batch_bytes=1_000))
    for size in (100, 100, 5_000, 100, 800, 200):
        rig.producer.append("t", b"x" * size, partition=0)
    rig.flush()
    assert len(rig.logs.values["t", 0]) == 6
    sizes = [[len(record.value or b"") for record in decode_batch(batch)] for batch in rig.batches]
    assert sizes == [[100, 100], [5_000], [100], [800], [200]]


def test_accumulator_what_a_request_holds_is_never_changed() -> None:
    """A repeat is made of the very bytes that were sent first."""
    rig = Rig()
    rig.producer.append("t", b"x", partition=0)
    rig.logs.refuse = [lambda *_: refused(0, ErrorCode.NOT_ENOUGH_REPLICAS)]
    rig.flush()
    assert len(rig.batches) == 2
    assert rig.batches[0] == rig.batches[1]


def test_accumulator_all_memory_is_given_back() -> None:
    rig = Rig(ProducerSettings(batch_bytes=500))
    for number in range(100):
        rig.producer.append("t", b"x" * 50, b"k", [("h", b"1")], partition=number % 2)
    held = rig.producer.statistics().buffer_bytes
    assert held >= 100 * (RECORD_OBJECTS_BYTES + 51)
    rig.flush()
    assert rig.producer.statistics().buffer_bytes == 0


def test_sender_batches_by_node_and_requests_in_flight() -> None:
    """Partition → batches becomes node → requests; a connection has 5 unanswered at most."""
    rig = Rig(ProducerSettings(batch_bytes=150, in_flight_max=5))
    for partition in range(2):
        rig.producer.append("t", b"first", partition=partition)
    rig.flush()
    rig.logs.refuse = [lambda *_: NOTHING] * 100
    for number in range(40):
        rig.producer.append("t", b"x" * 50, partition=number % 2)
    for _ in range(20):
        run_blocking(rig.producer.step(everything=True))
    # what a hanging broker is sent after its first request is not seen by it: look at this side
    assert [rig.core.in_flight(broker) for broker in (1, 2)] == [5, 5]
    for broker, request in rig.requests:
        for topic in request.topic_data:
            assert [rig.cluster.topics["t"][data.index] for data in topic.partition_data] == [
                broker
            ]


def test_sender_metadata_is_asked_for_when_a_leader_has_moved_or_a_topic_is_unknown() -> None:
    rig = Rig()
    asked = len(rig.cluster.requests(MetadataRequest))
    rig.producer.append("t", b"1", partition=0)
    rig.flush()
    assert len(rig.cluster.requests(MetadataRequest)) == asked, "what is known is not asked for"
    rig.cluster.topics["t"][0] = 2
    rig.cluster.epochs["t"] = 1
    rig.producer.append("t", b"2", partition=0)
    rig.flush()
    assert rig.logs.values["t", 0] == [b"1", b"2"]
    assert len(rig.cluster.requests(MetadataRequest)) > asked
    rig.cluster.topics["new"] = {0: 1}
    run_blocking(rig.producer.prepare("new"))
    rig.producer.append("new", b"3")
    rig.flush()
    assert rig.logs.values["new", 0] == [b"3"]


def test_key_murmur2_for_keys_sticky_or_round_robin_without() -> None:
    topics = {"t": dict.fromkeys(range(3), 1)}
    rig = Rig(topics=topics)
    for number in range(30):
        rig.producer.append("t", b"keyed", b"key-%d" % number)
        rig.producer.append("t", b"keyless")
    rig.flush()
    found = {key[1]: Counter(values) for key, values in rig.logs.values.items()}
    expected = Counter(partition_of_key(b"key-%d" % number, 3) for number in range(30))
    assert {at: found[at][b"keyed"] for at in found} == expected
    assert sorted(found[at][b"keyless"] for at in found) == [0, 0, 30]
    turns = Rig(ProducerSettings(partitioner="round_robin"), topics)
    for _ in range(30):
        turns.producer.append("t", b"")
    turns.flush()
    assert [len(values) for values in turns.logs.values.values()] == [10, 10, 10]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(acks: int) -> None:
    """0: nobody answers, so no offset is known; 1 and all: the leader does."""
    rig = Rig(ProducerSettings(acks=acks))
    ends: list[tuple[RecordMetadata, Exception | None]] = []
    rig.producer.append("t", b"x", partition=0, listener=lambda *end: ends.append(end))
    rig.flush()
    assert [request.acks for _, request in rig.requests] == [acks]
    ((metadata, failure),) = ends
    assert failure is None
    assert metadata.offset == (-1 if acks == 0 else 0)


def test_idempotence_a_repeat_is_the_same_and_equal_records_are_two() -> None:
    rig = Rig()
    rig.logs.refuse = [lambda *_: refused(0, ErrorCode.NETWORK_EXCEPTION)]
    for _ in range(2):
        rig.producer.append("t", b"equal", partition=0)
    rig.flush()
    assert rig.logs.values["t", 0] == [b"equal", b"equal"]
    headers = [read_header(batch) for batch in rig.batches]
    assert len(headers) == 2
    assert headers[0] == headers[1]


def test_transactions_need_an_id_and_idempotence() -> None:
    with pytest.raises(InvalidSetting):
        ProducerSettings(transactional_id="x", acks=1)
    with pytest.raises(InvalidSetting):
        ProducerSettings(transactional_id="x", idempotent=False)
    rig = Rig()
    with pytest.raises(InvalidSetting, match="transactional_id"):
        rig.producer.begin_transaction()
    with pytest.raises(InvalidSetting, match="transactional_id"):
        run_blocking(
            rig.producer.send_offsets_to_transaction(
                {TopicPartition("t", 0): 1}, GroupMetadata("g")
            )
        )


# -- what is asked of any producer ----------------------------------------------------------------


@pytest.mark.long
def test_ten_thousand_partitions_with_a_record_each() -> None:
    """Nothing that a request needs looks at all partitions."""
    count = 10_000
    rig = Rig(topics={"t": {index: 1 + index % 2 for index in range(count)}})
    for partition in range(count):
        rig.producer.append("t", b"x", partition=partition)
    began_s = time.thread_time()
    rig.flush()
    whole_s = time.thread_time() - began_s
    assert sum(map(len, rig.logs.values.values())) == count
    steps = 300

    def busy_s() -> float:
        began_s = time.thread_time()
        for _ in range(steps):
            rig.producer.append("t", b"x", partition=7)
            rig.flush()
        return time.thread_time() - began_s

    few = Rig(topics={"t": {7: 1}})
    began_s = time.thread_time()
    for _ in range(steps):
        few.producer.append("t", b"x", partition=7)
        few.flush()
    alone_s = time.thread_time() - began_s
    assert min(busy_s() for _ in range(3)) < 3 * alone_s, (whole_s, alone_s)


def test_a_topic_that_is_made_anew_while_batches_wait_gets_them() -> None:
    """Under the new id; the sequences that its broker does not know are begun again."""
    rig = Rig()
    rig.producer.append("t", b"old", partition=0)
    rig.flush()
    rig.producer.append("t", b"new", partition=0)
    gone = refused(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    rig.logs.refuse = [lambda *_: gone, lambda *_: gone]
    rig.logs.values.clear()
    rig.logs.expected.clear()  # of producers that wrote to the old one
    rig.flush()
    assert rig.logs.values["t", 0] == [b"new"]


def test_a_broker_that_acknowledges_late_leaves_no_duplicate() -> None:
    """After the request's time the batch goes out again; the broker knows it by its sequence."""
    rig = Rig(ProducerSettings(delivery_timeout_ms=300_000))
    ends: list[tuple[RecordMetadata, Exception | None]] = []

    def late(broker: int, topic: str, partition: int, batch: bytes) -> object:
        rig.logs.write(topic, partition, batch)
        return NOTHING

    rig.logs.refuse = [late]
    rig.producer.append("t", b"once", partition=0, listener=lambda *end: ends.append(end))
    rig.flush()
    assert rig.logs.values["t", 0] == [b"once"]
    assert len(ends) == 1
    assert ends[0][1] is None


def test_threads_that_send_at_once_lose_nothing() -> None:
    rig = Rig(ProducerSettings(batch_bytes=400))
    ends: Counter[int] = Counter()

    def sends() -> None:
        for number in range(500):
            rig.producer.append(
                "t", b"x", partition=number % 2, listener=lambda at, _: ends.update([at.partition])
            )

    threads = [threading.Thread(target=sends) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rig.flush()
    assert ends == {0: 1_000, 1: 1_000}
