"""Workers that are tasks of the event loop, for coroutine functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.job import Job
from raylog.client.parallel.ports import Ran
from raylog.client.parallel.workers.threads import STALLED
from raylog.wire.record import Record

_GRACE_S = 5.0
"""How long a cancelled task may take; then it is left to itself."""


class TaskWorkers:
    """A task a run; giving up cancels it."""

    can_end = True

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._given_up: set[int] = set()
        self._left: set[asyncio.Task[None]] = set()
        """Tasks that did not end when cancelled."""

    async def start(self, ran: Ran, fatal: Callable[[Exception], None]) -> None:
        """Nothing to start."""
        self._loop = asyncio.get_running_loop()
        self._ran = ran

    def run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> None:
        """Start a task."""
        self._tasks[cell_id] = self._loop.create_task(self._run(cell_id, key, records))

    def give_up(self, cell_id: int) -> None:
        """Cancel it."""
        task = self._tasks.get(cell_id)
        if task is not None:
            self._given_up.add(cell_id)
            task.cancel()
            self._loop.call_later(_GRACE_S, self._leave, cell_id, task)

    async def close(self) -> None:
        """Cancel all."""
        tasks = [*self._tasks.values(), *self._left]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)

    async def _run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> None:
        outcome = await self._job.run_async(key, records)
        task = asyncio.current_task()
        if self._tasks.get(cell_id) is not task:
            assert task is not None
            self._left.discard(task)
            return
        del self._tasks[cell_id]
        if cell_id in self._given_up:
            self._given_up.discard(cell_id)
            outcome = STALLED
        self._ran(cell_id, outcome)

    def _leave(self, cell_id: int, task: asyncio.Task[None]) -> None:
        """It was cancelled and goes on: answer for it."""
        if self._tasks.get(cell_id) is task:
            del self._tasks[cell_id]
            self._given_up.discard(cell_id)
            self._left.add(task)
            self._ran(cell_id, STALLED)
