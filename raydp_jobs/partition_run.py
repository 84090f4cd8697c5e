"""One run of a batch as its tasks see it, whatever starts them."""

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
from raylog.client.sockets import BlockingIo
from raylog.raydp_jobs.commit import TaskReport
from raylog.raydp_jobs.coordinator import add_partition
from raylog.raydp_jobs.permits import PermitDesk
from raylog.raydp_jobs.protocol import Protocol
from raylog.raydp_jobs.rows import Topics
from raylog.raydp_jobs.writer import PartitionWriter, WriteRefused, WriterSettings
from raylog.wire.errors import KafkaError


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """What the tasks of one run need; travels to them."""

    client: ClientSettings
    protocol: Protocol
    transactional_id: str
    identity: ProducerIdentity
    topics: Topics
    settings: WriterSettings
    row_bytes_max: int
    desk: PermitDesk

    def written(self, target: int, blocks: Iterable[bytes]) -> TaskReport:
        """Write all blocks of one output partition, for which the permit was given.

        A refusal by Kafka is reported and not raised: the task would be repeated in vain.
        """
        key = self.topics.targets()[target]
        first = next(blocks := iter(blocks), None)
        if first is None:
            return TaskReport(key, 0, -1)
        io = BlockingIo()
        core = Core(io, self.client)
        try:
            return run_blocking(self._written(core, key, first, blocks))
        except WriteRefused as refusal:
            return TaskReport(key, 0, -1, refusal.message, is_final=refusal.is_final)
        except (KafkaError, ClientError) as failure:
            return TaskReport(key, 0, -1, f"{type(failure).__name__}: {failure}")
        finally:
            core.close()
            io.close()

    async def _written(
        self, core: Core, key: TopicPartition, first: bytes, others: Iterator[bytes]
    ) -> TaskReport:
        """Write all blocks."""
        if self.protocol.registers:
            await add_partition(core, self.protocol, self.transactional_id, self.identity, key)
        writer = PartitionWriter(
            core, self.protocol, self.transactional_id, self.identity, key, self.settings
        )
        for block in chain((first,), others):
            await writer.write(block)
        return await writer.finish()
