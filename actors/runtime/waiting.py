"""Waits for conditions with change notifications, and for answers with a timeout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from raylog.actors.runtime.base import PeerTimeout, Runtime

Unsubscribe = Callable[[], None]
Subscribe = Callable[[Callable[[], None]], Unsubscribe]
"""Registers a callback for changes; returns the function that removes it."""


async def until(
    runtime: Runtime, changes: Subscribe, holds: Callable[[], bool], timeout_ms: float
) -> bool:
    """Wait until `holds()`, checked now and after each change; False after the timeout."""
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


def announced(start: Callable[[Callable[[], None]], object]) -> asyncio.Future[None]:
    """Call `start` with a callback; the future is done when the callback is called."""
    called: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def announce() -> None:
        if not called.done():
            called.set_result(None)

    start(announce)
    return called


@contextlib.asynccontextmanager
async def in_time(name: str, timeout_s: float) -> AsyncIterator[None]:
    """Limit the time to find and call an actor; raises PeerTimeout."""
    timeout = asyncio.timeout(timeout_s)
    try:
        async with timeout:
            yield
    except TimeoutError as late:
        if not timeout.expired():
            raise
        raise PeerTimeout(f"{name} did not answer within {timeout_s:g} s") from late
