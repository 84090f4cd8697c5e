"""Simulated clients: producers that retry like real ones, and readers that check everything.

What they learn goes into the ledger of the partition. Every later answer and the end of the
simulation are checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from raylog.actors.common_messages import TopicId
from raylog.actors.replica.messages import ProduceAnswer
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.simulation.cluster import Cluster
from raylog.simulation.properties import Checks, Property
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import Fetched
from raylog.wire.errors import (
    CorruptMessage,
    DecodeError,
    DuplicateSequenceNumber,
    KafkaError,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from raylog.wire.records import Record, check_crc, decode_batch, encode_batch, iter_batches

ACKS_ALL = -1
CALL_TIMEOUT_MS = 2_500
PRODUCE_TIMEOUT_MS = 2_000
_LOST = (PeerLost, PeerTimeout, ActorGone, KafkaError)


@dataclass(slots=True)
class Ledger:
    """What clients know about one partition."""

    topic: str
    topic_id: TopicId
    partition: int
    acks: int
    seen: dict[int, bytes] = field(default_factory=dict)
    """Every record that any reader got, by offset."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Offset by value; -1 if the broker did not tell it."""
    refused: set[bytes] = field(default_factory=set)
    """Values that were never appended."""
    sequences: dict[int, list[bytes]] = field(default_factory=dict)
    """By producer id, the values that an idempotent producer sent, in order."""

    @property
    def name(self) -> str:
        """The partition's name in messages."""
        return f"{self.topic}-{self.partition}"


class Stoppable(Protocol):
    """A client that works until told to stop."""

    stopping: bool
    stopped: bool

    @property
    def label(self) -> str:
        """The name in messages."""


class Client:
    """A client of one partition, on a machine of its own."""

    def __init__(
        self,
        cluster: Cluster,
        checks: Checks,
        ledger: Ledger,
        number: int,
        *,
        leader_epoch: int = -1,
    ) -> None:
        self.ledger = ledger
        self.checks = checks
        self.random = Random(f"{cluster.world.random.random()} {number}")  # noqa: S311 - must repeat
        self.runtime = SimRuntime(cluster.world, machine=f"client-{number}")
        self._cluster = cluster
        self._leader = -1
        self._leader_epoch = leader_epoch
        """The latest that it knows."""
        self.stopping = False
        self.stopped = False

    @property
    def label(self) -> str:
        """The name in messages."""
        return self.ledger.name

    async def ask(self, method: str, *args: Any) -> Any:
        """Call the partition's leader. Raises its error, or PeerLost or PeerTimeout."""
        if self._leader < 0:
            await self._look_up()
        gateway = self._cluster.gateway_of(self._leader)
        try:
            if gateway is None:
                raise PeerLost("nobody listens there")
            key = (self.ledger.topic_id, self.ledger.partition)
            return await self.runtime.call(
                gateway.ref, method, *key, *args, timeout_ms=CALL_TIMEOUT_MS
            )
        except _LOST:
            self._leader = -1
            raise

    async def _look_up(self) -> None:
        """Ask any broker for the leader.

        Ignores a leader epoch older than the known one (KIP-320).
        """
        any_broker = self.random.randrange(len(self._cluster.machines))
        gateway = self._cluster.gateway_of(any_broker)
        if gateway is None:
            raise PeerLost("nobody listens there")
        key = (self.ledger.topic_id, self.ledger.partition)
        leader, epoch = await self.runtime.call(
            gateway.ref, "leader_of", *key, timeout_ms=CALL_TIMEOUT_MS
        )
        if leader < 0 or epoch < self._leader_epoch:
            raise PeerLost("no leader is known")
        self._leader, self._leader_epoch = leader, epoch


class Producer(Client):
    """Sends one batch after the other."""

    def __init__(
        self,
        cluster: Cluster,
        checks: Checks,
        ledger: Ledger,
        number: int,
        *,
        idempotent: bool,
        first_id: int = 1000,
    ) -> None:
        super().__init__(cluster, checks, ledger, number)
        self._producer_id = first_id + number if idempotent else -1
        self._number = number
        self._sent = 0
        self._sequence = 0
        if idempotent:
            ledger.sequences[self._producer_id] = []

    async def run(self, pause_s: float) -> None:
        """Write until told to stop."""
        while not self.stopping:
            await self.write()
            await self.runtime.sleep(self.random.uniform(0, pause_s))
        self.stopped = True

    async def write(self) -> bool:
        """Write one batch of some records. Returns whether it was acknowledged."""
        values = self._values()
        batch = self._batch(values)
        if self._producer_id >= 0:
            return await self._insist(values, batch)
        return await self._try(values, batch)

    async def write_once(self) -> bool:
        """Write one batch with acks=all. Raises the outcome if it is not acknowledged."""
        values = self._values()
        answer = await self.ask("produce", self._batch(values), -1, PRODUCE_TIMEOUT_MS)
        self._acknowledged(values, answer.base_offset)
        return True

    def _values(self) -> list[bytes]:
        values = [
            b"%d/%d %s" % (self._number, self._sent + at, b"." * self.random.randrange(40))
            for at in range(self.random.choice((1, 1, 2, 3)))
        ]
        self._sent += len(values)
        return values

    def _batch(self, values: list[bytes]) -> bytes:
        now_ms = self.runtime.now_ms()
        records = [Record(at, now_ms, None, value, []) for at, value in enumerate(values)]
        if self._producer_id < 0:
            return encode_batch(records)
        return encode_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )

    async def _insist(self, values: list[bytes], batch: bytes) -> bool:
        """Retry the same batch until it is acknowledged."""
        ledger = self.ledger
        ledger.sequences[self._producer_id] += values
        self._sequence += len(values)
        while True:
            try:
                answer = await self._send(batch)
            except DuplicateSequenceNumber:
                self._acknowledged(values, -1)
                return True
            except OutOfOrderSequenceNumber as refused:
                self.checks.hold(Property.SEQUENCE_ACCEPTED, ledger.acks == 1, refused)
                await self._wait()
            except _LOST:
                await self._wait()
            else:
                self.checks.hold(Property.SEQUENCE_ACCEPTED, True)
                self._acknowledged(values, answer.base_offset)
                return True

    async def _try(self, values: list[bytes], batch: bytes) -> bool:
        """Send a batch several times. Each attempt may append it."""
        surely_refused = True
        for _ in range(5):
            try:
                answer = await self._send(batch)
            except NotEnoughReplicas:
                await self._wait()
            except _LOST:
                surely_refused = False
                await self._wait()
            else:
                self._acknowledged(values, answer.base_offset)
                return True
        if surely_refused:
            self.ledger.refused.update(values)
        return False

    async def _send(self, batch: bytes) -> ProduceAnswer:
        answer: ProduceAnswer = await self.ask(
            "produce", batch, self.ledger.acks, PRODUCE_TIMEOUT_MS
        )
        return answer

    async def _wait(self) -> None:
        await self.runtime.sleep(self.random.uniform(0.05, 0.2))

    def _acknowledged(self, values: list[bytes], base_offset: int) -> None:
        for at, value in enumerate(values):
            self.ledger.acknowledged[value] = -1 if base_offset < 0 else base_offset + at


class Reader(Client):
    """Reads a partition from its start, in a loop, from the last position on."""

    def __init__(
        self,
        cluster: Cluster,
        checks: Checks,
        ledger: Ledger,
        number: int,
        *,
        leader_epoch: int = -1,
    ) -> None:
        super().__init__(cluster, checks, ledger, number, leader_epoch=leader_epoch)
        self.offset = 0

    async def run(self, pause_s: float) -> None:
        """Read until told to stop."""
        while not self.stopping:
            try:
                await self.poll()
            except OffsetOutOfRange:
                await self.runtime.sleep(0.1)  # the leader may not have all that was read yet
            except _LOST:
                await self.runtime.sleep(self.random.uniform(0.05, 0.2))
            await self.runtime.sleep(self.random.uniform(0, pause_s))
        self.stopped = True

    async def poll(self) -> int:
        """Read once. Returns the high watermark in the answer."""
        got: Fetched = await self.ask("fetch", self.offset)
        self.take(got)
        return got.high_watermark

    async def read_to_end(self, seconds: float) -> bool:
        """Read to the end. Returns False if that takes longer than `seconds`.

        Acknowledged records may lie above the high watermark with which a new leader starts. The
        leader tells the end once it knows it (KIP-207).
        """
        loop = self._cluster.world.loop
        deadline = loop.time() + seconds
        end: int | None = None
        while (end is None or self.offset < end) and loop.time() < deadline:
            try:
                if end is None:
                    end = await self._latest()
                else:
                    await self.poll()
            except _LOST:
                await self.runtime.sleep(0.1)
        return end is not None and self.offset >= end

    async def _latest(self) -> int:
        if self._leader < 0:
            await self._look_up()
        end: int = await self.ask("latest", self._leader_epoch)
        return end

    def take(self, got: Fetched) -> None:
        """Check what was read."""
        hold = self.checks.hold
        name = self.ledger.name
        seen = self.ledger.seen
        for header, batch in iter_batches(got.data):
            try:
                check_crc(batch, header)
            except (CorruptMessage, DecodeError) as damaged:
                hold(Property.READS_SOUND, False, name, header.base_offset, damaged)
                raise
            hold(Property.READS_SOUND, True)
            contiguous = header.base_offset <= self.offset < header.next_offset
            hold(Property.READS_CONTIGUOUS, contiguous, name, self.offset, header)
            committed = header.next_offset <= got.high_watermark
            hold(Property.READS_COMMITTED, committed, name, header, got.high_watermark)
            for record in decode_batch(batch):
                value = record.value or b""
                before = seen.setdefault(record.offset, value)
                same = before == value
                hold(Property.ONE_VALUE_AN_OFFSET, same, name, record.offset, before, value)
            self.offset = header.next_offset
