"""Alert rules, run by Prometheus's own tool: each fires when it should, and only then."""

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
    """An hour of series with one value a minute, and an alert that fires at the end, or not."""

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
    "RaylogBrokerRestarts": Case(
        {'raylog_broker_restarts{broker="1"}': "0+0x50 1 2 3 4 5+0x5"},
        {'raylog_broker_restarts{broker="1"}': "5+0x55 6+0x5"},
        AT_1,
    ),
    "RaylogNoTargets": Case(
        {'up{job="other"}': "1+0x60"}, {'up{job="raylog"}': "0+0x60"}, {"job": "raylog"}
    ),
    "RaylogClusterMetricsMissing": Case(
        {'raylog_controller_silence_seconds{broker="1"}': "0.5+0x60"},
        {
            'raylog_controller_silence_seconds{broker="1"}': "0.5+0x60",
            "raylog_offline_partitions": "0+0x60",
        },
    ),
    "RaylogBrokerFenced": Case(
        {'raylog_brokers{state="fenced"}': "1+0x60"},
        {'raylog_brokers{state="fenced"}': "0+0x60", 'raylog_brokers{state="active"}': "3+0x60"},
    ),
    "RaylogNoController": Case(
        {f'raylog_controller_silence_seconds{{broker="{one}"}}': "0+0x55 60+60x5" for one in "01"},
        {
            'raylog_controller_silence_seconds{broker="0"}': "0.5+0x60",
            'raylog_controller_silence_seconds{broker="1"}': "0+60x60",  # it is cut off
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
        {"raylog_last_unclean_election_timestamp_seconds": "0+0x55 3290+0x5"},
        {"raylog_last_unclean_election_timestamp_seconds": "0+0x10 590+0x50"},  # long ago
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


class Scene(NamedTuple):
    """Series with a value every 15 s, and alerts that fire at a time, or not."""

    series: dict[str, str]
    checks: list[tuple[str, str, dict[str, str] | None]]
    """Time, alert, its labels; None: it does not fire."""


GATEWAY_1, GATEWAY_2 = (
    ERRORS.replace("broker", f'role="gateway",process="gateway-{number}",broker')
    for number in (1, 2)
)
OF_FETCH = {"broker": "1", "api": "Fetch"}
UNCLEAN = "raylog_last_unclean_election_timestamp_seconds"
SCENES = {
    "an unclean election as the broker dies that reported for the cluster": Scene(
        {
            f'{UNCLEAN}{{instance="b0"}}': "0x60 stale",
            f'{UNCLEAN}{{instance="b1"}}': "_x62 920x90",
        },
        [
            ("15m", "RaylogUncleanElection", None),
            ("16m", "RaylogUncleanElection", {}),
            ("25m", "RaylogUncleanElection", {}),
            ("26m", "RaylogUncleanElection", None),
        ],
    ),
    "an unclean election, and its controller ends": Scene(
        {
            f'{UNCLEAN}{{instance="b0"}}': "0x20 310 310 stale",
            f'{UNCLEAN}{{instance="b1"}}': "_x24 0x40",
        },
        [("10m", "RaylogUncleanElection", {})],
    ),
    "a controller that answers some of the brokers": Scene(
        {
            'raylog_controller_silence_seconds{broker="1"}': "0.5+0x40",
            'raylog_controller_silence_seconds{broker="2"}': "0.5+0x40",
            'raylog_active_controllers{broker="1"}': "0x40",
            'raylog_active_controllers{broker="2"}': "0x40",
        },
        [
            ("5m", "RaylogNoController", None),
            ("5m", "RaylogClusterMetricsMissing", {}),
        ],
    ),
    "no controller": Scene(
        {'raylog_controller_silence_seconds{broker="1"}': "0+15x40"},
        [
            ("5m", "RaylogNoController", {}),
            ("5m", "RaylogClusterMetricsMissing", None),
        ],
    ),
    "an old error, and one scrape that the process does not answer": Scene(
        {GATEWAY_1: "5x200 stale 5x100", GATEWAY_2: "1x301"},
        [
            ("59m", "RaylogUnexpectedErrors", None),
            ("60m15s", "RaylogUnexpectedErrors", None),
            ("60m30s", "RaylogUnexpectedErrors", None),
        ],
    ),
    "new errors after a restart": Scene(
        {GATEWAY_1: "50x40 stale _x4", GATEWAY_2: "_x45 1x10 2x80"},
        [
            ("12m", "RaylogUnexpectedErrors", OF_FETCH),
            ("23m", "RaylogUnexpectedErrors", OF_FETCH),
            ("24m15s", "RaylogUnexpectedErrors", None),
        ],
    ),
    "a counter that begins anew": Scene(
        {GATEWAY_1: "50x40 0x4 1x10 2x40 3x40"}, [("12m", "RaylogUnexpectedErrors", OF_FETCH)]
    ),
    "a broker that crashes every 45 s": Scene(
        {
            'up{job="raylog",instance="b1"}': " ".join(["0 1 1"] * 15),
            'raylog_broker_restarts{broker="1"}': " ".join(f"stale {n} {n}" for n in range(15)),
        },
        [
            ("10m", "RaylogBrokerDown", None),
            ("10m", "RaylogBrokerRestarts", AT_1),
        ],
    ),
}


def played(name: str, series: dict[str, str], labels: dict[str, str] | None) -> dict[str, Any]:
    """One test of promtool: the alert fires with these labels at the end, or not."""
    scene = Scene(series, [("1h", name, labels)])
    return staged(name, scene, interval="1m")


def staged(name: str, scene: Scene, interval: str = "15s") -> dict[str, Any]:
    """A scene as a test of promtool."""
    checks = []
    for at, alert, labels in scene.checks:
        check: dict[str, Any] = {"eval_time": at, "alertname": alert}
        if labels is not None:
            check["exp_alerts"] = [{"exp_labels": {**ALERTS[alert]["labels"], **labels}}]
        checks.append(check)
    return {
        "name": name,
        "interval": interval,
        "input_series": [{"series": one, "values": values} for one, values in scene.series.items()],
        "alert_rule_test": checks,
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


@pytest.mark.long
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert set(CASES) == set(ALERTS)
    tests = [
        played(name, series, labels)
        for name, case in CASES.items()
        for series, labels in ((case.fires, case.labels), (case.quiet, None))
    ]
    play(tests, tmp_path)


@pytest.mark.long
def test_alerts_as_brokers_controllers_and_processes_come_and_go(tmp_path: Path) -> None:
    play([staged(name, scene) for name, scene in SCENES.items()], tmp_path, interval="15s")


def play(tests: list[dict[str, Any]], directory: Path, interval: str = "1m") -> None:
    """Have promtool run tests of the rules, which it evaluates once in an interval."""
    rules = without_annotations(directory / "rules.yaml")
    file = directory / "tests.yaml"
    document = {"rule_files": [rules.name], "evaluation_interval": interval, "tests": tests}
    file.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [promtool(), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_read_families_that_there_are(name: str) -> None:
    assert families_in(ALERTS[name]["expr"]) or name in {"RaylogBrokerDown", "RaylogNoTargets"}


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_has_a_section_of_the_runbook(name: str) -> None:
    page, _, anchor = ALERTS[name]["annotations"]["runbook"].partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor == name.lower()
    assert f"\n## {name}\n" in RUNBOOK.read_text()


def test_the_runbook_has_no_other_alerts() -> None:
    titles = re.findall(r"^## (Raylog\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert titles == list(ALERTS)
