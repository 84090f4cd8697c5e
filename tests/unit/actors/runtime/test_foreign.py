"""A stranger's function in a thread that is left alone when it takes too long."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

import pytest

from raylog.actors.runtime.base import PeerTimeout
from raylog.actors.runtime.loop import LoopRuntime


def runtime() -> LoopRuntime:
    def broken(failure: BaseException) -> NoReturn:
        raise failure

    return LoopRuntime("test", broken)


def test_what_it_returns_or_raises_comes_back() -> None:
    async def scenario() -> None:
        one = runtime()
        assert await one.run_foreign(lambda a, b: a + b, 1, 2, timeout_ms=5_000) == 3
        with pytest.raises(ZeroDivisionError):
            await one.run_foreign(lambda: 1 // 0, timeout_ms=5_000)
        where = await one.run_foreign(threading.current_thread, timeout_ms=5_000)
        assert where.daemon

    asyncio.run(scenario())


def test_one_that_hangs_is_left_behind_and_nobody_waits_for_it() -> None:
    release = threading.Event()

    async def scenario() -> None:
        one = runtime()
        with pytest.raises(PeerTimeout, match="not done within 10 ms"):
            await one.run_foreign(release.wait, timeout_ms=10)
        one.end()
        assert not release.is_set()

    asyncio.run(scenario())
    threads = [one for one in threading.enumerate() if one.name == "raylog plug-in"]
    release.set()  # it comes back to a loop that is closed
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_one_that_comes_back_too_late_is_passed_over() -> None:
    release = threading.Event()

    async def scenario() -> None:
        one = runtime()
        with pytest.raises(PeerTimeout):
            await one.run_foreign(release.wait, timeout_ms=10)
        release.set()
        assert await one.run_foreign(lambda: "next", timeout_ms=5_000) == "next"

    asyncio.run(scenario())
