"""A third-party function in a thread that is abandoned when it takes too long."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

import pytest

from raylog.actors.runtime.base import PeerTimeout
from raylog.actors.runtime.loop import LoopRuntime
from tests.worlds.decorators import in_loop


def runtime() -> LoopRuntime:
    def broken(failure: BaseException) -> NoReturn:
        raise failure

    return LoopRuntime("test", broken)


@in_loop
async def test_foreign_call_returns_the_result_or_raises_the_error() -> None:
    one = runtime()
    assert await one.run_foreign(lambda a, b: a + b, 1, 2, timeout_ms=5_000) == 3
    with pytest.raises(ZeroDivisionError):
        await one.run_foreign(lambda: 1 // 0, timeout_ms=5_000)
    where = await one.run_foreign(threading.current_thread, timeout_ms=5_000)
    assert where.daemon


def test_hanging_foreign_call_does_not_block_the_end() -> None:
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


def test_late_result_of_a_foreign_call_is_ignored() -> None:
    release = threading.Event()

    async def scenario() -> None:
        one = runtime()
        with pytest.raises(PeerTimeout):
            await one.run_foreign(release.wait, timeout_ms=10)
        release.set()
        assert await one.run_foreign(lambda: "next", timeout_ms=5_000) == "next"

    asyncio.run(scenario())
