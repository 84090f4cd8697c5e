"""The reporter `ray`: turns metrics into gauges of Ray, which Ray's endpoints expose.

Ray cannot set a counter or a histogram to an external value. So counters become gauges that grow,
and histograms become `_count` and `_sum`. Ray keeps a series as long as the process lives. A gauge
that is no longer reported is set to 0. A counter keeps its last value: its process may merely have
missed a scrape, and 0 would look like a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raylog.actors.metrics.exposition import clean
from raylog.actors.metrics.families.table import FAMILIES
from raylog.actors.metrics.family import Kind
from raylog.actors.metrics.samples import Sample
from raylog.extras import needs

with needs("ray", "the reporter ray"):
    from ray.util.metrics import Gauge

Series = tuple[str, tuple[str, ...]]
"""Name of the gauge, values of its tags."""


class RayReporter:
    """Sets a gauge of Ray for each sample."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}
        self._reported: set[Series] = set()
        """Gauges of the last report."""

    def report(self, samples: Sequence[Sample], now_ms: int) -> None:
        """Set all gauges; Ray sends them in its own time."""
        now: set[Series] = set()
        for sample in samples:
            for series, value in _numbers(sample):
                self._set(series, value, sample[0])
                if FAMILIES[sample[0]].kind is Kind.GAUGE:
                    now.add(series)
        for series in self._reported - now:
            self._set(series, 0.0, series[0])
        self._reported = now

    def _set(self, series: Series, value: float, family: str) -> None:
        name, values = series
        gauge = self._gauges.get(name)
        if gauge is None:
            of = FAMILIES[family]
            gauge = self._gauges[name] = Gauge(name, of.help, of.all_labels)
        gauge.set(value, dict(zip(gauge.info["tag_keys"], map(clean, values), strict=True)))


def _numbers(sample: Sample) -> Iterator[tuple[Series, float]]:
    name, values, value = sample
    if isinstance(value, tuple | list):
        yield (f"{name}_count", values), float(sum(value[1:]))
        yield (f"{name}_sum", values), float(value[0])
    else:
        yield (name, values), float(value)


def make() -> RayReporter:
    """Create the reporter, in a Ray actor."""
    return RayReporter()
