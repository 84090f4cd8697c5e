"""Metrics that a broker sends to other systems itself."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    Histogram,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)

from raylog.actors.config import BrokerSettings
from raylog.actors.metrics import reporting
from raylog.actors.metrics.families import broker, controller, gateway, process
from raylog.actors.metrics.opentelemetry import ABSENT_MS_MAX, OpenTelemetryReporter, make
from raylog.actors.metrics.reporting import REPORTERS, reporters
from raylog.actors.metrics.samples import Sample
from raylog.actors.runtime import ray_metrics
from raylog.actors.runtime.ray_metrics import RayReporter
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import InvalidConfig

OF_GATEWAY = ("1", "gateway", "gateway-0")
BOUNDS = gateway.REQUEST_SECONDS.bounds


def requests(count: int) -> Sample:
    return (gateway.REQUESTS.name, (*OF_GATEWAY, "Fetch"), count)


def seconds(*filled: int) -> Sample:
    """One value in each of these buckets."""
    counts = [0] * (len(BOUNDS) + 1)
    for index in filled:
        counts[index] += 1
    return (gateway.REQUEST_SECONDS.name, (*OF_GATEWAY, "Fetch"), (1.5, *counts))


# ---- OpenTelemetry ---------------------------------------------------------------------------


class Kept(MetricExporter):
    """Keeps the exported metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.exported: list[MetricsData] = []

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any
    ) -> MetricExportResult:
        self.exported.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None: ...

    def last(self) -> dict[str, Any]:
        """The last metrics, by name."""
        (resource,) = self.exported[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


def test_each_kind_of_family_goes_out_as_its_own() -> None:
    kept = Kept()
    reporter = OpenTelemetryReporter([kept])
    reporter.report(
        [
            requests(5),
            (process.RESIDENT_BYTES.name, OF_GATEWAY, 70),
            (process.CPU_SECONDS.name, OF_GATEWAY, 2.5),
            seconds(0, 2, 2),
        ],
        1_000,
    )
    metrics = kept.last()
    labels = {"broker": "1", "role": "gateway", "process": "gateway-0"}
    (count,) = metrics["raylog_requests_total"].data.data_points
    assert (count.value, count.attributes) == (5, {**labels, "api": "Fetch"})
    assert metrics["raylog_requests_total"].data.is_monotonic
    assert (count.start_time_unix_nano, count.time_unix_nano) == (1_000_000_000, 1_000_000_000)
    assert isinstance(count.value, float)  # OTLP takes no booleans
    (memory,) = metrics["raylog_process_resident_memory_bytes"].data.data_points
    assert (memory.value, memory.attributes) == (70, labels)
    assert metrics["raylog_process_resident_memory_bytes"].unit == "By"
    assert metrics["raylog_process_cpu_seconds_total"].unit == "s"
    times = metrics["raylog_request_seconds"].data
    assert isinstance(times, Histogram)
    (point,) = times.data_points
    assert (point.count, point.sum) == (3, 1.5)
    assert tuple(point.explicit_bounds) == BOUNDS
    assert list(point.bucket_counts) == [1, 0, 2] + [0] * (len(BOUNDS) - 2)
    assert (point.min, point.max) == (0.0, BOUNDS[2])


def test_counter_start_time_resets_when_the_count_drops() -> None:
    kept = Kept()
    reporter = OpenTelemetryReporter([kept])
    begun = []
    for at_ms, count in ((1_000, 5), (2_000, 9), (3_000, 1), (4_000, 2)):
        reporter.report([requests(count)], at_ms)
        (point,) = kept.last()["raylog_requests_total"].data.data_points
        begun.append(point.start_time_unix_nano // 1_000_000)
    assert begun == [1_000, 1_000, 3_000, 3_000]


def test_a_process_that_misses_a_scrape_does_not_begin_anew() -> None:
    kept = Kept()
    reporter = OpenTelemetryReporter([kept])
    reporter.report([requests(5)], 1_000)
    reporter.report([], 2_000)
    reporter.report([requests(6)], 3_000)
    (point,) = kept.last()["raylog_requests_total"].data.data_points
    assert point.start_time_unix_nano == 1_000_000_000


def test_a_series_that_is_away_for_long_is_forgotten() -> None:
    kept = Kept()
    reporter = OpenTelemetryReporter([kept])
    reporter.report([requests(5)], 1_000)
    reporter.report([], 1_000 + ABSENT_MS_MAX)
    reporter.report([], 1_001 + ABSENT_MS_MAX)
    later_ms = 2_000 + ABSENT_MS_MAX
    reporter.report([requests(6)], later_ms)
    (point,) = kept.last()["raylog_requests_total"].data.data_points
    assert point.start_time_unix_nano == later_ms * 1_000_000


@pytest.mark.parametrize(
    ("series", "started"),
    [
        (requests(5), OF_GATEWAY),
        ((broker.SCRAPE_FAILURES.name, ("1", "gateway"), 1), ("1", "broker", "broker-0")),
        ((controller.FENCINGS.name, (), 1), ("", "controller", "controller")),
    ],
)
def test_counter_start_time_is_the_start_of_its_process(
    series: Sample, started: tuple[str, ...]
) -> None:
    kept = Kept()
    others = (process.START_TIME.name, ("2", "gateway", "gateway-0"), 3.0)
    times = [others, (process.START_TIME.name, started, 0.25)]
    OpenTelemetryReporter([kept]).report([series, *times], 10_000)
    (point,) = kept.last()[series[0]].data.data_points
    assert point.start_time_unix_nano == 250_000_000


def test_an_empty_histogram_goes_out() -> None:
    kept = Kept()
    OpenTelemetryReporter([kept]).report([seconds()], 1)
    (point,) = kept.last()["raylog_request_seconds"].data.data_points
    assert (point.count, point.min, point.max) == (0, 0.0, 0.0)


def test_an_exporter_that_fails_is_named() -> None:
    class Failing(Kept):
        def export(self, metrics_data: MetricsData, *_: Any, **__: Any) -> MetricExportResult:
            return MetricExportResult.FAILURE

    kept = Kept()
    with pytest.raises(OSError, match="not exported by Failing"):
        OpenTelemetryReporter([Failing(), kept]).report([requests(5)], 1)
    assert kept.exported, "the others have it"


def test_the_environment_chooses_the_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    reporter = make()
    (exporter,) = reporter._exporters
    assert isinstance(exporter, ConsoleMetricExporter)
    exporter.out = io.StringIO()
    reporter.report([requests(5), seconds(1)], 1)
    resource = json.loads(exporter.out.getvalue())["resource_metrics"][0]
    assert resource["resource"]["attributes"]["deployment.environment"] == "test"
    assert resource["resource"]["attributes"]["service.name"] == "raylog"
    names = [metric["name"] for metric in resource["scope_metrics"][0]["metrics"]]
    assert names == ["raylog_requests_total", "raylog_request_seconds"]


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "carrier-pigeon")
    with pytest.raises(InvalidConfig, match=r"metrics\.reporters: opentelemetry .*carrier-pigeon"):
        reporters(["opentelemetry"])


def test_the_names_are_those_that_the_setting_takes() -> None:
    for name in reporting.NAMES:
        assert BrokerSettings({REPORTERS: name}).items(REPORTERS) == (name,)
    with pytest.raises(InvalidConfig, match="carrier"):
        BrokerSettings({REPORTERS: "carrier"})


# ---- Ray -------------------------------------------------------------------------------------


class FakeGauge:
    """A gauge that keeps its value."""

    values: dict[str, dict[tuple[str, ...], float]] = {}  # noqa: RUF012  # emptied by each test

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description
        self.name = name
        self.info = {"tag_keys": tag_keys}

    def set(self, value: float, tags: dict[str, str]) -> None:
        assert tuple(tags) == self.info["tag_keys"]
        self.values.setdefault(self.name, {})[tuple(tags.values())] = value


def test_series_become_gauges_of_ray_and_what_does_not_count_is_0_when_it_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_metrics, "Gauge", FakeGauge)
    FakeGauge.values.clear()
    reporter = RayReporter()
    state: Sample = (broker.STATE.name, ("1", "running"), True)
    reporter.report([requests(5), seconds(0, 1), state], 1)
    of_fetch = (*OF_GATEWAY, "Fetch")
    assert FakeGauge.values == {
        "raylog_requests_total": {of_fetch: 5.0},
        "raylog_request_seconds_count": {of_fetch: 2.0},
        "raylog_request_seconds_sum": {of_fetch: 1.5},
        "raylog_broker_state": {("1", "running"): 1.0},
    }
    reporter.report([requests(6)], 2)
    assert FakeGauge.values["raylog_requests_total"] == {of_fetch: 6.0}
    assert FakeGauge.values["raylog_request_seconds_count"] == {of_fetch: 2.0}
    assert FakeGauge.values["raylog_broker_state"] == {("1", "running"): 0.0}
    reporter.report([state], 3)
    assert FakeGauge.values["raylog_requests_total"] == {of_fetch: 6.0}, "it may be busy"


# ---- a broker --------------------------------------------------------------------------------


def test_a_broker_that_cannot_report_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "carrier-pigeon")
    with pytest.raises(InvalidConfig, match="carrier-pigeon"):
        EmbeddedBroker(settings={REPORTERS: "opentelemetry"}).start()


def test_a_broker_reports_now_and_then_and_outlives_failures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exports: list[list[Sample]] = []
    second = threading.Event()

    class Failing:
        def report(self, samples: list[Sample], now_ms: int) -> None:
            exports.append(list(samples))
            if len(exports) == 2:
                second.set()
            raise OSError("nobody listens")

    monkeypatch.setattr(reporting, "import_module", lambda _name: _Making(Failing()))
    settings = {REPORTERS: "opentelemetry", reporting.INTERVAL: "1000"}
    with EmbeddedBroker(settings=settings):
        assert second.wait(30)
    assert caplog.text.count("are not reported") == 1, "once, until it works again"
    assert {name for name, _, _ in exports[0]} >= {broker.INFO.name, gateway.MEMORY.name}


class _Making:
    """Provides a module with a reporter."""

    def __init__(self, reporter: object) -> None:
        self._reporter = reporter

    def make(self) -> object:
        return self._reporter
