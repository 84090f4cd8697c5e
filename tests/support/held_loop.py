"""An event loop that measures how long each callback holds it, in CPU time of its thread."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import Any


class HeldLoop(asyncio.SelectorEventLoop):
    """An event loop that keeps the longest callback and its CPU time."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self.longest = ""

    def reset(self) -> None:
        """Forget the longest callback."""
        self.longest_s, self.longest = 0.0, ""

    def _measured(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            began = time.thread_time()
            try:
                return callback(*args)
            finally:
                took = time.thread_time() - began
                if took > self.longest_s:
                    self.longest_s, self.longest = (
                        took,
                        repr(getattr(callback, "__self__", callback)),
                    )

        return run

    def call_soon(  # type: ignore[override]  # the base's arguments are a TypeVarTuple
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon(self._measured(callback), *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]  # the base's arguments are a TypeVarTuple
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._measured(callback), *args, context=context)

    def call_at(  # type: ignore[override]  # the base's arguments are a TypeVarTuple
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._measured(callback), *args, context=context)

    def _add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        handle: asyncio.Handle = super()._add_reader(fd, self._measured(callback), *args)  # type: ignore[misc]
        return handle

    def _add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        handle: asyncio.Handle = super()._add_writer(fd, self._measured(callback), *args)  # type: ignore[misc]
        return handle
