"""Workers that are threads of this process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import Outcome
from raylog.client.parallel.interfaces import Began, Ran, WorkersExhausted
from raylog.client.parallel.job import Job
from raylog.client.parallel.policy import Failure, FailureKind
from raylog.wire.record import Record

_Work = tuple[int, TopicPartition, Sequence[Record]]
_GIVEN_UP_MIN = 16
_JOIN_S = 1.0

STALLED = Failure(FailureKind.STALLED, "Stalled", "it ran longer than it may, and was given up")


class ThreadWorkers:
    """Starts as many threads as cells run. A thread cannot be ended: if given up, it is replaced.

    When its call does return, the thread works again; until then it counts as lost, and too many
    lost threads end the consumer.
    """

    can_end = False

    def __init__(self, job: Job, cells: int) -> None:
        self._job = job
        self._given_up_max = max(_GIVEN_UP_MIN, 2 * cells)
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._ended: deque[tuple[int, Outcome]] = deque()
        self._threads: list[threading.Thread] = []
        self._running: set[int] = set()
        self._given_up: set[int] = set()
        self._is_waking = False
        self._is_closed = False

    async def start(self, ran: Ran, fatal: Callable[[Exception], None], began: Began) -> None:
        """Set callbacks; threads start on demand."""
        self._loop = asyncio.get_running_loop()
        self._ran, self._fatal = ran, fatal

    def run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> bool:
        """Queue the run; there is a thread for each."""
        self._running.add(cell_id)
        self._work.put((cell_id, key, records))
        if len(self._threads) < len(self._running) + len(self._given_up):
            thread = threading.Thread(
                target=self._serve, name=f"raylog worker {len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return True

    def give_up(self, cell_id: int) -> None:
        """Answer for the run; ignore what it returns later."""
        if cell_id not in self._running:
            return  # it has just ended
        self._running.discard(cell_id)
        self._given_up.add(cell_id)
        if len(self._given_up) > self._given_up_max:
            self._fatal(WorkersExhausted(f"{len(self._given_up)} calls have not returned"))
        self._loop.call_soon(self._ran, cell_id, STALLED)

    async def close(self) -> None:
        """End idle threads; a call that does not return keeps its thread, which is a daemon."""
        self._is_closed = True
        for _ in self._threads:
            self._work.put(None)
        if not self._running and not self._given_up:
            for thread in self._threads:
                thread.join(_JOIN_S)

    def _serve(self) -> None:
        """Run jobs in one thread."""
        job, ended = self._job, self._ended
        while (work := self._work.get()) is not None:
            cell_id, key, records = work
            ended.append((cell_id, job.run(key, records)))
            if self._is_closed:
                return
            if not self._is_waking:
                self._is_waking = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop has ended meanwhile

    def _collect(self) -> None:
        """Take all outcomes, in the event loop."""
        self._is_waking = False  # first, so that later outcomes wake the loop again
        while self._ended:
            cell_id, outcome = self._ended.popleft()
            if cell_id in self._running:
                self._running.discard(cell_id)
                self._ran(cell_id, outcome)
            else:
                self._given_up.discard(cell_id)
