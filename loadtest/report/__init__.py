"""What a run found, for people and machines: HTML, a table for the terminal, JSON, differences."""

from raylog.loadtest.report.compare import Change, Difference, DifferentScenarios, diff
from raylog.loadtest.report.files import BadResult, as_json, read_json, write_json
from raylog.loadtest.report.html import write_html
from raylog.loadtest.report.terminal import print_diff, print_result

__all__ = [
    "BadResult",
    "Change",
    "Difference",
    "DifferentScenarios",
    "as_json",
    "diff",
    "print_diff",
    "print_result",
    "read_json",
    "write_html",
    "write_json",
]
