"""A thousand users in one process, each with a producer of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from raylog.testing import EmbeddedBroker

USERS = 1_000
SCENARIO = {
    "name": "many",
    "question": "Do a thousand clients in one process work?",
    "duration_s": 3,
    "warmup_s": 0,
    "topics": {"t": {"partitions": 3}},
    "users": [{"kind": "producer", "topic": "t", "rate": 300, "count": USERS}],
}


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
def test_a_thousand_users() -> None:
    with EmbeddedBroker() as broker:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.support.load_run", broker.bootstrap),
                json.dumps(SCENARIO),
                str(2 * USERS),
            ],
            capture_output=True,
            text=True,
            timeout=230,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["users"] == USERS
    assert report["exceptions"] == []
    produced = report["operations"]["produce"]
    assert produced["failures"] == 0, produced
    assert produced["requests"] >= 2 * USERS, produced
    assert report["audit"]["findings"] == []
    assert report["audit"]["found"] == produced["requests"]
