"""What a metric family is: the one description of which exposition and documentation are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

UNITS = ("seconds", "bytes", "ratio")
REQUEST_SECONDS = (
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds for whatever a client waits for."""


class Kind(Enum):
    """Of a family, in Prometheus's words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(Enum):
    """Who tells a family, which says how values of several brokers are put together."""

    PROCESS = "process"
    """Each process of a broker tells its own: series carry `broker`, `role` and `process`, and
    sum() over them is the cluster's."""
    BROKER = "broker"
    """Each broker tells it once: series carry `broker`."""
    CLUSTER = "cluster"
    """One broker tells it for all, so sum() and max() over brokers are both right."""
    JOB = "job"
    """The process of a job tells it, at an endpoint of its own; no broker does."""


SCOPE_LABELS = {
    Scope.PROCESS: ("broker", "role", "process"),
    Scope.BROKER: ("broker",),
    Scope.CLUSTER: (),
    Scope.JOB: (),
}


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: a name, and a series for each combination of values of its labels."""

    name: str
    """As in Prometheus; that of a counter ends with `_total`."""
    kind: Kind
    help: str
    labels: tuple[str, ...]
    scope: Scope
    bounds: tuple[float, ...] = ()
    """Of a histogram: upper ends of its buckets, inclusive and rising; that of infinity follows."""

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of the labels of a series, those that its scope adds first."""
        return (*SCOPE_LABELS[self.scope], *self.labels)

    @property
    def unit(self) -> str:
        """The unit that the name ends with; "" for numbers of things."""
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
    """What its readers must know of all of them, in Markdown."""
    families: list[Family] = field(default_factory=list)

    def counter(self, name: str, help_text: str, *labels: str) -> Family:
        """A number that only grows, until its process restarts."""
        assert name.endswith("_total"), name
        return self._add(Family(name, Kind.COUNTER, help_text, labels, self.scope))

    def gauge(self, name: str, help_text: str, *labels: str) -> Family:
        """A number as it is now."""
        return self._add(Family(name, Kind.GAUGE, help_text, labels, self.scope))

    def histogram(
        self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...] = REQUEST_SECONDS
    ) -> Family:
        """How often something took how much."""
        return self._add(Family(name, Kind.HISTOGRAM, help_text, labels, self.scope, bounds))

    def _add(self, family: Family) -> Family:
        assert family.name.startswith("raylog_"), family.name
        self.families.append(family)
        return family
