"""Describes a result in words: whether it passed and why, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from raylog.loadtest.report.aftermath import aftermaths
from raylog.loadtest.report.latencies import merged, percentiles_ms
from raylog.loadtest.report.series import totals
from raylog.loadtest.results import Finding, Generator, Result, Verdict
from raylog.loadtest.scenario import Threshold
from raylog.loadtest.verdicts import FAILED_MS

FINDINGS = {
    "lost": "acknowledged, but not in the log",
    "doubled": "in the log more than once",
    "reordered": "in the log in another order than sent",
    "torn": "with other bytes than were sent",
    "unknown": "in the log, but not sent by this run",
    "wrong-offset": "at another offset than was acknowledged",
    "aborted-seen": "of aborted transactions, but given to a read_committed reader",
}
_PERCENT = 100
_SECONDS_LEFT_OUT_MAX = 0.05
"""A run is reported as limited by the generator above this share of its seconds."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The resources that the generator itself used."""

    requests_per_cpu_s: float
    busiest: float
    """The largest share of one core that any process used in a second."""
    late_p99_ms: float
    late_max_ms: float


def reasons(result: Result) -> list[str]:
    """Why a run passed or failed, the worst first."""
    wrong = [result.failure] if result.failure is not None else []
    wrong += [finding_text(finding) for finding in result.audit.findings]
    wrong += [verdict_text(one) for one in result.verdicts if not one.held]
    return wrong or [_why_passed(result)]


def _why_passed(result: Result) -> str:
    count = len(result.verdicts)
    held = {0: "No threshold was set", 1: "The threshold held"}.get(
        count, f"All {count} thresholds held"
    )
    audit = result.audit
    if not audit.acknowledged:
        return f"{held}. No record was audited."
    records = f"of the {audit.acknowledged:,} acknowledged records"
    if audit.excused or audit.found < audit.acknowledged:  # retention may have deleted some
        return f"{held}, and none {records} is lost or torn."
    return f"{held}, and each {records} was found in the log once, whole and in order."


def finding_text(finding: Finding) -> str:
    """The meaning of a finding of the audit."""
    noun = "record" if finding.count == 1 else "records"
    where = f" in {finding.topic}" if finding.topic else ""
    return f"{finding.count:,} {noun} {finding.kind}{where}: {FINDINGS[finding.kind]}"


def limit_text(threshold: Threshold) -> str:
    """The limit of a threshold."""
    if threshold.max_ms is not None and threshold.percentile is not None:
        name = threshold.percentile.removesuffix("_ms")
        return f"{name} of {threshold.operation} at most {number(threshold.max_ms)} ms"
    if threshold.errors_share is not None:
        return f"failures of {threshold.operation} at most {share(threshold.errors_share)}"
    if threshold.lag_records is not None:
        return f"lag of all groups at the end at most {threshold.lag_records:,} records"
    return f"acknowledged of the intended records at least {share(threshold.throughput_share or 0)}"


def found_text(verdict: Verdict) -> str:
    """The measured value for a threshold."""
    threshold, found = verdict.threshold, verdict.found
    if found is None:
        return _unmeasured(threshold)
    if threshold.max_ms is not None:
        return "a failed request" if found >= FAILED_MS else f"{number(found)} ms"
    if threshold.lag_records is not None:
        return f"{found:,.0f} records"
    return share(found)


def _unmeasured(threshold: Threshold) -> str:
    if threshold.operation is not None:
        return f"no {threshold.operation} was measured"
    if threshold.lag_records is not None:
        return "no lag was measured"
    return "no records were due"


def verdict_text(verdict: Verdict) -> str:
    """A threshold and its measured value in one line."""
    found = found_text(verdict) if verdict.found is None else f"found {found_text(verdict)}"
    return f"{limit_text(verdict.threshold)}: {found}"


def answers(result: Result) -> list[str]:
    """The answers to the scenario's question."""
    said = []
    if result.capacity is not None:
        said.append(f"The last step at which everything held was {result.capacity:,.0f} records/s.")
    elif result.scenario.shape.kind == "stairs":
        said.append("No step held: even the first one was too much.")
    said += aftermaths(result)
    limit = generator_limit(result)
    if limit is not None:
        said.append(limit)
    return said


def only_in_warm_up(result: Result) -> list[str]:
    """Why operations have no figures: all their requests were in the warm-up."""
    lines = []
    for operation in result.operations:
        judged = totals(operation, result)
        requests = sum(one.requests for one in operation.intervals)
        if requests and not judged.requests and not judged.failures:
            lines.append(
                f"{operation.name} has no figures: all of its {requests:,} requests were made in "
                "the warm-up."
                if requests > 1
                else f"{operation.name} has no figures: its only request was made in the warm-up."
            )
    return lines


def generator_limit(result: Result) -> str | None:
    """A sentence if the generator, not the broker, was the limit."""
    seconds = sum(end - start for start, end in result.limited_by_generator)
    if not seconds:
        return None
    text = (
        f"The generator, not the broker, was the limit for {seconds:,.0f} s of "
        f"{result.duration_s:,.0f} s"
    )
    if seconds > result.duration_s * _SECONDS_LEFT_OUT_MAX:
        return f"{text}: use more processes or machines before you judge the broker by this run."
    return f"{text}."


def cost(result: Result) -> Cost:
    """The resources that the generator used."""
    requests = sum(one.requests for each in result.operations for one in each.intervals)
    cpu_s = sum(sum(each.cpu_share) for each in result.generators)
    late = merged(each.lateness for each in result.generators)
    p99, worst = percentiles_ms(late, (99.0, 100.0))
    return Cost(
        requests_per_cpu_s=requests / cpu_s if cpu_s else 0.0,
        busiest=max((share for each in result.generators for share in each.cpu_share), default=0.0),
        late_p99_ms=p99 or 0.0,
        late_max_ms=worst or 0.0,
    )


def cores_used(generator: Generator) -> float:
    """The mean use of a core."""
    return sum(generator.cpu_share) / max(len(generator.cpu_share), 1)


def number(value: float | None) -> str:
    """Three significant digits: 0.0123, 1.23, 12.3, 1,234."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def value(found: object) -> str:
    """The value of a scenario's field."""
    if isinstance(found, dict):
        return "(" + ", ".join(f"{key} {value(each)}" for key, each in found.items()) + ")"
    if found is None:
        return "not set"
    return f"{found:,g}" if isinstance(found, float) else str(found)


def share(value: float) -> str:
    """A share in percent. A share above 0 is never shown as 0."""
    if 0 < value * _PERCENT < 0.001:
        return "below 0.001 %"
    return f"{value * _PERCENT:.3f}".rstrip("0").rstrip(".") + " %"


def percent(value: float) -> str:
    """A share of a core in whole percents."""
    return f"{value * _PERCENT:.0f} %"


def seconds(value: float) -> str:
    """A duration: 45 s, 2 min 5 s."""
    minutes, rest = divmod(round(value), 60)
    if not minutes:
        return f"{number(value)} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def moment(iso: str) -> str:
    """An ISO 8601 time to the second. Anything else is unchanged."""
    try:
        return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return iso


def target_name(result: Result) -> str:
    """The name of a target in comparisons."""
    return f"{result.target.kind} at {result.target.bootstrap}"
