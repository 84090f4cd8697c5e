"""A load test in one process: a scenario's users for some seconds, then the audit.

It prints what it saw as JSON. A test runs it with the bootstrap servers, a scenario as JSON, and
optionally a least number of acknowledged records. Importing locust makes gevent patch the standard
library.
"""

from __future__ import annotations

import gevent.monkey

gevent.monkey.patch_all()

import json  # noqa: E402  # gevent comes first
import sys  # noqa: E402
import time  # noqa: E402

import gevent  # noqa: E402
from locust.env import Environment  # noqa: E402

from raylog.client import Admin, NewTopic  # noqa: E402
from raylog.loadtest.audit import RunAudit  # noqa: E402
from raylog.loadtest.histograms import added_up  # noqa: E402
from raylog.loadtest.local import Local  # noqa: E402
from raylog.loadtest.operations import PRODUCE  # noqa: E402
from raylog.loadtest.results import Operation  # noqa: E402
from raylog.loadtest.scenario import Scenario  # noqa: E402
from raylog.loadtest.users import user_classes  # noqa: E402

STOP_TIMEOUT_S = 60


def main(bootstrap: str, scenario: Scenario, requests: int) -> None:
    """Run the scenario for its duration, and until `requests` records are acknowledged."""
    local = Local(scenario, f"run{time.time_ns()}", bootstrap)
    topics = [local.topic(name) for name in scenario.topics]
    with Admin(bootstrap) as admin:
        admin.create_topics(
            [
                NewTopic(local.topic(name), topic.partitions, configs=topic.settings)
                for name, topic in scenario.topics.items()
            ]
        )
        environment = Environment(user_classes=user_classes(local), stop_timeout=STOP_TIMEOUT_S)
        runner = environment.create_local_runner()
        local.recorder.locust = environment.stats
        audit = RunAudit(local.client_settings({}), local.run, topics)
        began_s, cpu_s = time.monotonic(), time.process_time()
        local.started_us = local.clock.now_us()
        local.load.change(local.started_us, 1.0)
        users = sum(entry.count for entry in scenario.users)
        runner.start(users, spawn_rate=users)
        seen: list[Operation] = []
        until_s = began_s + scenario.duration_s
        while time.monotonic() < until_s or done(seen) < requests:
            gevent.sleep(0.5)
            local.generator.sample(local.at_s)
            seen += local.recorder.take()
            if scenario.audit == "during":
                audit.add(local.ledger.take())
                audit.step(0)
                audit.settle()
                audit.look_at_ends()
        cpu_s = time.process_time() - cpu_s
        alive = runner.user_count
        local.load.change(local.clock.now_us(), 0.0)
        runner.quit()
        seen += local.recorder.take()
        audit.add(local.ledger.take())
        audit.finish()
        found = audit.result(local.findings.result())
        audit.close()
        admin.delete_topics(topics)
    total = environment.stats.total
    report = {
        "operations": summary(seen),
        "audit": found.model_dump(mode="json"),
        "users": alive,
        "cpu_s": cpu_s,
        "exceptions": [str(one["msg"]) for one in runner.exceptions.values()],
        "locust": [total.num_requests, total.num_failures],
        "late_ms": local.generator_result().late_ms,
    }
    sys.stdout.write(json.dumps(report) + "\n")


def done(seen: list[Operation]) -> int:
    """Return how many records are acknowledged."""
    produced = [interval for one in seen if one.name == PRODUCE for interval in one.intervals]
    return sum(interval.requests for interval in produced)


def summary(seen: list[Operation]) -> dict[str, dict[str, object]]:
    """Return the sums of all parts of each operation."""
    parts: dict[str, list[Operation]] = {}
    for one in seen:
        parts.setdefault(one.name, []).append(one)
    return {name: _added_up(operations) for name, operations in parts.items()}


def _added_up(operations: list[Operation]) -> dict[str, object]:
    intervals = [interval for one in operations for interval in one.intervals]
    latencies = added_up(interval.latencies for interval in intervals)
    return {
        "requests": sum(interval.requests for interval in intervals),
        "failures": sum(interval.failures for interval in intervals),
        "errors": [text for one in operations for text in one.errors],
        "ms": {
            str(percentile): latencies.get_value_at_percentile(percentile) / 1_000
            for percentile in (50, 99, 99.9, 100)
        },
    }


if __name__ == "__main__":
    least = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    main(sys.argv[1], Scenario.model_validate_json(sys.argv[2]), least)
