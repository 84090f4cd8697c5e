"""The executors' side of one run of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark import TaskContext

from raylog.sink.commit import TaskReport
from raylog.sink.partition_run import PartitionRun
from raylog.sink.permits import refuse_later_attempt


@dataclass(frozen=True, slots=True)
class WriteRun(PartitionRun):
    """What the tasks of one run need; sent with their code."""

    def write(self, target: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[TaskReport]:
        """Task: write all rows of one output partition. Raises PermitRefused."""
        self._ask_permit(target)  # even without rows: an earlier attempt may have had some
        yield self.written(target, (block for _, block in blocks))

    def _ask_permit(self, target: int) -> None:
        """Raise PermitRefused unless this attempt is the only one that may write."""
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        refuse_later_attempt(context.attemptNumber())
        self.permit_client.ask(target, context.stageId(), context.taskAttemptId())
