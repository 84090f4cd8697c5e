"""Waiting for a condition that changes are announced for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raylog.actors.runtime.base import Runtime

Unsubscribe = Callable[[], None]
Subscribe = Callable[[Callable[[], None]], Unsubscribe]
"""Has a callback run after each change; returns what takes it off again."""


async def until(
    runtime: Runtime, changes: Subscribe, holds: Callable[[], bool], timeout_ms: float
) -> bool:
    """Wait until `holds()`, looked at now and after each change; False if that took too long."""
    if holds():
        return True
    woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def look() -> None:
        if not woken.done() and holds():
            woken.set_result(True)

    def give_up() -> None:
        if not woken.done():
            woken.set_result(False)

    unsubscribe = changes(look)
    timer = runtime.call_later(timeout_ms, give_up)
    try:
        return await woken
    finally:
        timer.cancel()
        unsubscribe()
