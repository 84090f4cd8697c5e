"""Workers that are local processes, started by "spawn"; each handles one run at a time.

Parent and child talk over a socket pair: frames of a four-byte length and a pickle. A child sends
an empty frame once it has started.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import signal
import socket
from collections.abc import Callable, Sequence
from multiprocessing.context import SpawnProcess

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import Outcome
from raylog.client.parallel.interfaces import Began, Ran
from raylog.client.parallel.job import Job
from raylog.client.parallel.policy import Failure, FailureKind
from raylog.client.parallel.workers.threads import STALLED
from raylog.wire.record import Record

_LENGTH_BYTES = 4
_END_S = 5.0
_NEVER_STARTED_MAX = 5
"""After more consecutive processes that end before their first answer, the consumer fails."""


class _Worker:
    """One process."""

    def __init__(self, process: SpawnProcess, parent: socket.socket) -> None:
        self.process = process
        self.socket = parent
        self.writer: asyncio.StreamWriter | None = None
        self.waiting: list[bytes] = []
        """Frames to write once the stream is open."""
        self.cell_id: int | None = None
        self.is_given_up = False
        self.has_started = False
        self.has_answered = False

    def write(self, frame: bytes) -> None:
        data = len(frame).to_bytes(_LENGTH_BYTES, "big") + frame
        if self.writer is None:
            self.waiting.append(data)
        else:
            self.writer.write(data)


class ProcessWorkers:
    """Starts processes on demand. One that dies costs only its own cell a run."""

    can_end = True

    def __init__(self, job: Job) -> None:
        self._job = job
        self._context = multiprocessing.get_context("spawn")
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._by_cell: dict[int, _Worker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._never_started = 0
        self._is_closing = False

    async def start(self, ran: Ran, fatal: Callable[[Exception], None], began: Began) -> None:
        """Set callbacks; processes start on demand."""
        self._ran, self._fatal, self._began = ran, fatal, began
        self._loop = asyncio.get_running_loop()

    def run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> bool:
        """Send the run to an idle process or a new one."""
        worker = self._idle.pop() if self._idle else self._start_one()
        worker.cell_id = cell_id
        self._by_cell[cell_id] = worker
        plain = [tuple(record) for record in records]
        worker.write(pickle.dumps((tuple(key), plain), pickle.HIGHEST_PROTOCOL))
        return worker.has_started

    def give_up(self, cell_id: int) -> None:
        """Kill the process; its end is the answer."""
        worker = self._by_cell.get(cell_id)
        if worker is not None:
            worker.is_given_up = True
            worker.process.kill()

    async def close(self) -> None:
        """End all processes: idle ones by closing their socket, others by a signal."""
        self._is_closing = True
        for worker in self._workers:
            if worker.writer is not None:
                worker.writer.close()
            if worker.cell_id is not None:
                worker.process.kill()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _start_one(self) -> _Worker:
        parent, child = socket.socketpair()
        process = self._context.Process(
            target=_serve, args=(child, self._job), name="raylog worker", daemon=True
        )
        process.start()
        child.close()
        worker = _Worker(process, parent)
        self._workers.add(worker)
        task = self._loop.create_task(self._attend(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return worker

    async def _attend(self, worker: _Worker) -> None:
        """Handle one process's answers until it ends."""
        reader, worker.writer = await asyncio.open_connection(sock=worker.socket)
        worker.writer.writelines(worker.waiting)
        worker.waiting.clear()
        if self._is_closing:
            worker.writer.close()
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
                if not size:
                    self._started(worker)
                    continue
                outcome: Outcome = pickle.loads(await reader.readexactly(size))  # noqa: S301  # our child's
                worker.has_answered, self._never_started = True, 0
                self._answer(worker, outcome)
                if not worker.is_given_up:
                    self._idle.append(worker)
        except (asyncio.IncompleteReadError, OSError):
            await self._ended(worker)

    def _started(self, worker: _Worker) -> None:
        """Handle a process's start: the run that waited for it begins."""
        worker.has_started = True
        if worker.cell_id is not None and not self._is_closing:
            self._began(worker.cell_id)

    async def _ended(self, worker: _Worker) -> None:
        """Handle the end of a process, or end it."""
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        assert worker.writer is not None
        worker.writer.close()
        if not self._is_closing:
            worker.process.kill()
        await asyncio.to_thread(worker.process.join, _END_S)
        if worker.process.is_alive():
            worker.process.kill()
            await asyncio.to_thread(worker.process.join)
        how = _how_it_ended(worker.process.exitcode)
        if worker.cell_id is not None:
            lost = Failure(FailureKind.WORKER_LOST, "WorkerLost", f"its process {how}")
            self._answer(worker, STALLED if worker.is_given_up else lost)
        if not worker.has_answered and not worker.is_given_up and not self._is_closing:
            self._never_started += 1
            if self._never_started > _NEVER_STARTED_MAX:
                self._fatal(ChildProcessError(f"worker processes do not start: the last {how}"))

    def _answer(self, worker: _Worker, outcome: Outcome) -> None:
        cell_id, worker.cell_id = worker.cell_id, None
        assert cell_id is not None
        del self._by_cell[cell_id]
        if not self._is_closing:
            self._ran(cell_id, STALLED if worker.is_given_up else outcome)


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _serve(channel: socket.socket, job: Job) -> None:
    """Run jobs in the child process until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which drains
    channel.sendall(bytes(_LENGTH_BYTES))
    with channel, channel.makefile("rb") as reader:
        while len(length := reader.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
            frame = reader.read(int.from_bytes(length, "big"))
            key, records = pickle.loads(frame)  # noqa: S301  # our parent's
            outcome = job.run(TopicPartition(*key), [Record(*one) for one in records])
            data = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
            channel.sendall(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
