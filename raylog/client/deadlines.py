"""The deadline of the current operation, for everything that waits inside it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NEVER_MS = float("inf")
_ends: ContextVar[tuple[float, object]] = ContextVar("_ends", default=(_NEVER_MS, None))
"""Deadline of an operation, on the clock of `Io`, and the task that runs the operation."""


def end_ms() -> float:
    """Return the deadline of the current operation; nothing in it waits any longer.

    A task inherits the context of the task that starts it, but not its operation.
    """
    ends_ms, task = _ends.get()
    return ends_ms if ends_ms == _NEVER_MS or task is _task() else _NEVER_MS


@contextmanager
def until(deadline_ms: float) -> Iterator[None]:
    """Bound all waiting inside the `with` block by a deadline."""
    token = _ends.set((min(deadline_ms, end_ms()), _task()))
    try:
        yield
    finally:
        _ends.reset(token)


def _task() -> object:
    """Return the running task; None outside asyncio."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
