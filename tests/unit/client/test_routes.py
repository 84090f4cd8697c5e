"""Attempts to reach brokers that nobody waits for any more."""

import asyncio
import gc
import warnings

from raylog.client.core import Core
from raylog.client.producer.routes import Routes
from raylog.client.settings import ClientSettings
from raylog.client.streams import AsyncIo


def test_an_attempt_that_is_ended_before_it_began_is_never_made() -> None:
    async def end_at_once() -> None:
        routes = Routes(Core(AsyncIo(), ClientSettings((("127.0.0.1", 1),))))
        assert not await routes.reach(-2)
        routes.close()
        await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(end_at_once())
        gc.collect()
    assert not [str(one.message) for one in seen if "never awaited" in str(one.message)]
