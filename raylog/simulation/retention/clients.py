"""Clients of partitions with deletion or compaction. One of them sends wrong timestamps."""

from __future__ import annotations

from typing import Any

from raylog.simulation.asking import UNANSWERED, Asking, KnownTopic, without_errors
from raylog.simulation.clients import Ledger, Reader
from raylog.simulation.cluster import Cluster
from raylog.simulation.properties import Property
from raylog.simulation.retention.history import DeletedLedger, KeyedLedger, Sent
from raylog.simulation.simulated_gateway import Fetched
from raylog.wire.errors import (
    DuplicateSequenceNumber,
    KafkaError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.records import Record, decode_batch, encode_batch, iter_batches, set_max_timestamp

PRODUCE, DELETE_RECORDS = 9, 2
TIMEOUT_MS = 2_000
HOUR_MS = 3_600_000
LIES_MS = (-1, 0, 1 << 50)
"""Values in a header instead of the largest timestamp."""
KEYS = 6
TOMBSTONES = 0.15
SUCCESSORS = 0.1
"""Probability that another producer takes over and the previous one never writes again."""
FIRST_ID = 5_000


class LogClient:
    """A client of one partition that speaks the Kafka protocol."""

    def __init__(self, cluster: Cluster, ledger: Ledger, number: int) -> None:
        self.asking = Asking(cluster, number)
        self.random = self.asking.random
        self.stopping = False
        self.stopped = False
        self.number = number
        self._of = ledger
        self._known: KnownTopic | None = None

    @property
    def label(self) -> str:
        """The name in messages."""
        return f"client {self.number} of {self._of.name}"

    async def run(self, pause_s: float) -> None:
        """Repeat `go_on` until told to stop."""
        while not self.stopping:
            try:
                await self.go_on()
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
            await self.asking.pause(pause_s)
        self.stopped = True

    async def go_on(self) -> None:
        """Do one thing. Raises its error."""
        raise NotImplementedError

    async def ask_leader(self, request: object, version: int) -> Any:
        """The leader's response. Raises its error, or PeerLost or PeerTimeout."""
        known, self._known = self._known, None
        if known is None:
            known = await self.asking.topic(self._of.topic)
        leader = known.leaders[self._of.partition]
        if leader < 0:
            await self.asking.pause()
            return await self.ask_leader(request, version)
        response = without_errors(await self.asking.ask(leader, request, version))
        self._known = known
        return response

    async def produce(self, batch: bytes) -> int:
        """Write a batch. Returns its base offset. Raises like `ask_leader`."""
        data = [PartitionProduceData(index=self._of.partition, records=batch)]
        topic = TopicProduceData(name=self._of.topic, partition_data=data)
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        response = await self.ask_leader(request, PRODUCE)
        return int(response.responses[0].partition_responses[0].base_offset)


class Liar(LogClient):
    """Writes records with wrong timestamps in the headers of batches, and some old ones."""

    def __init__(self, cluster: Cluster, ledger: DeletedLedger, number: int) -> None:
        super().__init__(cluster, ledger, number)
        self._ledger = ledger
        self._sent = 0

    async def go_on(self) -> None:
        """Write one batch. Does not retry."""
        now_ms = self.asking.runtime.now_ms()
        old_ms = self.random.choice((0, 0, 0, HOUR_MS))
        values = [
            b"%d/%d %s" % (self.number, self._sent + at, b"." * self.random.randrange(40))
            for at in range(self.random.choice((1, 1, 2, 3)))
        ]
        self._sent += len(values)
        timestamp_ms = now_ms - old_ms
        batch = bytearray(
            encode_batch([Record(at, timestamp_ms, None, one, []) for at, one in enumerate(values)])
        )
        if self.random.random() < 0.7:
            set_max_timestamp(batch, self.random.choice(LIES_MS))
        base_offset = await self.produce(bytes(batch))
        for offset, value in enumerate(values, base_offset):
            self._ledger.records[offset] = Sent(value, timestamp_ms)


class Deleter(LogClient):
    """Deletes records up to the offset of an acknowledged one (DeleteRecords)."""

    def __init__(self, cluster: Cluster, ledger: DeletedLedger, number: int) -> None:
        super().__init__(cluster, ledger, number)
        self._cluster = cluster
        self._ledger = ledger

    async def go_on(self) -> None:
        """Delete some of the existing records."""
        ledger = self._ledger
        known = [one for one in ledger.records if one >= ledger.asked]
        if len(known) < 5:
            return
        target = ledger.asked = sorted(known)[self.random.randrange(len(known) // 2)]
        partitions = [DeleteRecordsPartition(partition_index=ledger.partition, offset=target)]
        topics = [DeleteRecordsTopic(name=ledger.topic, partitions=partitions)]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        while not self.stopping:
            try:
                await self.ask_leader(request, DELETE_RECORDS)
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
            else:
                if not self._others_may_lead():
                    ledger.deleted = max(ledger.deleted, target)
                return

    def _others_may_lead(self) -> bool:
        """Whether a replica that is not in sync may be elected next (KIP-966).

        A deletion waits for live replicas, as in Apache Kafka (KIP-107). While fewer than
        min.insync.replicas are in sync, an absent replica may be eligible. It lacks no committed
        record, but does not know of the deletion, and undoes it if it is elected.
        """
        key = (self._ledger.topic_id, self._ledger.partition)
        state = self._cluster.newest_image().partition(*key)
        return state is not None and state.elr != ()


class KeyWriter(LogClient):
    """Writes the values of some keys in order, with sequence numbers, so none comes late."""

    def __init__(self, cluster: Cluster, ledger: KeyedLedger, number: int) -> None:
        super().__init__(cluster, ledger, number)
        self._ledger = ledger
        self._writes = 0
        self._producers = 0
        self._sequence = 0

    async def go_on(self) -> None:
        """Write one batch. Retries until it is acknowledged."""
        if self.random.random() < SUCCESSORS:
            self._succeed()
        pairs = [self._pair() for _ in range(self.random.choice((1, 2, 3)))]
        for key, value in pairs:
            self._ledger.writing(key, value, int(self.asking.runtime.monotonic_ms()))
        base_offset = await self._insist(pairs)
        for at, (key, value) in enumerate(pairs):
            self._ledger.written(key, value, base_offset + at if base_offset >= 0 else -1)

    def _pair(self) -> tuple[bytes, bytes | None]:
        self._writes += 1
        key = b"%d.%d" % (self.number, self.random.randrange(KEYS))
        if self.random.random() < TOMBSTONES:
            return key, None
        return key, b"%d %s" % (self._writes, b"." * self.random.randrange(40))

    def _succeed(self) -> None:
        self._producers += 1
        self._sequence = 0

    async def _insist(self, pairs: list[tuple[bytes, bytes | None]]) -> int:
        while True:
            try:
                base_offset = await self.produce(self._batch(pairs))
            except DuplicateSequenceNumber:
                base_offset = -1
            except (OutOfOrderSequenceNumber, UnknownProducerId):
                self._succeed()  # the broker forgot the idle producer
                continue
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
                continue
            self._sequence += len(pairs)
            return base_offset

    def _batch(self, pairs: list[tuple[bytes, bytes | None]]) -> bytes:
        now_ms = self.asking.runtime.now_ms()
        return encode_batch(
            [Record(at, now_ms, key, value, []) for at, (key, value) in enumerate(pairs)],
            producer_id=FIRST_ID + 1_000 * self.number + self._producers,
            producer_epoch=0,
            base_sequence=self._sequence,
        )


class GapReader(Reader):
    """Reads a partition from its log start at the end of the simulation. Gaps are allowed."""

    async def begin(self) -> None:
        """Find the log start. Raises the leader's error."""
        end = await self._latest()
        got: Fetched = await self.ask("fetch", end)
        self.offset = got.log_start_offset

    def take(self, got: Fetched) -> None:
        """Keep what was read, with keys."""
        ledger = self.ledger
        for header, batch in iter_batches(got.data):
            forward = header.next_offset > self.offset
            self.checks.hold(Property.READS_CONTIGUOUS, forward, ledger.name, header)
            for record in decode_batch(batch) if header.record_count else ():
                if record.offset < self.offset:
                    continue
                if isinstance(ledger, KeyedLedger):
                    ledger.found[record.offset] = record.key or b"", record.value
                ledger.seen[record.offset] = record.value or b""
            self.offset = header.next_offset
