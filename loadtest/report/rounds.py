"""Compares several runs of one scenario by target, with the spread over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from raylog.loadtest.report import words
from raylog.loadtest.report.charts import Chart, line, per_second
from raylog.loadtest.report.compare import SAME, Change, Difference, diff
from raylog.loadtest.report.markup import Html, el, joined, table
from raylog.loadtest.report.series import NAMES, by_frequency, points, width_s
from raylog.loadtest.results import Result

_DASHES = ("solid", "dot", "dash", "longdash", "dashdot")
COLUMNS = ("operation", "figure", "A#", "B#", "B / A#", "spread#", "B is")
_ROUNDS_MIN = 3
"""The fewest close rounds that show figures to be the same."""
_P50, _P99 = NAMES.index("p50"), NAMES.index("p99")


@dataclass(frozen=True, slots=True)
class Target:
    """A target and its runs in order."""

    name: str
    runs: Sequence[Result]


def by_target(results: Sequence[Result]) -> list[Target]:
    """The targets in order of appearance. The others are compared with the first."""
    names = list(dict.fromkeys(words.target_name(one) for one in results))
    return [
        Target(name, [one for one in results if words.target_name(one) == name]) for name in names
    ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two targets."""

    a: str
    b: str
    method: str
    """The source of the spreads."""
    rows: Sequence[Sequence[str]]
    """The rows for `COLUMNS`."""
    notes: Sequence[str]


def compared(a: str, b: str, rounds: Sequence[Difference]) -> Comparison:
    """Compare two targets by the differences of each round."""
    return Comparison(
        a, b, _method(len(rounds)), [_row(changes) for changes in _matched(rounds)], _notes(rounds)
    )


def comparisons(results: Sequence[Result]) -> list[Comparison]:
    """Each target compared with the first."""
    targets = by_target(results)
    if len(targets) == 1:  # repeated runs: each is a target
        targets = [
            Target(f"run {number}: {one.run}", [one]) for number, one in enumerate(results, start=1)
        ]
    first = targets[0]
    return [
        compared(
            first.name,
            other.name,
            [diff(x, y, force=True) for x, y in zip(first.runs, other.runs, strict=False)],
        )
        for other in targets[1:]
    ]


def side_by_side(results: Sequence[Result]) -> Html:
    """The figures of all targets and their ratios."""
    return joined([_shown(one) for one in comparisons(results)])


def _shown(found: Comparison) -> Html:
    return joined(
        [
            el("h3", f"{found.b} (B) compared with {found.a} (A)"),
            el("p", found.method),
            table(COLUMNS, found.rows),
            el("ul", [el("li", note) for note in found.notes]) if found.notes else Html(""),
        ]
    )


def _method(rounds: int) -> str:
    if rounds == 1:
        return (
            "There is one run of each: the spread of a ratio (99 %) comes from blocks of seconds "
            "within the two runs. Repeated runs may differ by more; use several rounds to see "
            "that."
        )
    return (
        f"There are {rounds} rounds: figures are medians over the rounds, with the smallest and "
        "the largest; a ratio is the median of the ratios within rounds, its spread the smallest "
        "and the largest of these."
    )


def _matched(rounds: Sequence[Difference]) -> list[list[Change]]:
    """The changes of one figure in all rounds, if every round has it."""
    found: dict[tuple[str, str], list[Change]] = {}
    for difference in rounds:
        for change in difference.changes:
            found.setdefault((change.operation, change.figure), []).append(change)
    return [changes for changes in found.values() if len(changes) == len(rounds)]


def _row(changes: Sequence[Change]) -> list[str]:
    first = changes[0]
    ratios = [one.ratio for one in changes if one.ratio is not None]
    if len(changes) == 1:
        low, high, says = first.low, first.high, str(first.says)
    else:
        low, high = min(ratios, default=None), max(ratios, default=None)
        says = _over_rounds(changes, ratios)
    return [
        first.operation,
        first.figure,
        _several([one.a for one in changes]),
        _several([one.b for one in changes]),
        f"{median(ratios):.2f}" if ratios else "-",
        "-" if low is None or high is None else f"{low:.2f}–{high:.2f}",
        says,
    ]


def _over_rounds(changes: Sequence[Change], ratios: Sequence[float]) -> str:
    """The verdict that all rounds agree on."""
    found = {one.says for one in changes}
    if len(found) == 1 and "unclear" not in found:
        return f"{found.pop()} in all rounds"
    all_near = all(abs(ratio - 1) <= SAME for ratio in ratios)
    if all_near and len(ratios) == len(changes) and len(ratios) >= _ROUNDS_MIN:
        return "same in all rounds"
    return "unclear"


def _several(found: Sequence[float | None]) -> str:
    known = [one for one in found if one is not None]
    if not known:
        return "-"
    if len(known) == 1:
        return words.number(known[0])
    median_text = words.number(median(known))
    return f"{median_text} ({words.number(min(known))}–{words.number(max(known))})"


def _notes(rounds: Sequence[Difference]) -> list[str]:
    """Notes on each round."""
    return [
        note if len(rounds) == 1 else f"Round {number}: {note}"
        for number, one in enumerate(rounds, start=1)
        for note in one.notes
    ]


def overlays(results: Sequence[Result]) -> list[Chart]:
    """Throughput and latency by operation, with a colour per target and a line per run."""
    width = max(width_s(one.duration_s) for one in results)
    names = list(dict.fromkeys(each.name for one in results for each in by_frequency(one)))
    return [chart for name in names for chart in _overlays(name, results, width)]


def _overlays(name: str, results: Sequence[Result], width: int) -> list[Chart]:
    lines: dict[str, list[dict[str, Any]]] = {"rate": [], "p50": [], "p99": []}
    targets = by_target(results)
    for number, target in enumerate(targets):
        for round_, run in enumerate(target.runs):
            operation = next((one for one in run.operations if one.name == name), None)
            if operation is None:
                continue
            found = points(operation, run.duration_s, width)
            label = target.name if len(target.runs) == 1 else f"{target.name}, {round_ + 1}"
            figures: dict[str, list[tuple[float, float | None]]] = {
                "rate": [(each.at_s, each.requests / width) for each in found],
                "p50": [(each.at_s, each.percentiles_ms[_P50]) for each in found],
                "p99": [(each.at_s, each.percentiles_ms[_P99]) for each in found],
            }
            colour = number if len(targets) > 1 else round_
            for what, values in figures.items():
                made = line(colour, label, values)
                made["line"]["dash"] = _DASHES[round_ % len(_DASHES)]
                lines[what].append(made)
    return [
        per_second(f"{name}: throughput", lines["rate"]),
        *(
            Chart(
                f"{name}: {what}, ms",
                "",
                lines[what],
                {"yaxis": {"type": "log"}},
            )
            for what in ("p50", "p99")
        ),
    ]
