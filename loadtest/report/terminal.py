"""The report of a run as a table for the terminal."""

from __future__ import annotations

from raylog.loadtest.report.compare import Difference
from raylog.loadtest.results import Result


def print_result(result: Result) -> None:
    """Print the verdict, the operations and what went wrong, in 80 columns."""
    raise NotImplementedError


def print_diff(difference: Difference) -> None:
    """Print what differs between two runs, and whether it is more than their spread."""
    raise NotImplementedError
