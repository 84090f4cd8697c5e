"""A driver of a streaming query and its sink.

Everything of the sink is real except Spark itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from random import Random

from raylog.actors.replica.messages import READ_COMMITTED
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.offsets import LATEST, list_offsets
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.settings import ClientSettings
from raylog.client.transactions import TransactionRequests
from raylog.simulation.applications.io import SimIo
from raylog.simulation.clients import Client, Ledger
from raylog.simulation.cluster import FIRST_PORT, Cluster
from raylog.simulation.network import CLIENT
from raylog.simulation.properties import Checks, Property
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import Fetched
from raylog.simulation.transactions.outcome import committed_records
from raylog.sink.batches import Batch, BatchFailed, KafkaRange, SourceMismatch, StateLost
from raylog.sink.commit import (
    BatchMachine,
    CheckRegistration,
    Event,
    Finished,
    ReadState,
    Register,
    RegistrationChecked,
    StateRead,
    TakeIdentity,
    TaskReport,
    Write,
    WriteLost,
    Written,
)
from raylog.sink.coordinator import SinkRequests, choose_protocol
from raylog.sink.driver import ends_of
from raylog.sink.state import SinkState
from raylog.sink.state_topic import StateTopic
from raylog.sink.writer import PartitionWriter, WriteRefused
from raylog.wire.errors import KafkaError
from raylog.wire.records import Record, encode_batch
from tests.support.spark_query import Checkpoint

SINK_ID = "sink-of-rows"
OUT = [TopicPartition("rows", 0), TopicPartition("rows", 1)]
STATE = "__raylog_sinks"
BATCH_MAX = 12
"""The most offsets of the source in one batch."""
LEFT_BEHIND = 0.1
"""Probability that a task is lost and continues on its own."""
COPIED = 0.2
"""Probability that the checkpoint is copied after a batch."""
UNANSWERED = (PeerLost, PeerTimeout, ActorGone)
FAILED = (BatchFailed, KafkaError, ClientError)
"""What ends a query's run. A restart checks the state and continues."""


def row_of(offset: int) -> bytes:
    """The sink's row for a source record."""
    return b"row %d" % offset


@dataclass(slots=True)
class Query:
    """The state that outlives drivers."""

    checkpoint: Checkpoint
    copies: list[Checkpoint] = field(default_factory=list)
    """Copies of the checkpoint, which may be restored."""
    count: int = 1
    """The number of queries so far."""
    mismatches: int = 0
    """How often a batch did not start where the sink had ended."""

    def begin_anew(self, begin: dict[TopicPartition, int]) -> Checkpoint:
        """Start another query at these offsets."""
        self.count += 1
        return Checkpoint(f"q{self.count}", begin)


class Driver:
    """One process that runs the query from the current checkpoint."""

    def __init__(
        self, cluster: Cluster, checks: Checks, query: Query, source: Ledger, number: int
    ) -> None:
        name = f"{CLIENT}-{number}"
        self._io = SimIo(cluster, SimRuntime(cluster.world, machine=name), name)
        addresses = [("127.0.0.1", FIRST_PORT + at) for at in range(len(cluster.machines))]
        settings = ClientSettings(
            tuple(addresses),
            connect_timeout_ms=2_500,
            request_timeout_ms=2_500,
            operation_timeout_ms=20_000,
        )
        self._core = Core(self._io, settings)
        self._reader = Client(cluster, checks, source, number)
        self._source = TopicPartition(source.topic, source.partition)
        self._checks = checks
        self._query = query
        self._random = Random(f"{cluster.world.random.random()} {number}")
        self._known: SinkRequests | None = None
        self._is_registered = False
        self._identity: ProducerIdentity | None = None
        self._state: SinkState | None = None
        self._timeout_ms = self._random.choice((1_500, 4_000))
        self.checkpoint = deepcopy(query.checkpoint)
        self.stopping = False

    async def run(self) -> None:
        """Write batches until something fails."""
        try:
            while not self.stopping:
                await self.write_next()
                await self._io.pause(self._random.uniform(0, 400))
        except FAILED:
            pass
        finally:
            self._core.close()

    async def write_next(self) -> bool:
        """Write the next batch; whether there was one. Raises what ends a query's run."""
        sink = await self._sink()
        batch = self.checkpoint.planned(await self._available(), OUT, await sink.cluster_id())
        if batch is None:
            return False
        try:
            await self._write(sink, batch)
        except SourceMismatch:
            self._query.mismatches += 1
            self.checkpoint = self._query.begin_anew(await self.committed())
        except StateLost as lost:
            self._checks.hold(Property.OFFSETS_WITH_OUTPUT, False, lost)
            raise
        else:
            self.checkpoint.done += 1
        self._query.checkpoint = deepcopy(self.checkpoint)
        if self._random.random() < COPIED:
            self._query.copies.append(deepcopy(self.checkpoint))
        return True

    async def _sink(self) -> SinkRequests:
        if self._known is None:
            protocol = await choose_protocol(self._core)
            states = StateTopic(self._core, STATE, SINK_ID, clock_ms=self._io.runtime.now_ms)
            self._known = SinkRequests(self._core, protocol, SINK_ID, SINK_ID, states, ["rows"])
        return self._known

    async def _available(self) -> dict[TopicPartition, int]:
        """The ends up to which the next batch may read."""
        [found] = (
            await list_offsets(self._core, {self._source: LATEST}, read_committed=True)
        ).values()
        begin = self.checkpoint.start()[self._source]
        return {
            self._source: max(begin, min(found.offset, begin + self._random.randint(1, BATCH_MAX)))
        }

    async def committed(self) -> dict[TopicPartition, int]:
        """Where the sink's source is written up to; 0 before the first batch."""
        sink = await self._sink()
        match await sink.settle(CheckRegistration()):
            case RegistrationChecked(is_new=True):
                await sink.settle(Register())
        self._is_registered, self._identity, self._state = True, None, None
        await sink.settle(TakeIdentity(self._timeout_ms))
        match await sink.settle(ReadState()):
            case StateRead(state):
                return {self._source: 0, **ends_of(state)}
            case event:
                raise AssertionError(f"{event} answers another request")

    async def _write(self, sink: SinkRequests, batch: Batch) -> None:
        """Write a batch unless it is written. Raises BatchFailed."""
        offsets = batch.offsets(await sink.cluster_id())
        machine = BatchMachine(
            batch,
            sink.protocol,
            self._identity,
            self._state,
            self._is_registered,
            timeout_ms=self._timeout_ms,
        )
        self._identity = self._state = None
        step = machine.start(int(self._io.now_ms()))
        while not isinstance(step.effect, Finished):
            await self._io.pause(step.pause_ms)
            event: Event
            if isinstance(step.effect, Write):
                event = await self._tasks(sink, step.effect.identity, batch)
            else:
                event = await sink.carry_out(step.effect, offsets)
            step = machine.handle(event, int(self._io.now_ms()))
        self._is_registered = True
        self._identity, self._state = step.effect.identity, step.effect.state

    # ---- tasks ---------------------------------------------------------------------------

    async def _tasks(
        self, sink: SinkRequests, identity: ProducerIdentity, batch: Batch
    ) -> Written | WriteLost:
        """Let a task for each partition write."""
        rows = await self._rows(batch)
        tasks = [
            partial(self._task, sink, identity, key, some)
            for key, some in zip(OUT, (rows[::2], rows[1::2]), strict=True)
        ]
        lost = None
        if self._random.random() < LEFT_BEHIND:
            lost = tasks.pop(self._random.randrange(len(tasks)))
            self._io.runtime.start(self._late(lost), "a task that is left behind")
        reports = await asyncio.gather(*[task() for task in tasks])
        return Written(reports) if lost is None else WriteLost("a task is lost")

    async def _late(self, task: Callable[[], Awaitable[TaskReport]]) -> None:
        """Start a task late that the driver has given up."""
        await self._io.pause(self._random.choice((0, 50, 1_000, 4_000)) * self._random.random())
        await task()

    async def _task(
        self,
        sink: SinkRequests,
        identity: ProducerIdentity,
        key: TopicPartition,
        rows: list[bytes],
    ) -> TaskReport:
        if not rows:
            return TaskReport(key, 0, -1)
        name, protocol = sink.transactional_id, sink.protocol
        try:
            if protocol.registers:
                requests = TransactionRequests(self._core, protocol, name)
                await requests.add_partitions(identity, [key])
            writer = PartitionWriter(self._core, protocol, name, identity, key)
            for block in self._blocks(rows):
                await writer.write(block)
            return await writer.finish()
        except WriteRefused as refusal:
            return TaskReport(key, 0, -1, refusal.message, is_final=refusal.is_final)
        except (KafkaError, ClientError) as failure:
            return TaskReport(key, 0, -1, f"{type(failure).__name__}: {failure}")

    def _blocks(self, rows: list[bytes]) -> Iterator[bytes]:
        now_ms = self._io.runtime.now_ms()
        size = self._random.choice((1, 2, 20))
        for first in range(0, len(rows), size):
            records = [
                Record(at, now_ms, None, row, [])
                for at, row in enumerate(rows[first : first + size])
            ]
            yield encode_batch(records, is_transactional=True)

    async def _rows(self, batch: Batch) -> list[bytes]:
        """The rows of the batch."""
        (read,) = batch.sources
        assert isinstance(read, KafkaRange)
        at, end = read.starts[self._source], read.ends[self._source]
        found: list[bytes] = []
        while at < end:
            try:
                got: Fetched = await self._reader.ask("fetch", at, READ_COMMITTED)
            except (*UNANSWERED, KafkaError):
                await self._io.pause(self._random.uniform(50, 200))
                continue
            for header, records in committed_records(got.data, got.aborted):
                found += [row_of(one.offset) for one in records if at <= one.offset < end]
                at = max(at, header.next_offset)
            if not got.data:
                await self._io.pause(self._random.uniform(50, 200))
        return found
