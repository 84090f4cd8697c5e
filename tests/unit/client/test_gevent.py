"""The blocking clients under gevent: 1,000 users of Locust share one producer."""

import asyncio
import json
import selectors
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from raylog.client.greenlets import YieldingSelector, is_patched, new_event_loop
from raylog.testing import EmbeddedBroker

USERS = 1_000
SECONDS = 6


@pytest.mark.long
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


_AFTER_A_RESTART = """
import gevent.monkey
gevent.monkey.patch_all()
import sys
from gevent.socket import wait_read
from raylog.client import Admin, NewTopic
with Admin(sys.argv[1]) as admin:
    admin.create_topics([NewTopic("made", 1)])
    print("made", flush=True)
    wait_read(sys.stdin.fileno())
    gevent.sleep(0.2)  # a connection that was in use just now is trusted
    admin.delete_topics(["made"])
"""


@pytest.mark.timeout(120)
@pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed")
def test_an_admin_notices_that_the_broker_was_started_anew(tmp_path: Path) -> None:
    """Both its connections have ended, and a deletion is not sent twice."""
    with EmbeddedBroker(data=tmp_path) as broker:
        bootstrap = broker.bootstrap
        program = subprocess.Popen(
            [sys.executable, "-c", _AFTER_A_RESTART, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "made\n"
    with EmbeddedBroker(data=tmp_path, port=int(bootstrap.rpartition(":")[2])):
        _, said = program.communicate("go on\n", timeout=60)
    assert program.returncode == 0, said


_BY_NAME = """
import gevent.monkey
gevent.monkey.patch_all()
import sys
import gevent
from raylog.client import Admin, NewTopic, Producer
bootstrap = "localhost:" + sys.argv[1]
with Admin(bootstrap) as admin:
    admin.create_topics([NewTopic("made", 1)])
def send():
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send_and_wait("made", b"value")
for sender in gevent.joinall([gevent.spawn(send) for _ in range(20)]):
    sender.get()
"""


@pytest.mark.timeout(120)
@pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed")
def test_clients_look_up_the_same_host_at_the_same_time() -> None:
    """Their loops share a thread, and none goes on as another."""
    with EmbeddedBroker() as broker:
        port = broker.bootstrap.rpartition(":")[2]
        done = subprocess.run(
            [sys.executable, "-c", _BY_NAME, port],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_gevent_loops_are_asyncio_s_own() -> None:
    assert not is_patched()
    loop = new_event_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    assert not isinstance(getattr(loop, "_selector", None), YieldingSelector)
    loop.close()


def test_a_loop_with_more_to_do_lets_others_run_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not at each step, or 24 loops in a process would take 24 times as long for a request."""
    now_s = 100.0
    turns: list[float | None] = []

    class Inner(selectors.SelectSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            turns.append(timeout)
            return []

    monkeypatch.setattr("raylog.client.greenlets.time.monotonic", lambda: now_s)
    selector = YieldingSelector(Inner())
    selector.select(1.5)
    for _ in range(3):
        selector.select(0)
    assert turns == [1.5]
    now_s += 0.006
    selector.select(0)
    selector.select(0)
    assert turns == [1.5, 0]
    selector.select(None)
    assert turns == [1.5, 0, None], "a loop with nothing to do waits"
