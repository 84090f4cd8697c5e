"""Builds the result of a run from the reports of its processes."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

import raylog
from raylog.loadtest.generator import limited, within
from raylog.loadtest.leader import Leader
from raylog.loadtest.ledger import Fate, merged
from raylog.loadtest.results import Audit, Finding, Gauge, Result, Target, Verdict
from raylog.loadtest.retries import divided, without_idempotence
from raylog.loadtest.scenario import Stairs
from raylog.loadtest.shapes import UNJUDGED
from raylog.loadtest.verdicts import judge, nothing_acknowledged

NOTHING_ACKNOWLEDGED = "no record was acknowledged in the whole run"


def result_of(leader: Leader, target: Target, audit: Audit, gauges: Iterable[Gauge]) -> Result:
    """The result of a run that has ended."""
    job, merged_reports = leader.job, leader.merged_reports
    reports = [merged_reports.generators[worker] for worker in sorted(merged_reports.generators)]
    generators = within(reports, leader.ended_s)
    wrong, notes = divided(audit.findings, without_idempotence(leader.names))
    excused = sum(one.count for one in audit.findings) - sum(one.count for one in wrong)
    failure = leader.stopped
    if leader.failure is not None:
        failure = str(leader.failure) or type(leader.failure).__name__
    elif failure is None and nothing_acknowledged(leader.measured(0.0, leader.ended_s)):
        failure = NOTHING_ACKNOWLEDGED
    return Result(
        run=job.run,
        started=leader.started_at,
        duration_s=round(leader.ended_s, 3),
        scenario=job.scenario,
        target=target,
        machine=machine(),
        raylog=version(),
        operations=list(merged_reports.operations().values()),
        generators=generators,
        gauges=list(gauges),
        marks=sorted(leader.marks, key=lambda mark: mark.at_s),
        audit=audit.model_copy(update={"findings": wrong, "excused": excused}),
        verdicts=_verdicts(leader),
        limited_by_generator=limited(generators, leader.ended_s),
        capacity=leader.course.capacity,
        notes=[*leader.notes, *notes],
        failure=failure,
    )


def _verdicts(leader: Leader) -> list[Verdict]:
    """The verdicts on the run after its warm-up.

    With stairs they are about the last step that held, or about the first step.
    """
    scenario, course = leader.job.scenario, leader.course
    from_s, to_s = scenario.warmup_s, leader.ended_s
    if isinstance(scenario.shape, Stairs):
        hold_s = scenario.shape.hold_s
        from_s, to_s = from_s + UNJUDGED * hold_s, min(to_s, from_s + hold_s)
        if course.held is not None:
            from_s, to_s = course.held.judged_from_s, course.held.ends_s
    return judge(scenario.thresholds, leader.measured(from_s, to_s))


def unread(ledgers: Iterable[bytes], findings: list[Finding]) -> Audit:
    """The audit of a run whose records were not read back: what its producers know."""
    runs = merged(ledgers).values()

    def count(fate: Fate) -> int:
        return sum(int(rows[rows[:, -1] == fate, -2].sum()) for rows in runs)

    return Audit(
        acknowledged=count(Fate.ACKNOWLEDGED),
        unanswered=count(Fate.UNANSWERED),
        found=0,
        findings=findings,
    )


def machine() -> str:
    """A description of this machine, for comparing results."""
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, {_processor()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def version() -> str:
    """The version of Raylog, with the commit in a checkout."""
    here = Path(__file__).resolve().parent.parent
    if not (here / ".git").exists():
        return raylog.__version__
    asked = ["git", "-C", str(here), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603 - fixed
    except (OSError, subprocess.CalledProcessError):
        return raylog.__version__
    return f"{raylog.__version__}, commit {commit.stdout.strip()}"
