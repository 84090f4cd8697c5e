"""The reporter `opentelemetry`: metrics go out through an exporter of OpenTelemetry.

The environment chooses it, as for any program: `OTEL_METRICS_EXPORTER` (`otlp` unless told
otherwise), `OTEL_EXPORTER_OTLP_PROTOCOL` (`grpc`, or `http/protobuf`),
`OTEL_EXPORTER_OTLP_ENDPOINT` and so on; `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say
whose metrics they are. An exporter is a package of its own: `opentelemetry-exporter-otlp`.

What a scrape tells is handed to it as it is, histograms too: there are no instruments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points

from raylog.actors.build import BUILD
from raylog.actors.metrics.exposition import clean
from raylog.actors.metrics.families.table import FAMILIES
from raylog.actors.metrics.family import Family, Kind
from raylog.actors.metrics.samples import Sample, Value
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
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "": ""}
Series = tuple[str, tuple[str, ...]]
"""Name of the family, values of its labels."""


class OpenTelemetryReporter:
    """Gives every sample to the exporters."""

    def __init__(self, exporters: Sequence[MetricExporter]) -> None:
        self._exporters = exporters
        own = Resource({"service.name": "raylog", "service.version": BUILD})
        self._resource = own.merge(OTELResourceDetector().detect())
        self._begun: dict[Series, tuple[int, float]] = {}
        """Of what only grows: when it began, in ns, and its last value."""

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
        before, self._begun = self._begun, {}
        metrics = [
            self._metric(FAMILIES[name], found, now_ns, before) for name, found in by_family.items()
        ]
        scope = ScopeMetrics(InstrumentationScope("raylog", BUILD), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(
        self,
        family: Family,
        samples: list[tuple[tuple[str, ...], Value]],
        now_ns: int,
        before: Mapping[Series, tuple[int, float]],
    ) -> Metric:
        numbers: list[NumberDataPoint] = []
        histograms: list[HistogramDataPoint] = []
        for values, value in samples:
            labels = dict(zip(family.all_labels, map(clean, values), strict=True))
            series = (family.name, values)
            if isinstance(value, tuple | list):
                began = self._began(series, sum(value[1:]), now_ns, before)
                histograms.append(_histogram(family, labels, value, began, now_ns))
            else:
                counts = family.kind is Kind.COUNTER
                began = self._began(series, value, now_ns, before) if counts else 0
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

    def _began(
        self, series: Series, value: float, now_ns: int, before: Mapping[Series, tuple[int, float]]
    ) -> int:
        """When a series began: it begins anew when its process does."""
        began, last = before.get(series, (now_ns, value))
        if value < last:
            began = now_ns
        self._begun[series] = (began, value)
        return began


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
