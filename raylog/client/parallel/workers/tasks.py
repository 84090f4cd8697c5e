"""Workers that are tasks of the event loop, for coroutine functions."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import Outcome
from raylog.client.parallel.interfaces import Began, Ran
from raylog.client.parallel.job import Job
from raylog.client.parallel.workers.threads import STALLED
from raylog.wire.record import Record

_GRACE_S = 5.0
"""How long to wait for a cancelled task before it is left to itself."""


_RUNS_IN_TURN_MAX = 16
"""A task yields to the loop after this many runs, because none of them may have suspended."""
_Work = tuple[int, TopicPartition, Sequence[Record]]


class TaskWorkers:
    """Runs one task per cell; giving up cancels it.

    A task whose run has ended starts the next run at once. A new task would start only after
    everything else that is ready in the loop, such as the ends of all other cells. However, the
    next run gets a new task if the last one left context variables changed.
    """

    can_end = True

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._given_up: set[int] = set()
        self._left: set[asyncio.Task[None]] = set()
        """Tasks that did not end when cancelled."""
        self._next: list[_Work] | None = None
        """Collects the next run while a task reports the end of its last one; otherwise None."""

    async def start(self, ran: Ran, fatal: Callable[[Exception], None], began: Began) -> None:
        """Set callbacks; tasks start on demand."""
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._ran = ran

    def run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> bool:
        """Pass the run to the task whose run has just ended, or start a new task."""
        work = cell_id, key, records
        if self._next is not None and not self._next:
            self._next.append(work)
        else:
            self._start(work)
        return True

    def give_up(self, cell_id: int) -> None:
        """Cancel the run's task."""
        task = self._tasks.get(cell_id)
        if task is not None:
            self._given_up.add(cell_id)
            task.cancel()
            self._loop.call_later(_GRACE_S, self._leave, cell_id, task)

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = [*self._tasks.values(), *self._left]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)

    def _start(self, work: _Work) -> None:
        self._tasks[work[0]] = self._loop.create_task(
            self._serve(work), context=self._context.copy()
        )

    async def _serve(self, work: _Work) -> None:
        """Run, and continue as long as the end of a run brings the next one."""
        task = asyncio.current_task()
        assert task is not None
        for _ in range(_RUNS_IN_TURN_MAX):
            cell_id, key, records = work
            self._tasks[cell_id] = task
            outcome = await self._job.run_async(key, records)
            if self._tasks.get(cell_id) is not task:
                self._left.discard(task)
                return
            del self._tasks[cell_id]
            if cell_id in self._given_up:
                self._given_up.discard(cell_id)
                outcome = STALLED
            following = self._tell(cell_id, outcome)
            if following is None:
                return
            work = following
            if task.cancelling() or contextvars.copy_context() != self._context:
                break
        self._start(work)

    def _tell(self, cell_id: int, outcome: Outcome) -> _Work | None:
        """Report a run's outcome; return the run that takes its place, if any."""
        taken: list[_Work] = []
        self._next = taken
        try:
            self._ran(cell_id, outcome)
        finally:
            self._next = None
        return taken[0] if taken else None

    def _leave(self, cell_id: int, task: asyncio.Task[None]) -> None:
        """Answer for a cancelled task that has not ended."""
        if self._tasks.get(cell_id) is task:
            del self._tasks[cell_id]
            self._given_up.discard(cell_id)
            self._left.add(task)
            self._ran(cell_id, STALLED)
