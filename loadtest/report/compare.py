"""Two runs of one scenario: what differs by more than the spread within the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raylog.loadtest.results import Result


class DifferentScenarios(ValueError):
    """Runs of different scenarios, whose figures say nothing about each other."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one operation in both runs."""

    operation: str
    figure: str
    """"requests/s", "p50_ms"..."""
    a: float
    b: float
    ratio: float | None
    """b to a, as the median of the ratios of all pairs of blocks; None where there are too few."""
    low: float | None
    high: float | None
    """Where the ratio lies with a confidence of 99 %."""
    says: Literal["better", "worse", "same", "unclear"]


@dataclass(frozen=True, slots=True)
class Difference:
    """What `diff` found."""

    changes: Sequence[Change]
    notes: Sequence[str]


def diff(a: Result, b: Result, *, force: bool = False) -> Difference:
    """Compare two runs; DifferentScenarios unless they are of the same, or `force` is given."""
    raise NotImplementedError
