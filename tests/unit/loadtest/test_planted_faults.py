"""Brokers with one kind of wrong answer each: the load test reports it, and nothing else.

The load runs in its own process, because gevent patches it. Each fault is at a fixed place.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from raylog.testing import EmbeddedBroker
from tests.worlds.servers.lying_broker import Lies, LyingBroker, Place

SECONDS = 3
RATE = 5_000
UNSENT = "was not sent by the end of the run"
PLACE = Place(partition=1, offset=2_000)
OTHER_PLACE = Place(partition=0, offset=2_000)
SCENARIO: dict[str, Any] = {
    "name": "planted",
    "question": "Is a wrong answer reported?",
    "duration_s": SECONDS,
    "warmup_s": 0,
    "topics": {"t": {"partitions": 2}},
    "users": [
        {"kind": "producer", "topic": "t", "rate": RATE, "count": 2},
        {"kind": "consumer", "topic": "t"},
    ],
}
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


def run(bootstrap: str, *, expects_failures: bool = False, **changes: object) -> dict[str, Any]:
    """A load test's report."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.support.load_run", bootstrap),
            json.dumps({**SCENARIO, **changes}),
        ],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["exceptions"] == []
    produced = report["operations"]["produce"]
    assert expects_failures or produced["failures"] == 0, produced
    return report


def findings(report: dict[str, Any]) -> dict[str, int]:
    return {one["kind"]: one["count"] for one in report["audit"]["findings"]}


@pytest.mark.long
def test_an_honest_broker_is_blamed_for_nothing(broker: str) -> None:
    with LyingBroker(broker, Lies()) as proxy:
        report = run(proxy.bootstrap, audit="during")
    assert findings(report) == {}, report["audit"]
    assert report["audit"]["acknowledged"] == report["audit"]["found"]
    assert report["audit"]["found"] == report["operations"]["produce"]["requests"] > PLACE.offset
    assert report["locust"][1] == 0


def test_a_broker_that_loses_a_record(broker: str) -> None:
    with LyingBroker(broker, Lies(loses=PLACE)) as proxy:
        report = run(proxy.bootstrap, audit="during")
    assert findings(report) == {"lost": 1}, report["audit"]
    (finding,) = report["audit"]["findings"]
    assert f"acknowledged at offset {PLACE.offset}" in finding["examples"][0]


@pytest.mark.long
def test_a_broker_that_doubles_a_record(broker: str) -> None:
    with LyingBroker(broker, Lies(doubles=PLACE)) as proxy:
        report = run(proxy.bootstrap)
    found = findings(report)
    assert found.pop("doubled") == 1
    assert found in ({}, {"reordered": 1})  # a reader cannot tell, having forgotten the first one


@pytest.mark.long
def test_a_broker_that_changes_the_order(broker: str) -> None:
    with LyingBroker(broker, Lies(swaps=PLACE)) as proxy:
        report = run(proxy.bootstrap)
    assert findings(report) == {"reordered": 1, "wrong-offset": 2}, report["audit"]


@pytest.mark.long
def test_a_broker_that_changes_a_byte_and_acknowledges_wrong_offsets(broker: str) -> None:
    with LyingBroker(broker, Lies(tears=PLACE, misplaces=OTHER_PLACE)) as proxy:
        report = run(proxy.bootstrap)
    found = findings(report)
    assert (found.pop("torn"), found.pop("lost")) == (1, 1)
    assert found.keys() == {"wrong-offset"}, report["audit"]
    examples = report["audit"]["findings"][-1]["examples"]
    assert "was acknowledged at" in examples[0]


@pytest.mark.long
def test_a_broker_whose_ends_move_back(broker: str) -> None:
    with LyingBroker(broker, Lies(ends_too_low=5)) as proxy:
        report = run(
            proxy.bootstrap,
            users=[*SCENARIO["users"], {"kind": "admin", "rate": 20}],
            audit="during",
        )
    assert proxy.lies.count == 1
    assert findings(report).keys() == {"wrong-offset"}, report["audit"]
    assert "the end went back" in report["audit"]["findings"][0]["examples"][0]


@pytest.mark.long
def test_a_broker_that_is_late_once(broker: str) -> None:
    """One stall of 500 ms is seen by every record that was due meanwhile."""
    lies = Lies(late_ms=500, late_after_s=1.5)
    with LyingBroker(broker, lies) as proxy:
        report = run(proxy.bootstrap)
    assert proxy.lies.count > 0
    assert findings(report) == {}
    assert report["operations"]["produce"]["ms"]["99.9"] >= 450
    assert report["operations"]["end-to-end"]["ms"]["50"] < 450


@pytest.mark.long
def test_requests_due_while_a_user_is_blocked_until_the_end_have_failed(broker: str) -> None:
    """A producer whose buffer is full cannot send: what was due meanwhile counts all the same."""
    client = {"buffer.memory": 32_768, "batch.size": 16_384, "max.block.ms": 20_000}
    users = [{"kind": "producer", "topic": "t", "rate": RATE, "client": client}]
    with LyingBroker(broker, Lies(late_ms=6_000, late_after_s=1)) as proxy:
        report = run(proxy.bootstrap, expects_failures=True, users=users)
    found = report["operations"]["produce"]
    assert findings(report) == {}
    assert UNSENT in found["errors"]
    assert found["requests"] + found["failures"] == pytest.approx(SECONDS * RATE, rel=0.25)
    assert found["failures"] > RATE
