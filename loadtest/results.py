"""Models of results: what processes exchange, and the JSON file of a run.

Latencies are HdrHistograms of µs from 1 to 3,600,000,000 with 3 significant digits, in their
compressed base64 (`HdrHistogram.encode`), so that any number of processes and seconds can be added
up exactly. A latency counts from the intended time of a request, not from when it was sent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from raylog.loadtest.scenario import Scenario, Threshold


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Interval(_Model):
    """One second of one operation."""

    second: int
    """Seconds from the start of the run to the intended time."""
    requests: int
    """Successful requests."""
    failures: int
    bytes: int
    latencies: str
    """Of successful requests."""


class Operation(_Model):
    """All requests of one name: "produce", "end-to-end", "transaction", "commit", "join"..."""

    name: str
    errors: dict[str, int]
    """Counts of errors by text: at most 100 texts, the rest as "other errors"."""
    intervals: list[Interval]


class Generator(_Model):
    """One process that made load, and whether it was the limit."""

    worker: int
    host: str
    cores: int
    pid: int
    cpu_share: list[float]
    """Share of one core, by second from the start of the run."""
    late_ms: list[float]
    """The 99th percentile of lateness of users, by second."""
    lateness: str
    """How late users woke up, encoded like latencies."""
    clock_offset_us: int
    """Offset of its wall clock to the first process's. Its reports are already corrected by it."""
    clock_uncertainty_us: int


class Mark(_Model):
    """An event: a fault, a step of the shape, a rebalance."""

    at_s: float
    kind: Literal["fault", "load", "note"]
    text: str


class Gauge(_Model):
    """One value over time: the lag of a group, a metric of a broker."""

    name: str
    labels: dict[str, str]
    unit: str
    points: list[tuple[float, float]]
    """(seconds from the start, value)."""


class Finding(_Model):
    """One kind of wrong answer in a topic, with the first places where it was seen."""

    kind: Literal["lost", "doubled", "reordered", "torn", "unknown", "wrong-offset", "aborted-seen"]
    topic: str = ""
    """Its name in the run; empty in files of older versions."""
    count: int
    examples: list[str]
    """At most 10."""


class Audit(_Model):
    """The acknowledged records compared with the log."""

    acknowledged: int
    unanswered: int
    """Records without an answer. They may be in the log or not."""
    found: int
    findings: list[Finding]
    excused: int = 0
    """Doubled and reordered records that are no findings, because retries explain them."""


class Verdict(_Model):
    """One threshold with the measured value."""

    threshold: Threshold
    found: float | None
    """None if nothing was measured. The threshold then failed."""
    held: bool


class Target(_Model):
    """The cluster under load."""

    bootstrap: str
    kind: str
    """"Raylog 0.1.0", "Apache Kafka 4.3", "Kafka-compatible"."""
    brokers: int


class Result(_Model):
    """The result of a run."""

    format: Literal[2] = 2
    """Readers refuse newer formats."""
    run: str
    started: str
    """ISO 8601, UTC."""
    duration_s: float
    scenario: Scenario
    target: Target
    machine: str
    raylog: str
    """The version and, in a checkout, the commit."""
    operations: list[Operation]
    generators: list[Generator]
    gauges: list[Gauge]
    marks: list[Mark]
    audit: Audit
    verdicts: list[Verdict]
    limited_by_generator: list[tuple[float, float]]
    """Spans (s) in which the generator, not the broker, was the limit."""
    capacity: float | None
    """With stairs, records/s of the last step that held."""
    notes: list[str]
    failure: str | None = None
    """Why the run proves nothing, such as a lost load process or an interruption."""

    @property
    def passed(self) -> bool:
        """Whether the run was complete, every threshold held, and no answer was wrong."""
        return (
            self.failure is None
            and all(verdict.held for verdict in self.verdicts)
            and not self.audit.findings
        )
