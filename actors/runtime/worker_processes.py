"""Worker processes (`worker_process.py`): they do long work for this one, started on demand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from raylog.actors.runtime.base import PeerLost, PeerTimeout, Runtime, Timer, Work
from raylog.actors.runtime.worker_process import FRAME

IDLE_MS = 5_000
"""A process without work ends after this: there is often another log to clean soon."""
NICE = 5
"""A busy process gets about a third of what others get, so that it does not starve."""
_STDERR = 2
MODULE = "raylog.actors.runtime.worker_process"


class _Process:
    """One worker process, and the socket to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, request: Work | None) -> Any:
        """Send a request and wait for its answer; raises PeerLost."""
        data = pickle.dumps(request)
        try:
            self._writer.write(FRAME.pack(len(data)))
            self._writer.write(data)
            await self._writer.drain()
            (length,) = FRAME.unpack(await self._reader.readexactly(FRAME.size))
            answer = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as lost:
            raise PeerLost(f"process {self.pid} is gone: {lost}") from lost
        try:
            return pickle.loads(answer)  # noqa: S301 - from a process that we started
        except Exception as garbage:  # a plug-in may have written to any descriptor
            raise PeerLost(f"process {self.pid} gave an unreadable answer: {garbage}") from garbage

    def kill(self) -> None:
        """Kill it and all that it has started."""
        if self._process.poll() is None:  # else another process may have its id
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._writer.close()

    def wait(self) -> int:
        """Wait for the end of a process that was killed; returns its code. Blocking."""
        return self._process.wait()


class WorkInProcess:
    """Work in a worker process."""

    def __init__(self, pool: WorkerProcesses, process: _Process) -> None:
        self._pool = pool
        self._process = process
        self._failed = False

    @property
    def pid(self) -> int:
        """Of the process that does the work."""
        return self._process.pid

    def step(self) -> Awaitable[Any]:
        """The result of one step; raises PeerLost."""
        return self.ask(None)

    async def ask(self, request: Work | None) -> Any:
        """Send a request; a process that does not answer is not used again. Raises PeerLost."""
        self._failed = True  # unless it answers: the caller may be cancelled
        try:
            answer = await self._process.ask(request)
        except PeerLost as lost:
            code = await self._pool.discard(self._process)
            raise PeerLost(f"process {self.pid} is gone: it ended with code {code}") from lost
        self._failed = False
        return answer

    def stop(self) -> None:
        """Kill the process: it holds nothing but memory and temporary files."""
        self._failed = True
        self._process.kill()

    async def close(self) -> None:
        """Leave the process to the next work, if it is fit for it."""
        if self._failed:
            await self._pool.discard(self._process)
        else:
            await self._pool.give_back(self._process)


class WorkerProcesses:
    """The worker processes of one process; at most one of them is idle."""

    def __init__(self, runtime: Runtime, nice: int = NICE) -> None:
        self._runtime = runtime
        self._nice = nice
        self._has_ended = False
        self._running: dict[int, _Process] = {}  # by pid
        self._idle: _Process | None = None
        self._timer: Timer | None = None

    async def do(self, work: Work) -> WorkInProcess:
        """Give `work` to a process; raises PeerLost if there can be none."""
        process = self._take_idle() or await self._start()
        if self._has_ended:
            await self.discard(process)
            raise PeerLost("no process can be started: this one is stopping")
        given = WorkInProcess(self, process)
        try:
            await given.ask(work)
        except BaseException:
            await given.close()
            raise
        return given

    async def do_alone(self, work: Work, timeout_ms: int) -> Any:
        """The result of one step in a process that is killed then: it may leave anything behind.

        Raises PeerLost, PeerTimeout.
        """
        given: WorkInProcess | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                given = await self.do(work)
                return await given.step()
        except TimeoutError:
            raise PeerTimeout(f"not done within {timeout_ms} ms") from None
        finally:
            if given is not None:
                given.stop()
                await given.close()

    def _take_idle(self) -> _Process | None:
        if self._timer is not None:
            self._timer.cancel()
        process, self._idle = self._idle, None
        return process

    async def _start(self) -> _Process:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await self._runtime.run_blocking(_popen, theirs, self._nice)
        except BaseException as failure:
            ours.close()  # a process that starts all the same ends with it
            if isinstance(failure, OSError):
                raise PeerLost(f"no process can be started: {failure}") from failure
            raise
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        started = _Process(process, reader, writer)
        self._running[started.pid] = started
        return started

    async def give_back(self, process: _Process) -> None:
        """Keep a process that has nothing to do, for a while."""
        idle = self._take_idle()
        if idle is not None:
            await self.discard(idle)
        self._idle = process
        self._timer = self._runtime.call_later(IDLE_MS, self._end_idle)

    def _end_idle(self) -> None:
        process = self._take_idle()
        if process is not None:
            self._runtime.start(self._end(process), "end a worker process")

    async def _end(self, process: _Process) -> None:
        await self.discard(process)

    async def discard(self, process: _Process) -> int:
        """Kill a process; returns the code that it ended with."""
        process.kill()
        code = await self._runtime.run_blocking(process.wait)
        self._running.pop(process.pid, None)
        return code

    def end(self) -> None:
        """Kill all of them; there will be no others."""
        self._has_ended = True
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()


def _popen(theirs: socket.socket, nice: int) -> subprocess.Popen[bytes]:
    """Start a worker process that imports from where this one does. Blocking.

    What it prints goes to standard error, and it leads a session: what it starts ends with it.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(each or str(Path.cwd()) for each in sys.path),
    }
    command = [sys.executable, "-P", "-m", MODULE, str(nice)]
    return subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=theirs.fileno(), stdout=_STDERR, env=environment, start_new_session=True
    )
