"""A sink's driver: one batch after the other through `commit.BatchMachine`.

Whoever runs the tasks (Spark in `sink`, Ray in `raylog.ray_data`) passes a function that lets them
write once under an identity and says what became of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.client.accumulator import ProducerIdentity
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.raydp_jobs.commit import (
    Batch,
    BatchMachine,
    Event,
    Finished,
    Identified,
    OffsetsRead,
    ReadOffsets,
    Refused,
    TakeIdentity,
    Write,
    WriteLost,
    Written,
)
from raylog.raydp_jobs.coordinator import Transactions
from raylog.raydp_jobs.marks import read_mark
from raylog.raydp_jobs.partition_run import PartitionRun
from raylog.raydp_jobs.permits import PermitDesk
from raylog.raydp_jobs.protocol import choose_protocol
from raylog.raydp_jobs.rows import Topics
from raylog.raydp_jobs.writer import WriterSettings
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)

_TOPIC_WAIT_MS = 15_000

R = TypeVar("R", bound=PartitionRun)


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a sink writes."""

    transaction_timeout_ms: int = 300_000
    """Above the longest write of a batch; at most the broker's `transaction.max.timeout.ms`."""
    runs_max: int = 5
    """How often a batch is written anew before the query fails."""
    row_bytes_max: int = 1_000_000
    """Of one record before compression; the topic's `max.message.bytes` must allow it."""
    rows_per_block: int = 10_000
    """Rows that a map task holds at a time."""
    writer: WriterSettings = field(default_factory=WriterSettings)
    client: ClientSettings | None = None
    """Instead of the defaults; its bootstrap counts."""


class SinkDriver:
    """Transactional id, group and connections of one sink."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topics: str | Sequence[str],
        sink_id: str,
        settings: SinkSettings | None,
    ) -> None:
        """`sink_id` names the transactional id and the group, which nothing else may use."""
        self.settings = settings or SinkSettings()
        self.sink_id = sink_id
        self.client = self.settings.client or ClientSettings(parse_bootstrap(bootstrap))
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._io = BlockingIo()
        self._core = Core(self._io, self.client)
        self._known: Transactions | None = None
        self._marked = TopicPartition(self._topics[0], 0)
        self._identity: ProducerIdentity | None = None

    @property
    def transactions(self) -> Transactions:
        """Requests of this sink's transactional id; asks once what the cluster has agreed on."""
        if self._known is None:
            protocol = run_blocking(choose_protocol(self._core))
            name = f"raylog-sink-{self.sink_id}"
            self._known = Transactions(self._core, protocol, name, name, self._marked)
        return self._known

    def topics(self) -> Topics:
        """The sink's topics as they are now; raises UnknownTopicOrPartition."""
        counts = dict.fromkeys(self._topics, 0)
        for key in self.partitions_of(self._topics):
            counts[key.topic] += 1
        return Topics(counts)

    def partitions_of(self, topics: Collection[str]) -> list[TopicPartition]:
        """All partitions of topics, asked anew; raises UnknownTopicOrPartition."""
        return run_blocking(self._core.partitions_of(topics, timeout_ms=_TOPIC_WAIT_MS))

    def run_of(
        self, kind: type[R], identity: ProducerIdentity, topics: Topics, desk: PermitDesk
    ) -> R:
        """What the tasks of one run need, as `kind` of whoever starts them."""
        return kind(
            self.client,
            self.transactions.protocol,
            self.transactions.transactional_id,
            identity,
            topics,
            self.settings.writer,
            self.settings.row_bytes_max,
            desk,
        )

    def write(self, batch: Batch, run: Callable[[ProducerIdentity], Event]) -> bool:
        """Write a batch unless it is written; returns whether it was new. Raises BatchFailed.

        `run` lets the tasks write once: Written or WriteLost.
        """
        offsets = batch.offsets()
        machine = BatchMachine(
            batch,
            self.transactions.protocol,
            self._identity,
            timeout_ms=self.settings.transaction_timeout_ms,
            runs_max=self.settings.runs_max,
        )
        self._identity = None
        try:
            step = machine.start(self._now_ms())
            while not isinstance(step.effect, Finished):
                run_blocking(self._io.pause(step.pause_ms))
                if isinstance(step.effect, Write):
                    event = run(step.effect.identity)
                else:
                    event = run_blocking(self.transactions.carry_out(step.effect, offsets))
                log.info("%s, batch %d: %s", self.sink_id, batch.mark.batch_id, _told(event))
                step = machine.handle(event, self._now_ms())
        except BaseException:
            if machine.runs:
                self._release()
            raise
        self._identity = step.effect.identity
        return step.effect.is_new

    def committed(self) -> dict[TopicPartition, int]:
        """Source offsets up to which batches are written; none before the first.

        Fences and ends first what an earlier driver left open.
        """
        taken = run_blocking(self.transactions.settle(self._take_identity()))
        found = run_blocking(self.transactions.settle(ReadOffsets()))
        assert isinstance(taken, Identified), "the answer fits the request"
        assert isinstance(found, OffsetsRead), "the answer fits the request"
        self._identity = taken.identity
        return {
            key: offset.offset
            for key, offset in found.offsets.items()
            if key != self._marked and read_mark(offset.metadata) is not None
        }

    def close(self) -> None:
        """End all connections."""
        self._core.close()
        self._io.close()

    def _take_identity(self) -> TakeIdentity:
        return TakeIdentity(self.settings.transaction_timeout_ms)

    def _release(self) -> None:
        """End what a failed batch left open: readers would wait for it until it times out."""
        try:
            run_blocking(self.transactions.settle(self._take_identity()))
        except (KafkaError, ClientError) as failure:
            log.warning("%s: the open transaction waits for its timeout: %s", self.sink_id, failure)

    def _now_ms(self) -> int:
        return int(self._io.now_ms())


def _told(event: Event) -> str:
    """An event as progress."""
    match event:
        case Written(reports):
            rows = sum(report.count for report in reports)
            partitions = sum(report.count > 0 for report in reports)
            return f"{rows} rows are written to {partitions} partitions"
        case WriteLost(reason):
            return f"to be written again: {reason}"
        case Refused(code, reason):
            return f"{code.name} {reason}"
        case _:
            return type(event).__name__
