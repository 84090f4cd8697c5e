"""Waiting for a condition that changes are announced for, and for answers in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from raylog.actors.runtime.base import PeerTimeout, Runtime

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


@contextlib.asynccontextmanager
async def in_time(name: str, timeout_s: float) -> AsyncIterator[None]:
    """Give an actor a time to be found and to answer in; raises PeerTimeout."""
    timeout = asyncio.timeout(timeout_s)
    try:
        async with timeout:
            yield
    except TimeoutError as late:
        if not timeout.expired():
            raise
        raise PeerTimeout(f"{name} did not answer within {timeout_s:g} s") from late
