"""An asyncio event loop that runs in a greenlet, for programs that gevent has patched.

There a "thread" is a greenlet of the only real thread, and asyncio remembers the running loop by
real thread. So while this loop waits for its sockets, and other greenlets run, it does not count as
running: each greenlet may have its own, and a program may run asyncio beside its clients.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from asyncio import events
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_TURN_S = 0.005
"""How long a loop that has more to do goes on before other greenlets run."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop for a thread, or for a greenlet where gevent stands in for threads."""
    if not is_patched():
        return asyncio.new_event_loop()
    return GreenletEventLoop(YieldingSelector(selectors.DefaultSelector()))


def is_patched() -> bool:
    """Whether gevent has taken the place of threads."""
    monkey: ModuleType | None = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


class GreenletEventLoop(asyncio.SelectorEventLoop):
    """Lets other greenlets run only while it waits in its selector, never in a callback.

    If it did, two loops could be in the middle of callbacks at the same time, and one would run on
    as the other. A pool of threads does: it waits for a new thread, here a greenlet, to begin.
    """

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call a function in a greenlet of its own, such as to look up an address."""
        import gevent

        future: asyncio.Future[T] = self.create_future()

        def end(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast(T, result))

        def call() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = func(*args)
            except Exception as raised:  # noqa: BLE001 - for whoever awaits it
                error = raised
            if not self.is_closed():
                self.call_soon_threadsafe(end, result, error)

        gevent.spawn(call)  # it begins when this loop waits
        return future


class YieldingSelector(selectors.BaseSelector):
    """Waits for sockets as gevent does, while its event loop does not count as running."""

    def __init__(self, inner: selectors.BaseSelector) -> None:
        self._inner = inner
        self._other: asyncio.AbstractEventLoop | None = None
        """The program's own loop, if that was running when this one woke."""
        self._woke_s = 0.0

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a socket."""
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """Watch a socket no more."""
        return self._inner.unregister(fileobj)

    def modify(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a socket for something else."""
        return self._inner.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let other greenlets run until a socket is ready.

        A loop that has more to do, and so would not wait, goes on for a while: otherwise each of
        its steps would wait for a step of every other loop of the process.
        """
        if timeout == 0 and time.monotonic() - self._woke_s < _TURN_S:
            return []
        own = events._get_running_loop()
        events._set_running_loop(self._other)
        try:
            return self._inner.select(timeout)
        finally:
            self._woke_s = time.monotonic()
            self._other = events._get_running_loop()
            events._set_running_loop(own)

    def close(self) -> None:
        """Watch nothing any more."""
        self._inner.close()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        """What is watched."""
        return self._inner.get_map()
