"""Whatever happens to an idempotent producer's requests: no loss, no duplicate, no disorder."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from raylog.client.interceptors import RecordMetadata
from raylog.client.io import run_blocking
from raylog.client.producer.batch import Listener
from raylog.client.producer.core import ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.record import Record, encode_records
from raylog.wire.records import read_header
from tests.worlds.client.cluster import LOST, NOTHING, FakeCluster, core_of
from tests.worlds.client.producer_partitions import Logs, refused

PARTITIONS = 3
FATES = (
    "written",
    "written, answer lost",
    "lost before it was written",
    "never answered",
    "refused",
    "leader moved",
    "too large",
)


class Fates:
    """Decides the fate of each batch that reaches a broker. At the end all succeed."""

    def __init__(self, logs: Logs, fates: list[str]) -> None:
        self.logs = logs
        self.fates = deque(fates)
        logs.refuse = [self.decide] * (len(fates) + 1_000)

    def decide(self, broker: int, topic: str, partition: int, batch: bytes) -> object:
        """The fate of a batch."""
        fate = self.fates.popleft() if self.fates else "written"
        cluster = self.logs.cluster
        if fate == "leader moved":
            cluster.epochs[topic] = cluster.epochs.get(topic, 0) + 1
            leaders = cluster.topics[topic]
            leaders[partition] = 1 + leaders[partition] % cluster.brokers
        if cluster.topics[topic][partition] != broker:
            return refused(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        match fate:
            case "written, answer lost":
                self.logs.write(topic, partition, batch)
                return LOST
            case "lost before it was written":
                return LOST
            case "never answered":
                return NOTHING
            case "refused":
                return refused(partition, ErrorCode.NOT_ENOUGH_REPLICAS)
            case "too large" | "limit lowered":
                was_small = fate == "too large" and self.logs.has(topic, partition, batch)
                if read_header(batch).record_count > 1 and not was_small:
                    return refused(partition, ErrorCode.MESSAGE_TOO_LARGE)
            case "refused for good":
                return refused(partition, ErrorCode.INVALID_RECORD)
        return None


Ends = list[tuple[int, RecordMetadata, Exception | None]]


def recording(ends: Ends, number: int) -> Listener:
    """A listener that records the outcome of a record."""

    def listener(at: RecordMetadata, failure: Exception | None) -> None:
        ends.append((number, at, failure))

    return listener


def check_ends(logs: Logs, sends: list[int], ends: Ends) -> None:
    """Check that each record completes once, in order within its partition, at its offset."""
    assert sorted(number for number, _, _ in ends) == list(range(len(sends)))
    for number, at, failure in ends:
        assert at.partition == sends[number]
        if failure is None and at.offset >= 0:
            assert logs.values["t", at.partition][at.offset] == b"%d" % number
        if failure is not None:
            assert at.offset == -1


@given(
    sends=st.lists(st.integers(0, PARTITIONS - 1), max_size=60),
    fates=st.lists(st.sampled_from(FATES), max_size=25),
    batch_bytes=st.sampled_from([100, 200, 100_000]),
    in_flight_max=st.integers(1, 5),
)
def test_every_record_is_written_once_and_in_order(
    sends: list[int], fates: list[str], batch_bytes: int, in_flight_max: int
) -> None:
    cluster = FakeCluster(2, {"t": dict.fromkeys(range(PARTITIONS), 1)})
    logs = Logs(cluster)
    producer = ProducerCore(
        core_of(cluster),
        ProducerSettings(
            batch_bytes=batch_bytes,
            in_flight_max=in_flight_max,
            delivery_timeout_ms=10**9,
        ),
    )
    run_blocking(producer.prepare("t"))
    Fates(logs, fates)
    ends: list[tuple[int, RecordMetadata, Exception | None]] = []
    for number, partition in enumerate(sends):
        producer.append(
            "t",
            b"%d" % number,
            partition=partition,
            listener=recording(ends, number),
        )
        run_blocking(producer.step(everything=batch_bytes == 100))
    run_blocking(producer.flush())
    check_ends(logs, sends, ends)
    assert all(failure is None for _, _, failure in ends)
    assert producer.statistics().buffer_bytes == 0
    for partition in range(PARTITIONS):
        expected = [b"%d" % n for n, to in enumerate(sends) if to == partition]
        assert logs.values.get(("t", partition), []) == expected
    assert producer.delivered_count == len(sends)
    assert logs.producer_ids <= 1


@given(
    sends=st.lists(st.integers(0, PARTITIONS - 1), max_size=60),
    fates=st.lists(st.sampled_from((*FATES, "limit lowered", "refused for good")), max_size=25),
    batch_bytes=st.sampled_from([100, 200, 100_000]),
    in_flight_max=st.integers(1, 5),
    delivery_timeout_ms=st.sampled_from([300, 2_000, 40_000]),
)
def test_every_record_ends_once_whatever_is_given_up(
    sends: list[int],
    fates: list[str],
    batch_bytes: int,
    in_flight_max: int,
    delivery_timeout_ms: int,
) -> None:
    """What is reported as written is there once; what failed is there once at most; in order."""
    cluster = FakeCluster(2, {"t": dict.fromkeys(range(PARTITIONS), 1)})
    logs = Logs(cluster)
    producer = ProducerCore(
        core_of(cluster),
        ProducerSettings(
            batch_bytes=batch_bytes,
            in_flight_max=in_flight_max,
            delivery_timeout_ms=delivery_timeout_ms,
        ),
    )
    run_blocking(producer.prepare("t"))
    Fates(logs, fates)
    ends: Ends = []
    for number, partition in enumerate(sends):
        producer.append(
            "t",
            b"%d" % number,
            partition=partition,
            listener=recording(ends, number),
        )
        run_blocking(producer.step(everything=batch_bytes == 100))
    run_blocking(producer.flush())
    check_ends(logs, sends, ends)
    written = {number for number, _, failure in ends if failure is None}
    for partition in range(PARTITIONS):
        found = [int(value) for value in logs.values.get(("t", partition), [])]
        assert len(found) == len(set(found))
        kept = [number for number in found if number in written]
        assert kept == [n for n, to in enumerate(sends) if to == partition and n in written]
    assert producer.is_idle
    assert producer.statistics().buffer_bytes == 0
    assert producer.statistics().errors == len(sends) - len(written)


@given(
    sizes=st.lists(st.integers(1, 9), max_size=20),
    fates=st.lists(st.sampled_from(FATES), max_size=15),
    in_flight_max=st.integers(1, 5),
)
def test_whole_batches_among_records_keep_the_order(
    sizes: list[int], fates: list[str], in_flight_max: int
) -> None:
    cluster = FakeCluster(2, {"t": dict.fromkeys(range(PARTITIONS), 1)})
    logs = Logs(cluster)
    producer = ProducerCore(
        core_of(cluster),
        ProducerSettings(in_flight_max=in_flight_max, delivery_timeout_ms=10**9),
    )
    run_blocking(producer.prepare("t"))
    Fates(logs, fates)
    number = 0
    for size in sizes:
        values = [b"%d" % (number + more) for more in range(size)]
        number += size
        if size % 2:
            body = encode_records([Record(0, 7, None, v, []) for v in values], range(size), 7)
            producer.append_batch("t", 0, body, size, 7, 7)
        else:
            producer.append_rows("t", [(None, value) for value in values], partition=0)
        run_blocking(producer.step())
    run_blocking(producer.flush())
    assert logs.values.get(("t", 0), []) == [b"%d" % n for n in range(number)]
    assert producer.delivered_count == number
    assert producer.statistics().buffer_bytes == 0
