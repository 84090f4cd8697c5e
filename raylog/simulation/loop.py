"""An event loop in virtual time that knows which process each callback belongs to.

The clock jumps to the next timer instead of waiting. Callbacks of a process that has ended are
dropped, as if the process had been killed: no `finally` runs. Callbacks of a paused process wait
until it continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
STEPS_MAX = 3_000_000
"""The most callbacks of one simulation. More indicate an endless loop."""
_TASKS_MIN = 256


class SimulationStuck(Exception):
    """A simulation waits for something although nothing can happen, or it does not end."""


class Process:
    """A process as the loop sees it: an actor, which runs, pauses and ends as a whole."""

    __slots__ = ("alive", "context", "name", "parked", "paused")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.parked: list[asyncio.Handle] = []
        self.context = Context()
        self.context.run(_PROCESS.set, self)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
OUTSIDE = Context()
"""The context of callbacks that belong to no process, such as the network's and the test's."""


def current_process() -> Process | None:
    """The process whose code is running."""
    return _PROCESS.get()


class _Handle(asyncio.Handle):
    """A handle without debugging information, because it is cheaper to create."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(_Handle, asyncio.TimerHandle):
    """A timer without debugging information, because it is cheaper to create."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        """Cancel the timer. The loop skips it when it is due."""
        self._cancelled = True
        self._callback = _nothing
        self._args = ()


def _nothing() -> None:
    """Replaces the callback of a cancelled timer."""


def process_of(handle: asyncio.Handle) -> Process | None:
    """The process that a callback belongs to."""
    context: Context = handle._context  # type: ignore[attr-defined]  # asyncio gives no other way
    return context.get(_PROCESS)


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self._now_s = 0.0
        self._soon: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = _TASKS_MIN

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now_s

    def call_soon(  # type: ignore[override]  # typeshed's types of the arguments are variadic
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` after what is already due."""
        handle = _Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # as above
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at a virtual time."""
        handle = _Timer(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_later(  # type: ignore[override]  # as above
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` after some virtual seconds."""
        when = self._now_s + delay
        handle = _Timer(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Create a task.

        The loop keeps it, so that the code of a killed process never runs again.
        """
        task: asyncio.Task[Any] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._tasks_max = 2 * len(self._tasks) + _TASKS_MIN
        return task

    def run_in(self, context: Context, callback: Callable[[], object]) -> None:
        """Run a callback in a context at once. The caller must belong to no process."""
        process = context.get(_PROCESS)
        if process is not None and (process.paused or not process.alive):
            if process.alive:
                process.parked.append(_Handle(callback, (), self, context))
            return
        try:
            context.run(callback)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as failure:  # noqa: BLE001 - as asyncio's own handles do
            self._raised(failure, _Handle(callback, (), self, context))

    def _raised(self, failure: BaseException, handle: asyncio.Handle) -> None:
        self.call_exception_handler(
            {"message": "a callback raised", "exception": failure, "handle": handle}
        )

    def _run_once(self) -> None:
        """Run everything that is due, or advance the clock to the next timer."""
        if not self._soon:
            self._advance()
        due, self._soon = self._soon, []
        self.steps += len(due)
        if self.steps > STEPS_MAX:
            raise SimulationStuck(f"{self.steps} steps by second {self._now_s:.3f}")
        for handle in due:
            if handle._cancelled:
                continue
            process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]  # as above
            if process is not None and (process.paused or not process.alive):
                if process.alive:
                    process.parked.append(handle)
            else:
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # as above
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as failure:  # noqa: BLE001 - as asyncio's own handles do
                    self._raised(failure, handle)

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise SimulationStuck("no timer is left and somebody waits")
        self._now_s = max(self._now_s, timers[0][0])
        now_s, soon = self._now_s, self._soon
        while timers and timers[0][0] <= now_s:
            soon.append(heapq.heappop(timers)[2])

    def go_on(self, process: Process) -> None:
        """Let a paused process run what has become due meanwhile."""
        process.paused = False
        parked, process.parked = process.parked, []
        self._soon += parked

    def end(self) -> None:
        """Drop what has not ended. Effects of code that still runs do not matter."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own switch
                coroutine = task.get_coro()
                if coroutine is not None:
                    with contextlib.suppress(Exception):  # its `finally` finds nothing left
                        coroutine.close()
        self._tasks.clear()
        self._soon.clear()
        self._timers.clear()
        self.close()


def run_in_virtual_time(main: Callable[[SimLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main` to its end. Raises SimulationStuck if nothing can happen any more."""
    loop = SimLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.end()
