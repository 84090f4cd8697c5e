"""The common part of runtimes on a real event loop: clock, timers, tasks, threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from raylog.actors.places import NodeEntry
from raylog.actors.runtime.base import Apart, BackgroundTask, PeerTimeout, Timer, Work
from raylog.actors.runtime.thread_work import WorkInThreads
from raylog.actors.runtime.usage import ProcessUsage, usage_here
from raylog.storage.disk import OsDisk, Volume

T = TypeVar("T")
log = logging.getLogger(__name__)
BLOCKING_THREADS = 4
LOOPBACK = "127.0.0.1"


class LoopRuntime:
    """Clock, random numbers and tasks of an actor on an asyncio (uvloop) event loop."""

    rest_s = 0.000_5  # threads share the interpreter with the loop

    def __init__(self, instance: str, on_broken: Callable[[BaseException], None]) -> None:
        self.random: random.Random = random.SystemRandom()  # ids must not be guessable
        self.instance = instance
        self.disk: Volume = OsDisk()
        self.clock: Callable[[], float] = time.monotonic
        self._on_broken = on_broken
        self._tasks: dict[asyncio.Task[None], None] = {}  # ordered, for reproducible simulations
        self._threads: ThreadPoolExecutor | None = None

    def now_ms(self) -> int:
        """Return wall-clock time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return monotonic time in ms."""
        return time.monotonic() * 1000.0

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000.0, callback)

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> BackgroundTask:
        """Run a background task; an exception that leaves it ends the actor."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            self.broken(f"background task {task.get_name()}", failure)

    def broken(self, what: str, failure: BaseException) -> None:
        """End the actor after an unexpected exception."""
        log.critical("%s failed", what, exc_info=failure)
        self._on_broken(failure)

    def process_usage(self) -> ProcessUsage:
        """Return this process's usage; the first call starts to measure the event loop's lag."""
        return usage_here()

    async def this_node(self) -> NodeEntry:
        """Return this machine as a node."""
        return NodeEntry("", LOOPBACK, {})

    async def run_blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function in a thread."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="raylog")
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def apart(self, work: Work) -> Apart:
        """Do `work` in a thread."""
        return WorkInThreads(self, work)

    async def run_foreign(self, function: Callable[..., T], *args: Any, timeout_ms: int) -> T:
        """Run a plug-in's function in its own daemon thread."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()

        def give_up() -> None:
            if not ended.done():
                ended.set_exception(PeerTimeout(f"not done within {timeout_ms} ms"))

        timer = loop.call_later(timeout_ms / 1000.0, give_up)
        work = partial(_work, loop, ended, partial(function, *args))
        threading.Thread(target=work, name="raylog plug-in", daemon=True).start()
        try:
            return await ended
        finally:
            timer.cancel()

    def end(self, *, wait: bool = True) -> None:
        """Cancel the background tasks; with `wait`, wait until running threads have finished."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=wait, cancel_futures=True)
            self._threads = None


def _work(
    loop: asyncio.AbstractEventLoop, ended: asyncio.Future[T], function: Callable[[], T]
) -> None:
    """Run `function` and pass its outcome to the loop, unless that was closed meanwhile."""
    settle: Callable[[], None]
    try:
        settle = partial(_settle, ended, ended.set_result, function())
    except BaseException as failure:  # noqa: BLE001 - raised where it is awaited
        settle = partial(_settle, ended, ended.set_exception, failure)
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(settle)


def _settle(ended: asyncio.Future[T], setter: Callable[[Any], None], outcome: object) -> None:
    if not ended.done():
        setter(outcome)
