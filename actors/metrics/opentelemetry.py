"""The reporter `opentelemetry`: metrics go out through an exporter of OpenTelemetry.

The environment chooses it, as for any program: `OTEL_METRICS_EXPORTER` (`otlp` unless told
otherwise), `OTEL_EXPORTER_OTLP_PROTOCOL` (`grpc`, or `http/protobuf`),
`OTEL_EXPORTER_OTLP_ENDPOINT` and so on; `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say
whose metrics they are. An exporter is a package of its own: `opentelemetry-exporter-otlp`.

What a scrape tells is handed to it as it is, histograms too: there are no instruments. A counter
begins when its process was started. It keeps that beginning while it is absent: a process that has
missed a scrape has not begun anew, and backends would add all that it has counted once more.
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
"""After which a series that is no longer told is forgotten."""
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "": ""}
Series = tuple[str, tuple[str, ...]]
"""Name of the family, values of its labels."""
Owner = tuple[str, ...]
"""Labels of the process that tells a series, as many as the series has."""


class _Begun(NamedTuple):
    """A series of what only grows."""

    began_ns: int
    last: float
    """Its last value."""
    told_ns: int
    """When it was told last."""


class OpenTelemetryReporter:
    """Gives every sample to the exporters."""

    def __init__(self, exporters: Sequence[MetricExporter]) -> None:
        self._exporters = exporters
        own = Resource({"service.name": "raylog", "service.version": BUILD})
        self._resource = own.merge(OTELResourceDetector().detect())
        self._begun: dict[Series, _Begun] = {}

    def report(self, samples: Sequence[Sample], now_ms: int) -> None:
        """Export them, and wait until that is done; raises OSError if an exporter fails."""
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
        self._begun = {key: one for key, one in self._begun.items() if one.told_ns >= oldest_ns}
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
            started = min(now_ns, starts.get(_owner(family, values), now_ns))
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
        """When a series began, in ns: with its process, and anew when it has become less."""
        before = self._begun.get(series)
        began_ns = started_ns if before is None else before.began_ns
        if before is not None and value < before.last:
            began_ns = now_ns
        self._begun[series] = _Begun(began_ns, value, now_ns)
        return began_ns


def _starts(times: Iterable[tuple[tuple[str, ...], Value]]) -> dict[Owner, int]:
    """When processes were started, in ns, by the labels that name them for each scope."""
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


def _owner(family: Family, labels: tuple[str, ...]) -> Owner:
    return labels[: len(SCOPE_LABELS[family.scope])]


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
        ends[filled[0]] if filled else 0.0,  # as near as the buckets tell
        ends[filled[-1] + 1] if filled else 0.0,
    )


def make() -> OpenTelemetryReporter:
    """The reporter that the environment asks for; raises InvalidConfig."""
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
