"""The blocking clients under gevent: 1,000 users of Locust share one producer."""

import asyncio
import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from raylog.client.greenlets import YieldingSelector, is_patched, new_event_loop
from raylog.testing import EmbeddedBroker

USERS = 1_000
SECONDS = 6


@pytest.mark.timeout(120)
def test_a_load_test_of_a_thousand_greenlets() -> None:
    """They wait for acknowledgements at the same time, and no greenlet holds up the others."""
    if find_spec("locust") is None:  # not imported here: it would patch this process
        pytest.skip("locust is not installed")
    program = (sys.executable, "-m", "tests.support.greenlet_users")
    with EmbeddedBroker() as broker:
        done = subprocess.run(
            [*program, broker.bootstrap, str(USERS), str(SECONDS)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["users"] == USERS
    assert seen["requests"] >= 2 * USERS, seen
    assert seen["failures"] == seen["exceptions"] == seen["missing"] == 0, seen
    assert seen["beside"] == "ran"
    assert seen["gap_ms"] < 2_000, seen


def test_without_gevent_loops_are_asyncio_s_own() -> None:
    assert not is_patched()
    loop = new_event_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    assert not isinstance(getattr(loop, "_selector", None), YieldingSelector)
    loop.close()
