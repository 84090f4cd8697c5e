"""Java clients whose operations are recorded; the history includes confluent-kafka's."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checker.workload import Plan, Workload
from tests.conformance.conftest import Target
from tests.conformance.tools import has_groups, java_tools
from tests.support.ray_clusters import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
START_S = 180.0
"""For a Java process to start and its clients to find their group, on a machine with much to do."""
EXPECTED = {
    ("send", "java-produce-0"),
    ("send", "java-produce-1"),
    ("assign", "java-consume-0"),
    ("poll", "java-consume-0"),
    ("rebalance", "java-member-0"),
    ("poll", "java-member-0"),
}
PLAN = Plan(
    producers=1,
    consumers=1,
    members=0,
    partitions=2,
    records_per_s=50,
    java_producers=2,
    java_consumers=1,
    java_members=1,
)


def rows(history: Path) -> list[list[Any]]:
    """Whole lines that are there by now."""
    lines = history.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.long
def test_one_history_covers_both_clients(target: Target, tmp_path: Path) -> None:
    java_tools()  # skips the test where there is no Java
    if not has_groups(target.bootstrap):
        pytest.skip("this broker serves no groups")
    history = tmp_path / "history-java.jsonl"

    def all_work() -> bool:
        seen = {(row[0], row[1].split(".")[0]) for row in rows(history)}
        return seen >= EXPECTED

    with Workload(target.bootstrap, tmp_path, PLAN) as workload:
        wait_until(all_work, "every Java client to have done its work", START_S)
    assert workload.failures == []
    assert workload.verdict.valid
    found = rows(history)
    assert {row[7] for row in found if row[0] == "send"} == {"ok"}
    read = {value for row in found if row[0] == "poll" for part in row[4] for value in part[3]}
    assert {value.split(":")[0] for value in read} >= {"produce-0", "java-produce-0"}
