"""Reports on results, for people and programs: HTML, a terminal table, JSON, comparisons."""

from raylog.loadtest.report.compare import Change, Difference, DifferentScenarios, diff, too_short
from raylog.loadtest.report.files import BadResult, as_json, read_json, write_json
from raylog.loadtest.report.html import write_html
from raylog.loadtest.report.rounds import Comparison, compared, comparisons
from raylog.loadtest.report.terminal import print_comparison, print_result

__all__ = [
    "BadResult",
    "Change",
    "Comparison",
    "Difference",
    "DifferentScenarios",
    "as_json",
    "compared",
    "comparisons",
    "diff",
    "print_comparison",
    "print_result",
    "read_json",
    "too_short",
    "write_html",
    "write_json",
]
