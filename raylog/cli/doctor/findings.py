"""What a check of `raylog doctor` says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check came out, the best first."""

    OK = "ok"
    UNKNOWN = "unknown"
    """It could not be found out; that is no failure."""
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    found: str
    do: str = ""
    """What to do, of a warning or a failure."""

    def __post_init__(self) -> None:
        is_bad = self.status in (Status.WARNING, Status.FAILURE)
        assert bool(self.do) >= is_bad, f"{self.check}: nobody learns what to do"


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Status.OK, found)


def unknown(check: str, why: str) -> Finding:
    """It could not be found out."""
    return Finding(check, Status.UNKNOWN, why)


def warning(check: str, found: str, do: str) -> Finding:
    """It works, or may fail later."""
    return Finding(check, Status.WARNING, found, do)


def failure(check: str, found: str, do: str) -> Finding:
    """It does not work."""
    return Finding(check, Status.FAILURE, found, do)


def counts(findings: Iterable[Finding]) -> str:
    """How many of each, in a line."""
    found = [one.status for one in findings]
    return f"{len(found)} checks: " + ", ".join(
        f"{found.count(status)} {status}" for status in Status if status in found
    )


def lines(findings: Iterable[Finding], check_width: int) -> Iterator[str]:
    """One line for each, and a second one with what to do."""
    for one in findings:
        yield f"{one.status:<8} {one.check:<{check_width}}  {one.found}"
        if one.do:
            yield f"{'':<8} {'':<{check_width}}  -> {one.do}"
