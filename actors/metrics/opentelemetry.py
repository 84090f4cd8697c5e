"""The reporter `opentelemetry`: sends metrics through an OpenTelemetry exporter.

It is configured by the usual environment variables: `OTEL_METRICS_EXPORTER` (default `otlp`),
`OTEL_EXPORTER_OTLP_PROTOCOL` (`grpc`, or `http/protobuf`), `OTEL_EXPORTER_OTLP_ENDPOINT` and so on;
`OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` identify the source. The exporter is a separate
package: `opentelemetry-exporter-otlp`.

Scraped samples, including histograms, are exported as they are; there are no instruments. The start
time of a counter is that of its process. It is kept while the counter is absent: a process that
missed a scrape has not restarted, and a new start time would make backends add everything it has
counted once more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple

from raylog.actors.build import BUILD
from raylog.actors.metrics.exposition import clean
from raylog.actors.metrics.families.process import START_TIME
from raylog.actors.metrics.families.table import FAMILIES
from raylog.actors.metrics.family import SCOPE_LABELS, Family, Kind
from raylog.actors.metrics.samples import Sample, Value
from raylog.actors.names import BROKER, CONTROLLER
from raylog.extras import needs
from raylog.wire.errors import InvalidConfig

with needs("opentelemetry", "the reporter opentelemetry"):
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        MetricExporter,
        MetricExportResult,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
        Sum,
    )
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

_GROUP = "opentelemetry_metrics_exporter"
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
ABSENT_MS_MAX = 600_000
"""After this time a series that is no longer reported is forgotten."""
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "": ""}
Series = tuple[str, tuple[str, ...]]
"""Family name and label values."""
Owner = tuple[str, ...]
"""Labels of the process that reports a series, as many as the series has."""


class _Begun(NamedTuple):
    """A series of a cumulative metric."""

    began_ns: int
    last: float
    """Its last value."""
    reported_ns: int
    """When it was last reported."""


class OpenTelemetryReporter:
    """Sends every sample to the exporters."""

    def __init__(self, exporters: Sequence[MetricExporter]) -> None:
        self._exporters = exporters
        own = Resource({"service.name": "raylog", "service.version": BUILD})
        self._resource = own.merge(OTELResourceDetector().detect())
        self._begun: dict[Series, _Begun] = {}

    def report(self, samples: Sequence[Sample], now_ms: int) -> None:
        """Export the samples and wait until that is done; raises OSError if an exporter fails."""
        data = self._data(samples, now_ms * _NS_PER_MS)
        failed = [
            type(exporter).__name__
            for exporter in self._exporters
            if exporter.export(data) is not MetricExportResult.SUCCESS
        ]
        if failed:
            raise OSError(f"not exported by {', '.join(failed)}")

    def _data(self, samples: Iterable[Sample], now_ns: int) -> MetricsData:
        by_family: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
        for name, labels, value in samples:
            by_family.setdefault(name, []).append((labels, value))
        starts = _starts(by_family.get(START_TIME.name, ()))
        metrics = [
            self._metric(FAMILIES[name], found, now_ns, starts) for name, found in by_family.items()
        ]
        oldest_ns = now_ns - ABSENT_MS_MAX * _NS_PER_MS
        self._begun = {key: one for key, one in self._begun.items() if one.reported_ns >= oldest_ns}
        scope = ScopeMetrics(InstrumentationScope("raylog", BUILD), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(
        self,
        family: Family,
        samples: list[tuple[tuple[str, ...], Value]],
        now_ns: int,
        starts: Mapping[Owner, int],
    ) -> Metric:
        numbers: list[NumberDataPoint] = []
        histograms: list[HistogramDataPoint] = []
        for values, value in samples:
            labels = dict(zip(family.all_labels, map(clean, values), strict=True))
            series = (family.name, values)
            owner = values[: len(SCOPE_LABELS[family.scope])]
            started = min(now_ns, starts.get(owner, now_ns))
            if isinstance(value, tuple | list):
                began = self._began(series, sum(value[1:]), now_ns, started)
                histograms.append(_histogram(family, labels, value, began, now_ns))
            else:
                counts = family.kind is Kind.COUNTER
                began = self._began(series, value, now_ns, started) if counts else 0
                numbers.append(NumberDataPoint(labels, began, now_ns, float(value)))
        cumulative = AggregationTemporality.CUMULATIVE
        data: Sum | Gauge | Histogram
        match family.kind:
            case Kind.COUNTER:
                data = Sum(numbers, cumulative, is_monotonic=True)
            case Kind.GAUGE:
                data = Gauge(numbers)
            case Kind.HISTOGRAM:
                data = Histogram(histograms, cumulative)
        return Metric(family.name, family.help, _UNITS[family.unit], data)

    def _began(self, series: Series, value: float, now_ns: int, started_ns: int) -> int:
        """Return the start of a series, in ns: that of its process, or now if the value dropped."""
        before = self._begun.get(series)
        began_ns = started_ns if before is None else before.began_ns
        if before is not None and value < before.last:
            began_ns = now_ns
        self._begun[series] = _Begun(began_ns, value, now_ns)
        return began_ns


def _starts(times: Iterable[tuple[tuple[str, ...], Value]]) -> dict[Owner, int]:
    """Return the start times of processes, in ns, by their labels in each scope."""
    starts: dict[Owner, int] = {}
    for (broker, role, process), value in times:
        assert not isinstance(value, tuple | list), START_TIME.name
        started_ns = int(value * _NS_PER_S)
        starts[broker, role, process] = started_ns
        if role == BROKER:
            starts[(broker,)] = started_ns
        elif role == CONTROLLER:
            starts[()] = started_ns
    return starts


def _histogram(
    family: Family, labels: Mapping[str, str], value: Sequence[float], began: int, now_ns: int
) -> HistogramDataPoint:
    total, *buckets = value
    counts = [int(count) for count in buckets]
    filled = [index for index, count in enumerate(counts) if count]
    ends = (0.0, *family.bounds, family.bounds[-1])
    return HistogramDataPoint(
        labels,
        began,
        now_ns,
        sum(counts),
        total,
        counts,
        family.bounds,
        ends[filled[0]] if filled else 0.0,  # as exact as the buckets are
        ends[filled[-1] + 1] if filled else 0.0,
    )


def make() -> OpenTelemetryReporter:
    """Return the reporter that the environment configures; raises InvalidConfig."""
    names = os.environ.get("OTEL_METRICS_EXPORTER", "otlp").split(",")
    return OpenTelemetryReporter([_exporter(name.strip()) for name in names if name != "none"])


def _exporter(name: str) -> MetricExporter:
    if name == "otlp":
        protocol = os.environ.get(
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
            os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        )
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = {one.name: one for one in entry_points(group=_GROUP)}
    if name not in found:
        raise InvalidConfig(
            f"no exporter {name!r} is installed (OTEL_METRICS_EXPORTER), only {sorted(found)}; "
            "for OTLP: pip install opentelemetry-exporter-otlp"
        )
    exporter: MetricExporter = found[name].load()()
    return exporter
