"""Processes that do long work for this one (`helper.py`): started on demand, ended when idle."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Awaitable
from typing import Any

from raylog.actors.runtime.base import PeerLost, Runtime, Timer, Work
from raylog.actors.runtime.helper import FRAME

IDLE_MS = 5_000
"""A process without work ends after this: the next log to clean is often not far."""
MODULE = "raylog.actors.runtime.helper"


class _Process:
    """One helper, and the socket to it."""

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
        return pickle.loads(answer)  # noqa: S301 - from a process that we started

    def kill(self) -> None:
        """End it now, whatever it does."""
        self._process.kill()
        self._writer.close()

    def wait(self) -> None:
        """Wait for the end of a process that was killed. Blocking."""
        self._process.wait()


class ProcessApart:
    """Work in a helper."""

    def __init__(self, helpers: Helpers, process: _Process) -> None:
        self._helpers = helpers
        self._process = process
        self._failed = False

    @property
    def pid(self) -> int:
        """Of the process that does it."""
        return self._process.pid

    def step(self) -> Awaitable[Any]:
        """What one step returned; raises PeerLost."""
        return self.ask(None)

    async def ask(self, request: Work | None) -> Any:
        """What the process answers; a process that does not will not be asked again."""
        self._failed = True  # unless it answers: the caller may be cancelled
        answer = await self._process.ask(request)
        self._failed = False
        return answer

    def stop(self) -> None:
        """Kill the process: its memory and its temporary files are all that it has."""
        self._process.kill()

    async def close(self) -> None:
        """Leave the process to the next work."""
        if self._failed:
            await self._helpers.discard(self._process)
        else:
            await self._helpers.give_back(self._process)


class Helpers:
    """The helpers of one process; at most one of them waits for work."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: dict[int, _Process] = {}  # by pid
        self._idle: _Process | None = None
        self._timer: Timer | None = None

    async def do(self, work: Work) -> ProcessApart:
        """Give `work` to a helper; raises PeerLost if there can be none."""
        process = self._take_idle() or await self._start()
        apart = ProcessApart(self, process)
        try:
            await apart.ask(work)
        except PeerLost:
            await self.discard(process)
            raise
        return apart

    def _take_idle(self) -> _Process | None:
        if self._timer is not None:
            self._timer.cancel()
        process, self._idle = self._idle, None
        return process

    async def _start(self) -> _Process:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await self._runtime.run_blocking(_popen, theirs)
        except OSError as failure:
            ours.close()
            raise PeerLost(f"no process can be started: {failure}") from failure
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        started = _Process(process, reader, writer)
        self._running[started.pid] = started
        return started

    async def give_back(self, process: _Process) -> None:
        """It has nothing to do."""
        idle = self._take_idle()
        if idle is not None:
            await self.discard(idle)
        self._idle = process
        self._timer = self._runtime.call_later(IDLE_MS, self._end_idle)

    def _end_idle(self) -> None:
        process = self._take_idle()
        if process is not None:
            self._runtime.start(self.discard(process), "end helper")

    async def discard(self, process: _Process) -> None:
        """End a process."""
        process.kill()
        await self._runtime.run_blocking(process.wait)
        self._running.pop(process.pid, None)

    def end(self) -> None:
        """End all of them now."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()


def _popen(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start a helper that finds what this process finds. Blocking."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", MODULE]
    return subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=theirs.fileno(), env=environment, start_new_session=True
    )
