"""What readers report as received. They run in a process of their own, as Locust patches it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

SCRIPT = """
import gevent.monkey

gevent.monkey.patch_all()

import json
import sys

import numpy as np
from locust.env import Environment

from raylog.client import ConsumedRecords, Record
from raylog.loadtest.local import Local
from raylog.loadtest.missing_records import RecordRuns
from raylog.loadtest.records import encode
from raylog.loadtest.scenario import checked
from raylog.loadtest.users import user_classes

scenario = checked(
    {
        "name": "one", "question": "?", "duration_s": 100, "topics": {"t": {}},
        "users": [{"kind": "catch-up", "topic": "t"}, {"kind": "consumer", "topic": "t"}],
    },
    "a test",
)
local = Local(scenario, "run", "")


def fetched(first, end):
    values = [encode(local.run_number, 0, at, 0, 64) for at in range(first, end)]
    records = [Record(at, 0, None, value, ()) for at, value in enumerate(values, first)]
    return ConsumedRecords("t-run", 0, records, 1_000)


for kind in user_classes(local):
    user = kind(Environment(user_classes=[kind]))
    user.on_start()
    for first, end in ((0, 100), (100, 150), (900, 1_000)):
        assert user.take([fetched(first, end)]) == end - first
    user.forget_order(list(user._orders))
    user.take([fetched(800, 950)])

written = RecordRuns()
written.add(np.arange(1_000), np.arange(1_000) // 100)
received = {" ".join(map(str, key)): written.missing_in(of) for key, of in local.received.items()}
print(json.dumps([received, [one.kind for one in local.findings.result()]]))
"""


@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
def test_readers_know_which_records_they_have_received() -> None:
    """Those that read everything over and over keep no account of it."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    received, findings = json.loads(done.stdout)
    missing = {"1": 50} | {str(second): 100 for second in range(2, 8)}
    assert received == {"users 1 t-run 0": missing}
    assert findings == []
