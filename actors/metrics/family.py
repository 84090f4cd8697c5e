"""Metric families: the definitions from which exposition and documentation are generated."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

UNITS = ("seconds", "bytes", "ratio")
REQUEST_SECONDS = (
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Default bucket bounds, for anything that a client waits for."""


class Kind(Enum):
    """The type of a family, in Prometheus's terms."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(Enum):
    """The reporter of a family, which determines how to aggregate it over brokers."""

    PROCESS = "process"
    """Each process reports its own values: series carry `broker`, `role` and `process`, and
    sum() over them is the value of the cluster."""
    BROKER = "broker"
    """Each broker reports it once: series carry `broker`."""
    CLUSTER = "cluster"
    """One broker reports it for the cluster, so both sum() and max() over brokers are right."""
    JOB = "job"
    """The process of a job reports it, at its own endpoint; brokers do not."""


SCOPE_LABELS = {
    Scope.PROCESS: ("broker", "role", "process"),
    Scope.BROKER: ("broker",),
    Scope.CLUSTER: (),
    Scope.JOB: (),
}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: a name, and a series per combination of label values."""

    name: str
    """As in Prometheus; the name of a counter ends with `_total`."""
    kind: Kind
    help: str
    labels: tuple[str, ...]
    scope: Scope
    bounds: tuple[float, ...] = ()
    """Bucket bounds of a histogram: inclusive, ascending, without infinity."""

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of the labels of a series, starting with those of its scope."""
        return (*SCOPE_LABELS[self.scope], *self.labels)

    @property
    def unit(self) -> str:
        """The unit at the end of the name; "" for counts."""
        return next((unit for unit in UNITS if self._base.endswith(f"_{unit}")), "")

    @property
    def _base(self) -> str:
        return self.name.removesuffix("_total")


@dataclass(slots=True)
class Table:
    """The families of one area, in the order in which they are documented."""

    title: str
    scope: Scope
    about: str = ""
    """An introduction for their readers, in Markdown."""
    families: list[Family] = field(default_factory=list)

    def counter(self, name: str, help_text: str, *labels: str) -> Family:
        """Add a counter: a number that only grows until its process restarts."""
        assert name.endswith("_total"), name
        return self._add(Family(name, Kind.COUNTER, help_text, labels, self.scope))

    def gauge(self, name: str, help_text: str, *labels: str) -> Family:
        """Add a gauge: a number that can rise and fall."""
        return self._add(Family(name, Kind.GAUGE, help_text, labels, self.scope))

    def histogram(
        self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...] = REQUEST_SECONDS
    ) -> Family:
        """Add a histogram: the distribution of a duration or size."""
        return self._add(Family(name, Kind.HISTOGRAM, help_text, labels, self.scope, bounds))

    def _add(self, family: Family) -> Family:
        assert family.name.startswith("raylog_"), family.name
        self.families.append(family)
        return family
