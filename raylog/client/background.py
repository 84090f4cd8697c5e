"""An event loop in its own thread, for the work a blocking client does between calls.

The thread starts with the first call. It ends with `stop`, when its object is garbage-collected, or
with the interpreter. When idle it sleeps in the selector. A child of `fork` inherits the object but
not the thread: every call there raises, and the parent's connections are left alone.
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
"""Reason for refusing calls in a child of `fork`."""
_STOP_TIMEOUT_S = 5.0
"""Bounds the wait for the thread, so that a callback that hangs cannot block `close`."""
_alive: weakref.WeakSet[BackgroundLoop] = weakref.WeakSet()


class BackgroundLoop:
    """One thread that runs one event loop. Its methods may be called from any other thread."""

    def __init__(self) -> None:
        self.unusable: str | None = None
        """Why calls are refused; None while they are accepted."""
        self.at_end: set[Callable[[], object]] = set()
        """What the thread calls last; coroutine functions are awaited after all others."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: weakref.finalize[..., BackgroundLoop] | None = None
        self._starting = threading.Lock()

    def call(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end. If the caller is interrupted, the coroutine is cancelled."""
        try:
            loop = self._started()
            self.require_another_thread()
        except BaseException:  # OSError too: an event loop needs file descriptors and a thread
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def post(self, callback: Callable[[], object]) -> None:
        """Schedule a function to be called soon."""
        self._started().call_soon_threadsafe(callback)

    def check(self) -> None:
        """Raise ClientError unless calls are accepted."""
        if self.unusable is not None:
            raise ClientError(self.unusable)

    def stop(self) -> None:
        """Cancel all work in progress and end the thread; does nothing if it has ended."""
        with self._starting:
            if self.unusable is not None:
                return
            self.unusable = "the client is closed"
        if self._end is not None:
            self._end()

    def forked(self) -> None:
        """Refuse calls from now on: in a child process, the thread stayed with the parent."""
        self.unusable = OF_THE_PARENT
        if self._end is not None:
            self._end.detach()

    @property
    def is_current(self) -> bool:
        """Whether the caller is running in this thread."""
        return threading.current_thread() is self._thread

    def require_another_thread(self) -> None:
        """Raise ClientError if called in this thread, which cannot wait for itself."""
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
    """Run the loop until it is stopped: the thread's target."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end(at_end))
    finally:
        loop.close()


async def _end(at_end: set[Callable[[], object]]) -> None:
    """Cancel all other tasks, then close what is still open."""
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
