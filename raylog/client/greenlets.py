"""An asyncio event loop that runs in a greenlet, for programs patched by gevent.

In such a program a "thread" is a greenlet of the only real thread, and asyncio records the running
loop per real thread. So while this loop waits for its sockets and other greenlets run, it is not
registered as running. Each greenlet can then have its own loop, and a program can use asyncio
beside its clients.
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
"""How long a busy loop runs before it yields to other greenlets."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for a thread, or for a greenlet if gevent replaces threads."""
    if not is_patched():
        return asyncio.new_event_loop()
    return GreenletEventLoop(YieldingSelector(selectors.DefaultSelector()))


def is_patched() -> bool:
    """Whether gevent has replaced threads."""
    monkey: ModuleType | None = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


class GreenletEventLoop(asyncio.SelectorEventLoop):
    """Yields to other greenlets only while it waits in its selector, never in a callback.

    Otherwise two loops could both be inside callbacks, and one would continue while the other is
    registered as running. This excludes a thread pool: starting a thread, here a greenlet, yields.
    """

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call a function in its own greenlet, for example to resolve an address."""
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
            except Exception as raised:  # noqa: BLE001 - passed to the awaiter
                error = raised
            if not self.is_closed():
                self.call_soon_threadsafe(end, result, error)

        gevent.spawn(call)  # it starts when this loop waits
        return future


class YieldingSelector(selectors.BaseSelector):
    """Waits for sockets by gevent; its event loop is not registered as running meanwhile."""

    def __init__(self, inner: selectors.BaseSelector) -> None:
        self._inner = inner
        self._other: asyncio.AbstractEventLoop | None = None
        """The program's own loop, if it was running when this one woke up."""
        self._woke_s = 0.0

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a socket."""
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """Stop watching a socket."""
        return self._inner.unregister(fileobj)

    def modify(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Change the events watched on a socket."""
        return self._inner.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Yield to other greenlets until a socket is ready.

        A loop with callbacks ready would not wait, so it goes on for a while without yielding:
        otherwise each of its iterations would wait for an iteration of every other loop in the
        process.
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
        """Stop watching all sockets."""
        self._inner.close()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        """Return the watched sockets."""
        return self._inner.get_map()
