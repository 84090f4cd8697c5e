"""An event loop in a thread of its own, for what goes on between a blocking client's calls.

The thread starts with the first call and ends with `stop`, when nobody has its object any more, or
with the interpreter. It sleeps in the selector while there is nothing to do. A child of `fork` has
the object without the thread: every call there raises, and the parent's connections are left alone.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import TypeVar

from raylog.client.errors import ClientError
from raylog.client.greenlets import new_event_loop

T = TypeVar("T")
OF_THE_PARENT = "this client belongs to the parent process: make one after the fork"
"""Why a client takes no calls in a child of `fork`."""
_STOP_TIMEOUT_S = 5.0
"""A callback that hangs does not keep a client from being closed."""
_alive: weakref.WeakSet[BackgroundLoop] = weakref.WeakSet()


class BackgroundLoop:
    """One thread with one event loop. Its methods may be called by any other thread."""

    def __init__(self) -> None:
        self.unusable: str | None = None
        """Why it takes no more calls."""
        self.at_end: set[Callable[[], object]] = set()
        """What the thread does last; coroutine functions are awaited after all others."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: weakref.finalize[..., BackgroundLoop] | None = None
        self._starting = threading.Lock()

    def call(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end; whatever interrupts the caller cancels it."""
        try:
            loop = self._started()
            self.require_another_thread()
        except BaseException:  # also the system's: an event loop needs descriptors and a thread
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def post(self, callback: Callable[[], object]) -> None:
        """Have a function called soon."""
        self._started().call_soon_threadsafe(callback)

    def check(self) -> None:
        """Raise ClientError unless calls are taken."""
        if self.unusable is not None:
            raise ClientError(self.unusable)

    def stop(self) -> None:
        """Cancel what is under way and end the thread; harmless when it has ended."""
        with self._starting:
            if self.unusable is not None:
                return
            self.unusable = "the client is closed"
        if self._end is not None:
            self._end()

    def forked(self) -> None:
        """In a child process: the thread has stayed with the parent."""
        self.unusable = OF_THE_PARENT
        if self._end is not None:
            self._end.detach()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def require_another_thread(self) -> None:
        """Raise ClientError in this thread, which cannot wait for itself."""
        if self.is_current:
            raise ClientError(
                "on_delivery runs in the client's own thread, so it cannot wait for that thread: "
                "use send or submit in it, and wait in another thread"
            )

    def _started(self) -> asyncio.AbstractEventLoop:
        self.check()
        if self._loop is None:
            with self._starting:
                self.check()
                if self._loop is None:
                    loop = new_event_loop()
                    self._thread = threading.Thread(
                        target=_run, args=(loop, self.at_end), name="raylog client", daemon=True
                    )
                    self._thread.start()
                    self._end = weakref.finalize(self, _stop, loop, self._thread)
                    _alive.add(self)
                    self._loop = loop
        return self._loop


def _run(loop: asyncio.AbstractEventLoop, at_end: set[Callable[[], object]]) -> None:
    """The thread."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end(at_end))
    finally:
        loop.close()


async def _end(at_end: set[Callable[[], object]]) -> None:
    """Cancel all other tasks, then close what is open."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    callbacks = tuple(at_end)
    for callback in callbacks:
        if not inspect.iscoroutinefunction(callback):
            callback()
    await asyncio.gather(*(each() for each in callbacks if inspect.iscoroutinefunction(each)))
    await asyncio.sleep(0)  # lets the loop close the sockets


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(_STOP_TIMEOUT_S)


def _forked() -> None:
    for one in _alive:
        one.forked()


os.register_at_fork(after_in_child=_forked)
