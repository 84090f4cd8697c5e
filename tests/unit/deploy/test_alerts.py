"""Alert rules, played by Prometheus's own tool: each fires when it should, and only then."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.prometheus import families_in, promtool

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/alerts.yaml"
RUNBOOK = ROOT / "docs/alerts.md"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}


class Case(NamedTuple):
    """Series, a value a minute, for an hour, with which an alert fires at its end, or does not."""

    fires: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str] = {}  # noqa: RUF012  # of a tuple, which is not changed
    """Of the alert that fires."""


def histogram(name: str, labels: str, fast: str, slow: str) -> dict[str, str]:
    """Values of which the first are below 0.1, and the others between 1 and 10."""
    return {
        f'{name}_bucket{{{labels},le="0.1"}}': fast,
        f'{name}_bucket{{{labels},le="1.0"}}': fast,
        f'{name}_bucket{{{labels},le="10.0"}}': slow,
        f'{name}_bucket{{{labels},le="+Inf"}}': slow,
    }


SLOW, FAST = ("0+90x60", "0+100x60"), ("0+100x60", "0+100x60")
LOOP = 'broker="1",role="gateway",process="gateway-0"'
AT_1 = {"broker": "1"}
LAG = 'raylog_group_lag_records{broker="0",group="g",topic="t"}'
ERRORS = 'raylog_errors_total{broker="1",api="Fetch",code="UNKNOWN_SERVER_ERROR"}'
LOADING = 'raylog_coordinator_partitions{broker="1",role="group",state="loading"}'
FILES = '{broker="1",process="replica-0"}'
CASES = {
    "RaylogBrokerDown": Case(
        {'up{job="raylog",instance="a:1"}': "1+0x50 0+0x10"},
        {'up{job="raylog",instance="a:1"}': "1+0x58 0 1", 'up{job="other"}': "0+0x60"},
        {"job": "raylog", "instance": "a:1"},
    ),
    "RaylogBrokerFenced": Case(
        {'raylog_brokers{state="fenced"}': "1+0x60"},
        {'raylog_brokers{state="fenced"}': "0+0x60", 'raylog_brokers{state="active"}': "3+0x60"},
    ),
    "RaylogNoController": Case(
        {'raylog_active_controllers{broker="0"}': "0+0x60"},
        {
            'raylog_active_controllers{broker="0"}': "1+0x60",
            'raylog_active_controllers{broker="1"}': "0+0x60",
        },
    ),
    "RaylogSeveralControllers": Case(
        {f'raylog_active_controllers{{broker="{one}"}}': "1+0x60" for one in "01"},
        {'raylog_active_controllers{broker="0"}': "1+0x60"},
    ),
    "RaylogOfflinePartitions": Case(
        {"raylog_offline_partitions": "0+0x50 2+0x10"}, {"raylog_offline_partitions": "0+0x60"}
    ),
    "RaylogUnderMinIsr": Case(
        {f'raylog_under_min_isr_partitions{{broker="{one}"}}': one + "+0x60" for one in "01"},
        {'raylog_under_min_isr_partitions{broker="0"}': "0+0x60"},
    ),
    "RaylogUnderReplicated": Case(
        {"raylog_out_of_sync_partitions": "0+0x40 3+0x20"},
        {"raylog_out_of_sync_partitions": "0+0x55 3+0x5"},  # a broker restarts
    ),
    "RaylogUncleanElection": Case(
        {"raylog_unclean_elections_total": "0+0x55 1+0x5"},
        {"raylog_unclean_elections_total": "0+0x10 1+0x50"},  # long ago
    ),
    "RaylogLogDirFailed": Case(
        {'raylog_offline_replicas{broker="1"}': "4+0x60"},
        {'raylog_offline_replicas{broker="1"}': "0+0x60"},
        AT_1,
    ),
    "RaylogMetadataVoterFailed": Case(
        {'raylog_metadata_voter_failed{broker="1"}': "1+0x60"},
        {'raylog_metadata_voter_failed{broker="1"}': "0+0x60"},
        AT_1,
    ),
    "RaylogDiskAlmostFull": Case(
        {
            'raylog_disk_usable_bytes{broker="1"}': "9+0x60",
            'raylog_disk_size_bytes{broker="1"}': "100+0x60",
        },
        {
            'raylog_disk_usable_bytes{broker="1"}': "20+0x60",
            'raylog_disk_size_bytes{broker="1"}': "100+0x60",
        },
        AT_1,
    ),
    "RaylogDiskFullSoon": Case(
        {
            'raylog_disk_usable_bytes{broker="1"}': "1000-1x60",  # in 15 hours
            'raylog_disk_size_bytes{broker="1"}': "9000+0x60",
        },
        {
            'raylog_disk_usable_bytes{broker="1"}': "8000-1x60",  # in five days
            'raylog_disk_size_bytes{broker="1"}': "90000+0x60",
            'raylog_disk_usable_bytes{broker="2"}': "1000-1x60",  # a moment's change
            'raylog_disk_size_bytes{broker="2"}': "1001+0x60",
        },
        AT_1,
    ),
    "RaylogEventLoopLate": Case(
        histogram("raylog_event_loop_lag_seconds", LOOP, *SLOW),
        histogram("raylog_event_loop_lag_seconds", LOOP, *FAST),
        {"broker": "1", "process": "gateway-0"},
    ),
    "RaylogProduceSlow": Case(
        histogram("raylog_request_seconds", 'broker="1",api="Produce"', *SLOW),
        histogram("raylog_request_seconds", 'broker="1",api="Produce"', *FAST)
        | histogram("raylog_request_seconds", 'broker="1",api="Fetch"', *SLOW),
        AT_1,
    ),
    "RaylogUnexpectedErrors": Case(
        {ERRORS: "_x55 1+0x5"},  # a series begins with the first error
        {ERRORS: "1+0x60"},
        {"broker": "1", "api": "Fetch"},
    ),
    "RaylogGroupLagGrows": Case(
        {LAG: "20000+100x60"}, {LAG: "80000-100x60"}, {"group": "g", "topic": "t"}
    ),
    "RaylogTransactionOpen": Case(
        {'raylog_transaction_oldest_age_seconds{broker="1"}': "0+60x60"},
        {'raylog_transaction_oldest_age_seconds{broker="1"}': "30+0x60"},
        AT_1,
    ),
    "RaylogCoordinatorLoading": Case(
        {LOADING: "2+0x60"},
        {LOADING: "0+0x57 2+0x3", LOADING.replace("loading", "active"): "25+0x60"},
        {"broker": "1", "role": "group"},
    ),
    "RaylogCleanerFails": Case(
        {'raylog_cleaner_runs_total{broker="1",outcome="failed"}': "0+0x50 1+0x10"},
        {
            'raylog_cleaner_runs_total{broker="1",outcome="failed"}': "0+0x60",
            'raylog_cleaner_runs_total{broker="1",outcome="done"}': "0+1x60",
        },
        AT_1,
    ),
    "RaylogProcessRestarts": Case(
        {'raylog_process_restarts{broker="1",role="replica"}': "0+0x50 1 2 3 4 5+0x5"},
        {'raylog_process_restarts{broker="1",role="replica"}': "5+0x55 6+0x5"},
        {"broker": "1", "role": "replica"},
    ),
    "RaylogFileDescriptorsShort": Case(
        {
            f"raylog_process_open_fds{FILES}": "95+0x60",
            f"raylog_process_max_fds{FILES}": "100+0x60",
        },
        {
            f"raylog_process_open_fds{FILES}": "50+0x60",
            f"raylog_process_max_fds{FILES}": "100+0x60",
        },
        {"broker": "1", "process": "replica-0"},
    ),
    "RaylogScrapeIncomplete": Case(
        {'raylog_scrape_failures_total{broker="1",role="replica"}': "0+1x60"},
        {'raylog_scrape_failures_total{broker="1",role="replica"}': "0+0x58 1 1"},
        {"broker": "1", "role": "replica"},
    ),
}


def played(name: str, series: dict[str, str], labels: dict[str, str] | None) -> dict[str, Any]:
    """One test of promtool: the alert fires with these labels at the end, or not."""
    alert = {"eval_time": "1h", "alertname": name}
    rule = ALERTS[name]
    if labels is not None:
        alert["exp_alerts"] = [{"exp_labels": {**rule["labels"], **labels}}]  # type: ignore[assignment]  # of other kinds
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [alert],
    }


def without_annotations(path: Path) -> Path:
    """The rules without their texts, which promtool would compare as well."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    path.write_text(yaml.safe_dump(rules))
    return path


def test_the_rules_are_valid() -> None:
    done = subprocess.run(
        [promtool(), "check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_configuration_is_valid() -> None:
    config = RULES.with_name("prometheus.yaml")
    done = subprocess.run(
        [promtool(), "check", "config", str(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert set(CASES) == set(ALERTS)
    tests = [
        played(name, series, labels)
        for name, case in CASES.items()
        for series, labels in ((case.fires, case.labels), (case.quiet, None))
    ]
    rules = without_annotations(tmp_path / "rules.yaml")
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [rules.name], "tests": tests}))
    done = subprocess.run(
        [promtool(), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_read_families_that_there_are(name: str) -> None:
    assert families_in(ALERTS[name]["expr"]) or name == "RaylogBrokerDown"


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_has_a_section_of_the_runbook(name: str) -> None:
    page, _, anchor = ALERTS[name]["annotations"]["runbook"].partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor == name.lower()
    assert f"\n## {name}\n" in RUNBOOK.read_text()


def test_the_runbook_has_no_other_alerts() -> None:
    titles = re.findall(r"^## (Raylog\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert titles == list(ALERTS)
