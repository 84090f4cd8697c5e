"""One run of a batch from its tasks' side, for any engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.settings import ClientSettings
from raylog.client.sockets import connected
from raylog.client.transactions import Protocol, TransactionRequests
from raylog.sink.commit import TaskReport
from raylog.sink.permits import PermitClient
from raylog.sink.rows import Topics
from raylog.sink.writer import PartitionWriter, WriteRefused, WriterSettings
from raylog.wire.errors import KafkaError


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """What the tasks of one run need; pickled and sent to them."""

    client: ClientSettings
    protocol: Protocol
    transactional_id: str
    identity: ProducerIdentity
    topics: Topics
    settings: WriterSettings
    row_bytes_max: int
    permit_client: PermitClient

    def written(self, target: int, blocks: Iterable[bytes]) -> TaskReport:
        """Write all blocks of one output partition, after its permit was granted.

        Brokers' errors are reported, not raised, because repeating the task would not help.
        """
        key = self.topics.targets()[target]
        first = next(blocks := iter(blocks), None)
        if first is None:
            return TaskReport(key, 0, -1)
        try:
            with connected(self.client) as core:
                return run_blocking(self._written(core, key, first, blocks))
        except WriteRefused as refusal:
            return TaskReport(key, 0, -1, refusal.message, is_final=refusal.is_final)
        except (KafkaError, ClientError) as failure:
            return TaskReport(key, 0, -1, f"{type(failure).__name__}: {failure}")

    async def _written(
        self, core: Core, key: TopicPartition, first: bytes, others: Iterator[bytes]
    ) -> TaskReport:
        """Write all blocks."""
        if self.protocol.registers:
            requests = TransactionRequests(core, self.protocol, self.transactional_id)
            await requests.add_partitions(self.identity, [key])
        writer = PartitionWriter(
            core, self.protocol, self.transactional_id, self.identity, key, self.settings
        )
        for block in chain((first,), others):
            await writer.write(block)
        return await writer.finish()
