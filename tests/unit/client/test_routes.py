"""Attempts to reach brokers that are not needed any more."""

import asyncio
import gc
import warnings

import pytest

from raylog.client.core import Core
from raylog.client.errors import NotConnected
from raylog.client.io import run_blocking
from raylog.client.routes import Routes
from raylog.client.settings import ClientSettings
from raylog.client.streams import AsyncIo
from tests.worlds.client.cluster import FakeCluster, core_of


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


def test_a_failure_that_nobody_asked_for_is_forgotten() -> None:
    cluster = FakeCluster(2)
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    routes = Routes(core)
    cluster.down.add(2)
    run_blocking(routes._connect(2))
    with pytest.raises(NotConnected):
        run_blocking(routes.reach(2))
    run_blocking(routes._connect(2))
    cluster.down.clear()
    run_blocking(core.io.pause(60_000))
    assert run_blocking(routes.reach(2))


def test_a_connection_that_was_idle_for_long_is_no_route() -> None:
    """It would be made anew by whoever sends on it, who would wait for that."""
    core = core_of(FakeCluster(2))
    run_blocking(core.refresh([]))
    assert run_blocking(Routes(core).reach(2))
    run_blocking(core.io.pause(core.settings.connections_max_idle_ms - 10))
    assert core.is_connected(2)
    run_blocking(core.io.pause(20))
    assert not core.is_connected(2)
    assert run_blocking(Routes(core).reach(2))
