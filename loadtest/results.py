"""What a run found, as models: what processes hand to each other, and the JSON file of a run.

Latencies are HdrHistograms of µs from 1 to 3,600,000,000 with 3 significant digits, as their
own compressed base64 (`HdrHistogram.encode`), so that any number of processes and seconds can be
added up exactly. Latency counts from the intended time of a request, not from when it was sent.
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
    """From the start of the run; of the intended time."""
    requests: int
    """That succeeded."""
    failures: int
    bytes: int
    latencies: str
    """Of those that succeeded."""


class Operation(_Model):
    """All requests of one name: "produce", "end-to-end", "transaction", "commit", "join"..."""

    name: str
    intended: int
    """Requests that were to be made by the shape; those of a generator that is late are missing
    from `requests`."""
    errors: dict[str, int]
    """How often each error was seen, by its text; at most 100 texts, the rest as "other errors"."""
    intervals: list[Interval]


class Generator(_Model):
    """One process that made load, and whether it was the limit."""

    worker: int
    host: str
    cores: int
    pid: int
    cpu_share: list[float]
    """Of one core, second by second from the start of the run."""
    late_ms: list[float]
    """How late users were, 99th percentile of each second's time."""
    lateness: str
    """How late users were woken up, as latencies are kept."""
    clock_offset_us: int
    """Of its wall clock to the first process's; already taken off what it reported."""
    clock_uncertainty_us: int


class Mark(_Model):
    """Something that happened at a time: a fault, a step of the shape, a rebalance."""

    at_s: float
    kind: Literal["fault", "load", "note"]
    text: str


class Gauge(_Model):
    """One value over time: the lag of a group, a metric of a broker."""

    name: str
    labels: dict[str, str]
    unit: str
    points: list[tuple[float, float]]
    """Seconds from the start, value."""


class Finding(_Model):
    """One kind of wrong answer, with the first places where it was seen."""

    kind: Literal["lost", "doubled", "reordered", "torn", "unknown", "wrong-offset", "aborted-seen"]
    count: int
    examples: list[str]
    """At most 10."""


class Audit(_Model):
    """What was acknowledged, compared with what is in the log."""

    acknowledged: int
    unanswered: int
    """Records whose producer does not know; they may be there or not."""
    found: int
    findings: list[Finding]


class Verdict(_Model):
    """One threshold, and what was found."""

    threshold: Threshold
    found: float | None
    """None: nothing was measured, so it did not hold."""
    held: bool


class Target(_Model):
    """What was loaded."""

    bootstrap: str
    kind: str
    """"Raylog 0.1.0", "Apache Kafka 4.3", "Kafka-compatible"."""
    brokers: int


class Result(_Model):
    """One run."""

    format: Literal[1] = 1
    """A reader refuses a newer one."""
    run: str
    started: str
    """ISO 8601, UTC."""
    duration_s: float
    scenario: Scenario
    target: Target
    machine: str
    raylog: str
    """Version and, of a checkout, the commit."""
    operations: list[Operation]
    generators: list[Generator]
    gauges: list[Gauge]
    marks: list[Mark]
    audit: Audit
    verdicts: list[Verdict]
    limited_by_generator: list[tuple[float, float]]
    """Spans of time (s) in which the generator, not the broker, was the limit."""
    capacity: float | None
    """Records/s of the last step that held, of stairs."""
    notes: list[str]
    failure: str | None = None
    """Why the run proves nothing: a process that made load died, it was interrupted."""

    @property
    def passed(self) -> bool:
        """Whether the run was whole, every threshold held, and no answer was wrong."""
        return (
            self.failure is None
            and all(verdict.held for verdict in self.verdicts)
            and not self.audit.findings
        )
