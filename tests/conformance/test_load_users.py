"""All kinds of users of a load test, briefly: each reports, nothing fails, no answer is wrong."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conformance.conftest import EXTERNAL, Target

SCENARIO = {
    "name": "all-kinds",
    "question": "Does everybody get an answer?",
    "duration_s": 16,
    "warmup_s": 0,
    "audit": "during",
    "topics": {"plain": {"partitions": 4}, "exact": {"partitions": 2}},
    "users": [
        {
            "kind": "producer",
            "topic": "plain",
            "rate": 500,
            "count": 2,
            "keys": {"distribution": "zipf", "count": 100},
            "size": {"distribution": "lognormal", "median": 200},
            "client": {"compression.type": "lz4"},
        },
        {"kind": "producer", "topic": "plain", "rate": 200, "client": {"acks": "1"}},
        {"kind": "consumer", "topic": "plain", "count": 2},
        {
            "kind": "group",
            "topic": "plain",
            "group": "classic",
            "count": 2,
            "stays_s": 6,
            "client": {"partition.assignment.strategy": "cooperative-sticky"},
        },
        {"kind": "group", "topic": "plain", "group": "static", "static": True, "count": 2},
        {
            "kind": "group",
            "topic": "exact",
            "group": "new",
            "protocol": "consumer",
            "count": 2,
            "stays_s": 6,
            "processing_ms": 0.1,
        },
        {"kind": "transactional", "topic": "exact", "rate": 200, "count": 2, "records": 50},
        {"kind": "catch-up", "topic": "exact", "starts_s": 1},
        {"kind": "admin", "rate": 2},
        {"kind": "connection-churn", "rate": 1},
    ],
}
OPERATIONS = {
    *("produce", "end-to-end", "transaction", "abort", "catch-up", "catch-up-poll"),
    *("join", "commit", "connect"),
    *("create-topic", "describe-topic", "list-offsets", "list-groups", "delete-topic"),
}


@pytest.mark.long
@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
def test_all_kinds_of_users(targets: Callable[[str], Target]) -> None:
    target = targets("external" if EXTERNAL else "raylog-1")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.support.load_run", target.bootstrap),
            json.dumps(SCENARIO),
        ],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    seen = report["operations"]
    assert report["exceptions"] == [], done.stderr[-3000:]
    assert OPERATIONS - seen.keys() == set(), seen
    assert {name: one["errors"] for name, one in seen.items() if one["failures"]} == {}
    assert [name for name in OPERATIONS if not seen[name]["requests"]] == []
    assert report["audit"]["findings"] == []
    assert report["audit"]["found"] >= report["audit"]["acknowledged"] > 0
    assert report["locust"] == [sum(one["requests"] for one in seen.values()), 0]
