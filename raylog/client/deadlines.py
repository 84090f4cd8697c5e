"""When the operation that is under way must end, for whatever waits inside it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NEVER_MS = float("inf")
_ends: ContextVar[tuple[float, object]] = ContextVar("_ends", default=(_NEVER_MS, None))
"""When an operation must end, on the clock of `Io`, and the task whose operation it is."""


def end_ms() -> float:
    """When the operation that is under way must end: it waits no longer.

    A task inherits the context of whoever starts it, but not its operation.
    """
    ends_ms, task = _ends.get()
    return ends_ms if ends_ms == _NEVER_MS or task is _task() else _NEVER_MS


@contextmanager
def until(deadline_ms: float) -> Iterator[None]:
    """Let nothing that is awaited inside wait for longer."""
    token = _ends.set((min(deadline_ms, end_ms()), _task()))
    try:
        yield
    finally:
        _ends.reset(token)


def _task() -> object:
    """The task that runs; None outside of asyncio."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
