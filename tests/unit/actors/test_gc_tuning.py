"""Python's garbage collector skips the code that a process has loaded."""

from __future__ import annotations

import asyncio
import gc

from raylog.actors.runtime.base import ActorRef
from raylog.actors.runtime.ray import Host


def test_a_process_leaves_out_the_code_that_it_has_loaded() -> None:
    """Full passes of the collector took 50 ms in a process without any data."""

    async def begun() -> ActorRef:
        return ActorRef("c/replica/0/1", "replica", "a", 1, "n", "i", "1")

    async def load() -> None:
        await Host._load(asyncio.create_task(begun()), ("gateway",))

    gc.unfreeze()
    asyncio.run(load())
    assert gc.get_freeze_count() > 10_000
