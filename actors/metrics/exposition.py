"""Encodes samples in the Prometheus text format or in OpenMetrics.

prometheus_client is imported by the first scrape. Everything here runs in a thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from raylog.actors.metrics.families.table import FAMILIES
from raylog.actors.metrics.family import Family, Kind
from raylog.actors.metrics.samples import Sample, Value

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABEL_CHARACTERS_MAX = 200
"""Maximum length of a label value; names of topics have up to 249 characters, those of groups
32,767."""


class Exposition(NamedTuple):
    """The response to a scrape."""

    body: bytes
    content_type: str


def exposition(samples: Iterable[Sample], accept: str) -> Exposition:
    """Encode samples in the format that the `Accept` header asks for; by default as text."""
    from prometheus_client.exposition import choose_encoder

    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # it asks for an invalid version
        encode, content_type = choose_encoder("")
    return Exposition(encode(_Collected(metrics_of(samples))), content_type)


class _Collected(NamedTuple):
    """Stands in for a registry: it holds the metrics to encode."""

    metrics: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        """Return the metrics; called by the encoder."""
        return iter(self.metrics)


def metrics_of(samples: Iterable[Sample]) -> list[Metric]:
    """Return the families that have samples, in the order of the table."""
    by_family: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
    for name, labels, value in samples:
        by_family.setdefault(name, []).append((labels, value))
    return [
        _metric(family, by_family[name]) for name, family in FAMILIES.items() if name in by_family
    ]


def _metric(family: Family, samples: list[tuple[tuple[str, ...], Value]]) -> Metric:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    name, labels = family.name.removesuffix("_total"), family.all_labels
    metric: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    if family.kind is Kind.HISTOGRAM:
        metric = HistogramMetricFamily(name, family.help, labels=labels)
        ends = [*(repr(float(bound)) for bound in family.bounds), "+Inf"]
        for values, value in samples:
            assert isinstance(value, tuple | list), name
            total, *counts = value
            buckets = list(zip(ends, accumulate(counts), strict=True))
            metric.add_metric([*map(clean, values)], buckets, total)
        return metric
    kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = kind(name, family.help, labels=labels)
    for values, value in samples:
        assert not isinstance(value, tuple | list), name
        metric.add_metric([*map(clean, values)], value)
    return metric


def clean(value: str) -> str:
    """Return a label value that can be encoded and is not long; distinct ones stay distinct."""
    text = value.encode("utf-8", "replace").decode()
    if text == value and len(text) <= LABEL_CHARACTERS_MAX:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: LABEL_CHARACTERS_MAX - 17]}~{digest}"
