"""The report of a run as text: 80 columns, without colours if there is no terminal."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.log_formatting import plain
from raylog.cli.output import console, table
from raylog.loadtest.report import words
from raylog.loadtest.report.rounds import COLUMNS, Comparison
from raylog.loadtest.report.series import Totals, by_frequency, totals
from raylog.loadtest.results import Result

WIDTH = 80
_ERRORS_MAX = 5
_EXAMPLES_MAX = 3
_NAME_MAX = 16


def print_result(result: Result) -> None:
    """Print the verdict, the operations and the errors in 80 columns."""
    out = console()
    out.width = WIDTH
    brokers = "1 broker" if result.target.brokers == 1 else f"{result.target.brokers} brokers"
    style = "bold green" if result.passed else "bold red"
    verdict = "PASSED" if result.passed else "FAILED"
    out.print(
        plain(
            f"{result.scenario.name} at {words.target_name(result)}, {brokers}, "
            f"{words.seconds(result.duration_s)}"
        ),
        markup=False,
    )
    out.print(verdict, style=style)
    _print_lines(words.reasons(result), indent="  ")
    _print_lines(words.answers(result))
    found = [totals(operation, result) for operation in by_frequency(result)]
    out.print(table(None, _COLUMNS, [_row(each) for each in found]))
    _print_lines(words.only_in_warm_up(result))
    _print_lines(_errors(result), indent="  ")
    _print_lines(_examples(result), indent="  ")
    cost = words.cost(result)
    _print_lines(
        [
            f"The generator did {cost.requests_per_cpu_s:,.0f} requests per CPU-second; its "
            f"busiest process took up to {words.percent(cost.busiest)} of a core.",
            *result.notes,
        ]
    )


_COLUMNS = ("operation", "per s#", "p50#", "p90#", "p99#", "p99.9#", "max ms#", "failed#")


def _row(found: Totals) -> list[str]:
    return [
        _name(found.name),
        words.number(found.rate),
        *(words.number(value) for value in found.percentiles_ms),
        f"{found.failures:,}",
    ]


def _errors(result: Result) -> list[str]:
    found = sorted(
        (
            (count, f"{operation.name}: {text}")
            for operation in result.operations
            for text, count in operation.errors.items()
        ),
        reverse=True,
    )
    lines = [f"{count:,} × {text}" for count, text in found[:_ERRORS_MAX]]
    left_out = len(found) - _ERRORS_MAX
    return [*lines, f"and {left_out} rarer errors"] if left_out > 0 else lines


def _examples(result: Result) -> list[str]:
    return [
        f"{finding.kind}: {example}"
        for finding in result.audit.findings
        for example in finding.examples[:_EXAMPLES_MAX]
    ]


def print_comparison(found: Comparison) -> None:
    """Print the differences between two targets, and whether they exceed the spread."""
    out = console()
    out.width = WIDTH
    _print_lines([f"A: {found.a}", f"B: {found.b}"])
    rows = [[_name(operation), *figures] for operation, *figures in found.rows]
    out.print(table(None, COLUMNS, rows))
    _print_lines([*found.notes, found.method])


def _name(name: str) -> str:
    cut = name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"
    return plain(cut)


def _print_lines(lines: Iterable[str], indent: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    out.width = WIDTH
    for line in lines:
        out.print(Padding(Text(plain(line)), (0, 0, 0, len(indent))))
