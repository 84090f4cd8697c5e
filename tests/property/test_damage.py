"""A broker with damaged files recovers from its peers and serves nothing wrong.

A case is one kind of damage to one replica. A round is one death: each replica of the broker is
damaged in another way, while readers of every broker poll and check each record.
`RAYLOG_DAMAGE_ROUNDS` and `RAYLOG_DAMAGE_SEED` run more of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.wire.errors import ErrorCode, KafkaStorageError
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.records import (
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from tests.support.damage import DAMAGES, batches, segments
from tests.support.wire_client import WireClient
from tests.worlds.embedded.killable_cluster import KillableCluster

TOPIC = "t"
BROKERS = (0, 1, 2)
KINDS = list(DAMAGES)
ROUNDS = int(os.environ.get("RAYLOG_DAMAGE_ROUNDS", "3"))
SEED = int(os.environ.get("RAYLOG_DAMAGE_SEED", "1"))
SEGMENT_MS = 1_000
BATCHES_A_SEGMENT = 5
NOW_MS = 1_700_000_000_000
HEAL_S = 60
LEADER_ONLY = 10
"""The last Fetch version that followers do not answer."""
ANY_REPLICA = 12
PASSING = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
}


def value(partition: int, offset: int) -> bytes:
    """The expected record at an offset."""
    return b"%d/%d " % (partition, offset) + b"." * (offset * 7919 % 90)


class Writer:
    """One idempotent producer per partition, each with one batch in flight."""

    def __init__(self, cluster: KillableCluster, partitions: int) -> None:
        self.ends = [0] * partitions
        """The exclusive ends of what is acknowledged."""
        self.batches = [0] * partitions
        self.last: dict[int, bytes] = {}
        """The last batch of each partition."""
        self._cluster = cluster

    def write(self, client: BlockingClient, count: int, rng: random.Random) -> None:
        """Write some batches to each partition, and wait for their acknowledgement."""
        for _ in range(count):
            waiting = {index: self._batch(index, rng) for index in range(len(self.ends))}
            deadline = time.monotonic() + HEAL_S
            while waiting:
                assert time.monotonic() < deadline, f"not written: {sorted(waiting)}"
                self._send(client, waiting)

    def _batch(self, index: int, rng: random.Random) -> bytes:
        number, first = self.batches[index], self.ends[index]
        segment = number // BATCHES_A_SEGMENT
        timestamp = NOW_MS + segment * (SEGMENT_MS + 500) + number % BATCHES_A_SEGMENT
        count = rng.randint(1, 4)
        records = [Record(at, timestamp, None, value(index, first + at), []) for at in range(count)]
        return encode_batch(
            records, producer_id=1_000 + index, producer_epoch=0, base_sequence=first
        )

    def _send(self, client: BlockingClient, waiting: dict[int, bytes]) -> None:
        leaders: dict[int, list[int]] = {}
        for key, state in client.describe_partitions([TOPIC]).items():
            if key.partition in waiting:
                leaders.setdefault(state.leader, []).append(key.partition)
        for leader, indexes in leaders.items():
            if leader >= 0:
                self._send_to(leader, {index: waiting[index] for index in indexes}, waiting)
        if waiting:
            time.sleep(0.02)

    def _send_to(self, leader: int, parts: dict[int, bytes], waiting: dict[int, bytes]) -> None:
        data = [PartitionProduceData(index=index, records=one) for index, one in parts.items()]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
        )
        try:
            with WireClient(*self._cluster.address(leader)) as connection:
                answer = connection.ask(request, 9)
        except OSError:
            return
        for part in answer.responses[0].partition_responses:
            if part.error_code:
                assert ErrorCode(part.error_code) in PASSING, (part.index, part.error_code)
                continue
            batch = self.last[part.index] = waiting.pop(part.index)
            assert part.base_offset == self.ends[part.index]
            self.ends[part.index] += read_header(batch).record_count
            self.batches[part.index] += 1


class Reader(threading.Thread):
    """Polls one broker from random offsets, and checks every byte that it gets."""

    def __init__(self, cluster: KillableCluster, broker_id: int, writer: Writer, seed: int) -> None:
        super().__init__(name=f"reader of broker {broker_id}", daemon=True)
        self.complaints: list[str] = []
        self.served = 0
        self.stopping = False
        self._cluster = cluster
        self._broker_id = broker_id
        self._writer = writer
        self._rng = random.Random(seed)

    def run(self) -> None:
        while not self.stopping:
            try:
                with WireClient(*self._cluster.address(self._broker_id), timeout_s=5) as client:
                    while not self.stopping:
                        self.poll(client, self._rng.choice((LEADER_ONLY, ANY_REPLICA)))
                        time.sleep(0.03)
            except (OSError, EOFError):
                time.sleep(0.02)  # it is dead just now

    def poll(self, client: WireClient, version: int) -> None:
        """Fetch all partitions once, each from some offset below the acknowledged end."""
        asked = {index: self._rng.randint(0, end) for index, end in enumerate(self._writer.ends)}
        for index, answer in fetch(client, asked, version).items():
            self.take(index, asked[index], answer, version)

    def take(self, index: int, offset: int, answer: tuple[ErrorCode, bytes], version: int) -> None:
        error, data = answer
        where = f"broker {self._broker_id}, partition {index}, offset {offset}, version {version}"
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and version == ANY_REPLICA:
            return  # from a follower that lacks it: consumers then ask the leader
        if error and error not in PASSING:
            self.complaints.append(f"{where}: {error!r}")
        self.served += len(data)
        wrong = complaint(index, offset, data)
        if wrong:
            self.complaints.append(f"{where}: {wrong}")


def fetch(
    client: WireClient, asked: dict[int, int], version: int
) -> dict[int, tuple[ErrorCode, bytes]]:
    """Errors and bytes of partitions, fetched from these offsets."""
    parts = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2_000)
        for index, offset in asked.items()
    ]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1)
    request.topics = [FetchTopic(topic=TOPIC, partitions=parts)]
    answer = client.ask(request, version)
    return {
        part.partition_index: (ErrorCode(part.error_code), bytes(part.records or b""))
        for topic in answer.responses
        for part in topic.partitions
    }


def complaint(index: int, offset: int, data: bytes) -> str | None:
    """What is wrong with fetched bytes."""
    expected: int | None = None
    for header, batch in iter_batches(data):
        check_crc(batch, header)
        if expected is None and not header.base_offset <= offset <= header.last_offset:
            return f"begins at {header.base_offset}"
        if expected is not None and header.base_offset != expected:
            return f"{header.base_offset} follows {expected}"
        for record in decode_batch(batch):
            if record.value is None or bytes(record.value) != value(index, record.offset):
                return f"{record.value!r} at {record.offset}"
        expected = header.next_offset
    return None


class Bed:
    """A cluster with a writer, a reader for each broker, and its history."""

    def __init__(self, data: Path, partitions: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = KillableCluster(data, offsets_topic_num_partitions="1")
        self.client = BlockingClient(self.cluster.bootstrap)
        self.partitions = partitions
        assignments = {n: [n % 3, (n + 1) % 3, (n + 2) % 3] for n in range(partitions)}
        configs = {
            "segment.ms": str(SEGMENT_MS),
            "retention.ms": "-1",
            "min.insync.replicas": "2",
            "index.interval.bytes": "150",
        }
        self.client.create_topics([NewTopic(TOPIC, assignments=assignments, configs=configs)])
        self.writer = Writer(self.cluster, partitions)
        self.readers = [Reader(self.cluster, one, self.writer, seed + one) for one in BROKERS]
        for reader in self.readers:
            reader.start()

    def close(self) -> None:
        """Stop the readers and the brokers."""
        for reader in self.readers:
            reader.stopping = True
        for reader in self.readers:
            reader.join()
        self.client.close()
        self.cluster.stop()

    def start(self, broker_id: int) -> None:
        """Start a broker. Its port may have changed."""
        self.cluster.start(broker_id)
        self.client.close()
        self.client = BlockingClient(self.cluster.bootstrap)

    def damage(self, broker_id: int, kinds: dict[int, str]) -> None:
        """Damage the replicas of a stopped broker."""
        for index, kind in kinds.items():
            directory = self.cluster.partition_directory(broker_id, TOPIC, index)
            DAMAGES[kind](directory, self.rng)

    def heal(self) -> None:
        """Wait until every replica is in sync and has the same end."""
        deadline = time.monotonic() + HEAL_S
        while lagging := self._lagging():
            assert time.monotonic() < deadline, lagging
            time.sleep(0.02)

    def _lagging(self) -> list[str]:
        described = self.client.describe_partitions([TOPIC])
        found = [
            f"{key}: {state}" for key, state in described.items() if set(state.isr) != {*BROKERS}
        ]
        replicas = self.cluster.replicas(TOPIC)
        for broker_id in BROKERS:
            for index, end in enumerate(self.writer.ends):
                replica = replicas.get((broker_id, index))
                figures = replica and (replica.high_watermark, replica.log.log_end_offset)
                if figures != (end, end):
                    found.append(f"{broker_id}/{index}: {figures}, not {end}")
        return found

    def read_all(self, broker_id: int) -> None:
        """Read every replica of a broker from the beginning, which reveals damage."""
        offsets = dict.fromkeys(range(self.partitions), 0)
        deadline = time.monotonic() + HEAL_S
        with WireClient(*self.cluster.address(broker_id)) as client:
            while left := {n: at for n, at in offsets.items() if at < self.writer.ends[n]}:
                assert time.monotonic() < deadline, (broker_id, left)
                for index, (error, data) in fetch(client, left, ANY_REPLICA).items():
                    assert error in {*PASSING, ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}
                    assert complaint(index, left[index], data) is None, (broker_id, index)
                    for header, _ in iter_batches(data):
                        offsets[index] = header.next_offset

    def judge(self, kinds: dict[int, str]) -> None:
        """Check that every replica has all bytes and the same producers."""
        replicas = self.cluster.replicas(TOPIC)
        for index in range(self.partitions):
            held = [self.cluster.raw(replicas[one, index]) for one in BROKERS]
            kind = kinds.get(index)
            assert held[0] == held[1] == held[2], (index, kind)
            assert complaint(index, 0, held[0]) is None, (index, kind)
            batches = [header for header, _ in iter_batches(held[0])]
            assert batches[-1].next_offset == self.writer.ends[index], (index, kind)
            repeated = read_header(self.writer.last[index])
            for one in BROKERS:
                known = replicas[one, index].log.producers.check(repeated)
                assert known is not None, (index, kind)
                assert known.last_offset == self.writer.ends[index] - 1, (index, kind)
        assert [reader.complaints for reader in self.readers] == [[], [], []], kinds
        assert self.cluster.failures == []


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(tmp_path, len(KINDS), SEED)
    yield bed
    bed.close()


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_every_kind_of_damage_is_repaired_by_peers_and_never_served(bed: Bed) -> None:
    bed.writer.write(bed.client, 18, bed.rng)
    for number in range(ROUNDS):
        victim = BROKERS[number % 3]
        order = bed.rng.sample(KINDS, len(KINDS))
        kinds = dict(enumerate(order))
        if bed.rng.random() < 0.7:
            bed.cluster.checkpoint(victim, TOPIC)
            bed.writer.write(bed.client, 2, bed.rng)
        end = bed.rng.choice((bed.cluster.kill, bed.cluster.kill, bed.cluster.shut_down))
        end(victim)
        bed.damage(victim, kinds)
        bed.start(victim)
        bed.writer.write(bed.client, 3, bed.rng)
        bed.heal()
        for broker_id in BROKERS:
            bed.read_all(broker_id)
        bed.heal()
        bed.judge(kinds)
    everything = consumed(bed)
    for index, end_offset in enumerate(bed.writer.ends):
        assert everything[index] == [value(index, offset) for offset in range(end_offset)]
    assert all(reader.served > 100_000 for reader in bed.readers)


def consumed(bed: Bed) -> dict[int, list[bytes]]:
    """Everything that a consumer reads."""
    found: dict[int, list[bytes]] = {index: [] for index in range(bed.partitions)}
    left = sum(bed.writer.ends)
    with contextlib.closing(bed.client.consumer()) as consumer:
        consumer.assign({TopicPartition(TOPIC, index): 0 for index in found})
        deadline = time.monotonic() + HEAL_S
        while left:
            assert time.monotonic() < deadline, left
            for records in consumer.poll(200):
                found[records.partition] += [bytes(one.value or b"") for one in records.records]
                left -= len(records.records)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KillableCluster]:
    cluster = KillableCluster(tmp_path, offsets_topic_num_partitions="1")
    yield cluster
    cluster.stop()


def test_the_sole_copy_stays_offline_until_somebody_decides(
    cluster: KillableCluster, caplog: pytest.LogCaptureFixture
) -> None:
    key = TopicPartition(TOPIC, 0)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic(TOPIC, assignments={0: [1]})])
        writer = Writer(cluster, 1)
        writer.write(client, 6, random.Random(SEED))
        cluster.checkpoint(1, TOPIC)
        cluster.kill(1)
        directory = cluster.partition_directory(1, TOPIC, 0)
        segment = segments(directory)[0]
        position, _ = batches(segment)[2]
        whole = segment.read_bytes()
        kept = [header.next_offset for header, _ in iter_batches(whole[:position])][-1]
        segment.write_bytes(whole[:position])
        cluster.start(1)
        state = client.describe_partitions([TOPIC])[key]
        assert (state.leader, state.isr) == (-1, [])
        said = f"{directory} is damaged: it ends at offset"
        assert [one for one in caplog.messages if one.startswith(said)]
        cluster.kill(1)
        cluster.start(1)
        assert client.describe_partitions([TOPIC])[key].leader == -1
        assert client.elect_leaders([key], unclean=True) == {key: None}
        deadline = time.monotonic() + HEAL_S
        with WireClient(*cluster.address(1)) as connection:
            error, data = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""
            while error:
                assert time.monotonic() < deadline
                error, data = fetch(connection, {0: 0}, LEADER_ONLY)[0]
        assert complaint(0, 0, data) is None
        assert [one.next_offset for one, _ in iter_batches(data)][-1] == kept < writer.ends[0]


def test_a_broker_without_its_identity_says_what_it_found(cluster: KillableCluster) -> None:
    meta = cluster.directory(2) / "meta.json"
    state = cluster.directory(2) / "state.json"
    cluster.kill(2)
    known = meta.read_bytes()
    copy = cluster.directory(2) / "meta.copy.json"
    copy.unlink()
    meta.write_bytes(b"\x00garbage")
    with pytest.raises(KafkaStorageError, match=r"meta\.json is damaged: it begins with .*garbage"):
        cluster.start(2)
    meta.unlink()
    with pytest.raises(
        KafkaStorageError, match=r"meta\.json is missing, expected is that of broker 2"
    ):
        cluster.start(2)
    meta.write_bytes(known)
    state.write_bytes(b"\x00garbage")
    cluster.start(2)
    cluster.kill(2)
    state.unlink()
    cluster.start(2)
