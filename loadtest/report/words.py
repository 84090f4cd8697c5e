"""What a run says, in words: whether it passed and why, and what it answers."""

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
    "lost": "acknowledged, and not in the log",
    "doubled": "in the log more than once",
    "reordered": "in the log in another order than sent",
    "torn": "with other bytes than were sent",
    "unknown": "in the log, and sent by nobody of this run",
    "wrong-offset": "at another offset than was acknowledged",
    "aborted-seen": "of aborted transactions, and given to a read_committed reader",
}
_PERCENT = 100
_SECONDS_LEFT_OUT_MAX = 0.05
"""A run in which the generator was the limit for more is said to have one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the generator itself took."""

    requests_per_cpu_s: float
    busiest: float
    """The largest share of one core that any process had for a second."""
    late_p99_ms: float
    late_max_ms: float


def reasons(result: Result) -> list[str]:
    """Why a run passed or failed, the gravest first."""
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
    return (
        f"{held}, and each of the {audit.acknowledged:,} acknowledged records was found in the log "
        "once, whole and in order."
    )


def finding_text(finding: Finding) -> str:
    """What a finding of the audit means."""
    noun = "record" if finding.count == 1 else "records"
    return f"{finding.count:,} {noun} {finding.kind}: {FINDINGS[finding.kind]}"


def limit_text(threshold: Threshold) -> str:
    """What a threshold asks for."""
    if threshold.max_ms is not None and threshold.percentile is not None:
        name = threshold.percentile.removesuffix("_ms")
        return f"{name} of {threshold.operation} at most {number(threshold.max_ms)} ms"
    if threshold.errors_share is not None:
        return f"failures of {threshold.operation} at most {share(threshold.errors_share)}"
    if threshold.lag_records is not None:
        return f"lag of all groups at the end at most {threshold.lag_records:,} records"
    return f"acknowledged of the intended records at least {share(threshold.throughput_share or 0)}"


def found_text(verdict: Verdict) -> str:
    """What was found where a threshold asks."""
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
    return "no record was to be sent"


def verdict_text(verdict: Verdict) -> str:
    """A threshold and what was found, in one line."""
    found = found_text(verdict) if verdict.found is None else f"found {found_text(verdict)}"
    return f"{limit_text(verdict.threshold)}: {found}"


def answers(result: Result) -> list[str]:
    """What can be said to the question of the scenario."""
    said = []
    if result.capacity is not None:
        said.append(f"The last step at which everything held was {result.capacity:,.0f} records/s.")
    elif result.scenario.shape.kind == "stairs":
        said.append("No step held: already the first was too much.")
    said += aftermaths(result)
    limit = generator_limit(result)
    if limit is not None:
        said.append(limit)
    return said


def only_in_warm_up(result: Result) -> list[str]:
    """Why operations have no figures: all that they did was in the warm-up."""
    told = []
    for operation in result.operations:
        judged = totals(operation, result)
        requests = sum(one.requests for one in operation.intervals)
        if requests and not judged.requests and not judged.failures:
            told.append(
                f"{operation.name} has no figures: all of its {requests:,} requests were made in "
                "the warm-up."
                if requests > 1
                else f"{operation.name} has no figures: its only request was made in the warm-up."
            )
    return told


def generator_limit(result: Result) -> str | None:
    """Says that the generator, not the broker, was the limit, where it was."""
    seconds = sum(end - start for start, end in result.limited_by_generator)
    if not seconds:
        return None
    told = (
        f"The generator, not the broker, was the limit for {seconds:,.0f} s of "
        f"{result.duration_s:,.0f} s"
    )
    if seconds > result.duration_s * _SECONDS_LEFT_OUT_MAX:
        return f"{told}: use more processes or machines before you judge the broker by this run."
    return f"{told}."


def cost(result: Result) -> Cost:
    """What the generator took for what it did."""
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
    """Mean share of a core."""
    return sum(generator.cpu_share) / max(len(generator.cpu_share), 1)


def number(value: float | None) -> str:
    """Three digits that matter: 0.0123, 1.23, 12.3, 1,234."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def value(found: object) -> str:
    """The value of a field of a scenario."""
    if isinstance(found, dict):
        return "(" + ", ".join(f"{key} {value(each)}" for key, each in found.items()) + ")"
    if found is None:
        return "not set"
    return f"{found:,g}" if isinstance(found, float) else str(found)


def share(value: float) -> str:
    """A share in percent; one that is not 0 never looks like it."""
    if 0 < value * _PERCENT < 0.001:
        return "below 0.001 %"
    return f"{value * _PERCENT:.3f}".rstrip("0").rstrip(".") + " %"


def percent(value: float) -> str:
    """A share of a core: whole percents."""
    return f"{value * _PERCENT:.0f} %"


def seconds(value: float) -> str:
    """A span of time: 45 s, 2 min 5 s."""
    minutes, rest = divmod(round(value), 60)
    if not minutes:
        return f"{number(value)} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def moment(iso: str) -> str:
    """A time of ISO 8601 to the second; anything else as it is."""
    try:
        return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return iso


def target_name(result: Result) -> str:
    """A target as comparisons tell it from others."""
    return f"{result.target.kind} at {result.target.bootstrap}"
