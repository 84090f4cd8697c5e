"""A sink's driver whose tasks run in this process: the machine and its requests, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.client import TopicPartition
from raylog.client.connection import Pending
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.client.transactions import TransactionRequests
from raylog.sink.batches import Batch, KafkaRange
from raylog.sink.commit import (
    BatchMachine,
    Effect,
    Event,
    Finished,
    TaskReport,
    Write,
    Written,
)
from raylog.sink.coordinator import SinkRequests, choose_protocol
from raylog.sink.lookup import name_of
from raylog.sink.marks import Mark
from raylog.sink.state import SinkState
from raylog.sink.state_topic import STATE_TOPIC, StateTopic
from raylog.sink.writer import PartitionWriter
from raylog.wire.records import Record, encode_batch

R = TypeVar("R")

ROWS_PER_BLOCK = 5
"""A few records a batch."""
WATCHED = ("PRODUCE", "TXN_OFFSET_COMMIT", "END_TXN", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN")


class WatchedCore(Core):
    """Notes the versions of what it asks."""

    def __init__(self, bootstrap: str) -> None:
        settings = ClientSettings(parse_bootstrap(bootstrap))
        super().__init__(BlockingIo(), settings)
        self.sent: set[tuple[str, int]] = set()

    async def submit(
        self,
        node_id: int,
        request: object,
        expected: type[R],
        *,
        timeout_ms: float | None = None,
        at_most: int | None = None,
        at_least: int = 0,
        answered: bool = True,
    ) -> Pending[R]:
        pending = await super().submit(
            node_id,
            request,
            expected,
            timeout_ms=timeout_ms,
            at_most=at_most,
            at_least=at_least,
            answered=answered,
        )
        if pending.api_key.name in WATCHED:
            self.sent.add((pending.api_key.name, pending.version))
        return pending


@dataclass
class Driver:
    """A sink's driver; `rows` of every partition are written by as many writers."""

    core: WatchedCore
    transactions: SinkRequests
    topic: str
    partitions: int = 3
    between: Callable[[Effect], Event | None] = lambda effect: None
    """Called before each effect; an event instead of carrying it out."""
    after: Callable[[Effect], Event | None] = lambda effect: None
    """Called after each request; an event instead of its answer."""
    done: list[Effect] = field(default_factory=list)
    identity: ProducerIdentity | None = None
    state: SinkState | None = None

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions of its topic."""
        return [TopicPartition(self.topic, number) for number in range(self.partitions)]

    @property
    def source(self) -> TopicPartition:
        """What its batches have read."""
        return TopicPartition(f"{self.topic}-in", 0)

    def batch(self, batch_id: int, query_id: str = "q", *, begin: int | None = None) -> Batch:
        """One that has read ten records of the source, by default those behind the batch before."""
        start = 10 * batch_id if begin is None else begin
        cluster_id = run_blocking(self.transactions.cluster_id())
        read = KafkaRange({self.source: start}, {self.source: start + 10}, cluster_id)
        return Batch(Mark(query_id, batch_id), self.keys, [read])

    def write(self, batch: Batch, rows: int = 20) -> bool:
        """Run the machine to its end; returns whether the batch was new."""
        is_registered = self.state is not None
        machine = BatchMachine(
            batch,
            self.transactions.protocol,
            self.identity,
            self.state,
            is_registered,
            runs_max=3,
        )
        step = machine.start(0)
        while not isinstance(step.effect, Finished):
            self.done.append(step.effect)
            run_blocking(self.core.io.pause(step.pause_ms))
            event = self.between(step.effect) or self._carry_out(step.effect, batch, rows)
            step = machine.handle(self.after(step.effect) or event, 0)
        self.identity, self.state = step.effect.identity, step.effect.state
        return step.effect.is_new

    def _carry_out(self, effect: Effect, batch: Batch, rows: int) -> Event:
        if isinstance(effect, Write):
            return self.written(effect.identity, batch, rows)
        cluster_id = run_blocking(self.transactions.cluster_id())
        return run_blocking(self.transactions.carry_out(effect, batch.offsets(cluster_id)))

    def written(
        self,
        identity: ProducerIdentity,
        batch: Batch,
        rows: int,
        keys: Sequence[TopicPartition] | None = None,
    ) -> Written:
        """One run of all tasks."""
        return Written([self.task(key, identity, batch, rows) for key in keys or self.keys])

    def task(
        self, key: TopicPartition, identity: ProducerIdentity, batch: Batch, rows: int
    ) -> TaskReport:
        """One task with connections of its own, as in another process."""
        io = BlockingIo()
        core = WatchedCore(",".join(f"{h}:{p}" for h, p in self.core.settings.bootstrap))
        try:
            report = run_blocking(self._written(core, key, identity, batch, rows))
        finally:
            self.core.sent |= core.sent
            core.close()
            io.close()
        return report

    async def _written(
        self, core: Core, key: TopicPartition, identity: ProducerIdentity, batch: Batch, rows: int
    ) -> TaskReport:
        protocol, name = self.transactions.protocol, self.transactions.transactional_id
        if protocol.registers:
            await TransactionRequests(core, protocol, name).add_partitions(identity, [key])
        writer = PartitionWriter(core, protocol, name, identity, key)
        mark = batch.mark
        assert isinstance(mark, Mark)
        text = f"{mark.query_id}-{mark.batch_id}-{key.partition}"
        now_ms = int(time.time() * 1000)  # what is old may be deleted by the next test
        records = [Record(0, now_ms, None, f"{text}-{n}".encode(), []) for n in range(rows)]
        for start in range(0, rows, ROWS_PER_BLOCK):
            block = records[start : start + ROWS_PER_BLOCK]
            await writer.write(encode_batch(block, is_transactional=True))
        return await writer.finish()


def expected(*marks: tuple[str, int], rows: int = 20, partitions: int = 3) -> list[bytes]:
    """All values of some batches."""
    return sorted(
        f"{query_id}-{batch_id}-{partition}-{n}".encode()
        for query_id, batch_id in marks
        for partition in range(partitions)
        for n in range(rows)
    )


@contextmanager
def driving(
    bootstrap: str, topic: str, states: str = STATE_TOPIC, *, sink_id: str | None = None
) -> Iterator[Driver]:
    """A driver; the topic's name is the sink's too, by default."""
    core = WatchedCore(bootstrap)
    try:
        protocol = run_blocking(choose_protocol(core))
        states_of = StateTopic(core, states, sink_id or topic)
        name = name_of(sink_id or topic)
        yield Driver(core, SinkRequests(core, protocol, name, name, states_of, [topic]), topic)
    finally:
        core.close()
