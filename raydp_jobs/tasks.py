"""The executors' side of one run of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark import TaskContext

from raylog.raydp_jobs.commit import TaskReport
from raylog.raydp_jobs.partition_run import PartitionRun
from raylog.raydp_jobs.permits import refuse_later_attempt


@dataclass(frozen=True, slots=True)
class WriteRun(PartitionRun):
    """What the tasks of one run need; travels with their code."""

    def write(self, target: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[TaskReport]:
        """One task: all rows of one output partition. Raises PermitRefused."""
        self._ask_permit(target)  # without rows too: an earlier attempt may have had some
        yield self.written(target, (block for _, block in blocks))

    def _ask_permit(self, target: int) -> None:
        """Raise PermitRefused unless this attempt is the only one that may write."""
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        refuse_later_attempt(context.attemptNumber())
        self.desk.ask(target, context.stageId(), context.taskAttemptId())
