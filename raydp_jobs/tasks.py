"""The executors' side of one run of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark import TaskContext

from raylog.client.accumulator import ProducerIdentity
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings
from raylog.client.sockets import BlockingIo
from raylog.raydp_jobs.commit import TaskReport
from raylog.raydp_jobs.coordinator import Transactions
from raylog.raydp_jobs.permits import PermitDesk, refuse_later_attempt
from raylog.raydp_jobs.protocol import Protocol
from raylog.raydp_jobs.rows import Topics, records_of
from raylog.raydp_jobs.writer import PartitionWriter, WriteRefused, WriterSettings
from raylog.wire.errors import KafkaError


@dataclass(frozen=True, slots=True)
class WriteRun:
    """What the tasks of one run need; travels with their code."""

    client: ClientSettings
    protocol: Protocol
    transactional_id: str
    identity: ProducerIdentity
    topics: Topics
    settings: WriterSettings
    row_bytes_max: int
    desk: PermitDesk

    def write(self, target: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[TaskReport]:
        """One task: all rows of one output partition. Raises PermitRefused.

        A refusal by Kafka is reported and not raised: Spark would repeat the task in vain.
        """
        key = self.topics.targets()[target]
        self._ask_permit(target)  # without rows too: an earlier attempt may have had some
        first = next(iter(blocks := iter(blocks)), None)
        if first is None:
            yield TaskReport(key, 0, -1)
            return
        io = BlockingIo()
        core = Core(io, self.client)
        try:
            yield run_blocking(self._written(core, key, first, blocks))
        except WriteRefused as refusal:
            yield TaskReport(key, 0, -1, refusal.message, is_final=refusal.is_final)
        except (KafkaError, ClientError) as failure:
            yield TaskReport(key, 0, -1, f"{type(failure).__name__}: {failure}")
        finally:
            core.close()
            io.close()

    def _ask_permit(self, target: int) -> None:
        """Raise PermitRefused unless this attempt is the only one that may write."""
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        refuse_later_attempt(context.attemptNumber())
        self.desk.ask(target, context.stageId(), context.taskAttemptId())

    async def _written(
        self,
        core: Core,
        key: TopicPartition,
        first: tuple[int, bytes],
        others: Iterator[tuple[int, bytes]],
    ) -> TaskReport:
        """Write all blocks."""
        if self.protocol.registers:
            transactions = Transactions(core, self.protocol, self.transactional_id, "", key)
            await transactions.add_partition(self.identity, key)
        writer = PartitionWriter(
            core, self.protocol, self.transactional_id, self.identity, key, self.settings
        )
        now_ms = int(time.time() * 1000)
        await writer.write(records_of(first[1], now_ms))
        for _, block in others:
            await writer.write(records_of(block, now_ms))
        return await writer.finish()
