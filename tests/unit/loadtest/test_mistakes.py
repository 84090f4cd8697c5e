"""Bugs of a load test end its run as failed; they happen in the lead process."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from raylog.client import Admin
from raylog.loadtest import workers
from raylog.loadtest.jobs import Job
from raylog.loadtest.process_supervisor import conduct
from raylog.loadtest.results import Result
from raylog.loadtest.scenario import checked

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed"),
]
SCENARIO = {
    "name": "mistaken",
    "question": "Is a bug seen?",
    "duration_s": 60,
    "warmup_s": 0,
    "topics": {"t": {"partitions": 1}},
    "users": [
        {"kind": "producer", "topic": "t", "rate": 100},
        {"kind": "group", "topic": "t", "group": "g"},
    ],
}
SCRIPT = """
from raylog.loadtest import load_process
from raylog.loadtest.{module} import {name}

def mistaken(self, *_):
    raise ValueError("a bug")

{name}.{method} = mistaken
load_process.main()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "name", "method", "failure"),
    [
        (
            *("users.grouped", "GroupUser", "step"),
            "worker local: a user ended with ValueError: a bug",
        ),
        (*("lags", "LagWatch", "look"), "reading the lag failed: ValueError: a bug"),
        (*("audit", "RunAudit", "add"), "reading records back failed: ValueError: a bug"),
    ],
)
def test_a_bug_ends_the_run(
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    name: str,
    method: str,
    failure: str,
) -> None:
    script = SCRIPT.format(module=module, name=name, method=method)
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-c", script))
    audit = "during" if name == "RunAudit" else "after"
    found = run(bootstrap, name, audit=audit)
    assert found.failure == failure
    assert not found.passed
    assert found.duration_s < 30, "it ended at once"
    assert found.audit.findings == []
    with Admin(bootstrap) as admin:
        assert [one for one in admin.metadata().topics if one.endswith(found.run)] == []


LAST_KNOWN = """
from raylog.client import ClientError
from raylog.loadtest import load_process, run
from raylog.loadtest.lags import LagWatch

known = []

def first_only(self, admin, group):
    if known:
        raise ClientError("its coordinator is away")
    known.append(group)
    return 0

LagWatch._lag = first_only
run.LAG_LAST_S = run.LAG_RETRY_S = 0.1
load_process.main()
"""


@pytest.mark.long
def test_a_lag_that_is_not_known_at_the_end_does_not_hold(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-c", LAST_KNOWN))
    found = run(bootstrap, "lag", duration_s=4, thresholds=[{"lag_records": 1_000_000}])
    (verdict,) = found.verdicts
    assert (verdict.found, verdict.held) == (None, False)
    assert found.failure is None
    assert found.notes == ["the final lag of group g-lag is not known: its coordinator is away"]


def run(bootstrap: str, name: str, **changes: object) -> Result:
    job = Job(
        scenario=checked({**SCENARIO, **changes}, "a test"),
        run=name,
        bootstrap=bootstrap,
        security={},
        target="",
        workers=0,
    )
    return conduct(job, None, None, lambda _: None)
