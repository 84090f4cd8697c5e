"""Findings: the results of the checks of `raylog doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Outcome of a check, the best first."""

    OK = "ok"
    UNKNOWN = "unknown"
    """It could not be determined, which is not a failure."""
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    status: Status
    found: str
    do: str = ""
    """What to do about a warning or failure."""

    def __post_init__(self) -> None:
        is_bad = self.status in (Status.WARNING, Status.FAILURE)
        assert bool(self.do) >= is_bad, f"{self.check}: nobody learns what to do"


def ok(check: str, found: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, Status.OK, found)


def unknown(check: str, why: str) -> Finding:
    """Return a finding that something could not be determined."""
    return Finding(check, Status.UNKNOWN, why)


def warning(check: str, found: str, do: str) -> Finding:
    """Return a finding that something works, but may fail later."""
    return Finding(check, Status.WARNING, found, do)


def failure(check: str, found: str, do: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(check, Status.FAILURE, found, do)


def counts(findings: Iterable[Finding]) -> str:
    """Return the number of findings by status, in one line."""
    found = [one.status for one in findings]
    return f"{len(found)} checks: " + ", ".join(
        f"{found.count(status)} {status}" for status in Status if status in found
    )


def lines(findings: Iterable[Finding], check_width: int) -> Iterator[str]:
    """Yield a line for each finding, and a second one if there is something to do."""
    for one in findings:
        yield f"{one.status:<8} {one.check:<{check_width}}  {one.found}"
        if one.do:
            yield f"{'':<8} {'':<{check_width}}  -> {one.do}"
