"""Prints tables, JSON and messages. Answers go to standard output, the rest to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from raylog.cli.failures import Failure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = dict[str, object]
_WIDTH_OF_NO_TERMINAL = 200
_KIB = 1024


@dataclass(slots=True)
class Answer:
    """The output of a command that was called with --json."""

    messages: list[str] = field(default_factory=list)
    """What it did, line by line."""
    failed: list[str] = field(default_factory=list)
    """Failures after which the command continued."""
    is_printed: bool = False


_answer: ContextVar[Answer | None] = ContextVar("_answer", default=None)


@contextmanager
def answering() -> Iterator[Answer]:
    """Within this context, standard output is for one JSON document only."""
    answer = Answer()
    token = _answer.set(answer)
    try:
        yield answer
    finally:
        _answer.reset(token)


def print_answer(text: str, facts: Mapping[str, object]) -> None:
    """Print an answer: the text, or the facts if --json was given."""
    answer = _answer.get()
    if answer is None:
        typer.echo(text)
    else:
        answer.is_printed = True
        print_json(facts)


def print_line(text: str) -> None:
    """Print one line of several to standard output, or to standard error if --json was given."""
    typer.echo(text, err=_answer.get() is not None)


def console(*, stderr: bool = False) -> Console:
    """Return a console for rich output; without a terminal, its lines are long."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_OF_NO_TERMINAL
    return Console(stderr=stderr, width=width, highlight=False)


def print_json(value: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print a table that `table` returns."""
    console().print(table(title, columns, rows))


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table. Columns whose names end in "#" are numbers, aligned right."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column in columns:
        name = column.removesuffix("#")
        made.add_column(name, justify="right" if name != column else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    as_json: bool,
    cells: Callable[[Row], Iterable[object]] = dict.values,
    note: str = "",
) -> None:
    """Print rows as JSON, or as a table of their values (or of `cells`), followed by a note."""
    if as_json:
        print_json(rows)
        return
    print_table(None, columns, [list(cells(row)) for row in rows])
    if note:
        print_done(note)


def print_done(message: str) -> None:
    """Print a message to standard error, so that pipes carry only data."""
    answer = _answer.get()
    if answer is not None:
        answer.messages.append(message)
    typer.echo(message, err=True)


def print_failure(failure: Failure) -> None:
    """Print what failed and what to do. Each line of the message is escaped and truncated."""
    from raylog.actors.log_formatting import plain

    message = "\n".join(plain(line) for line in failure.message.splitlines())
    answer = _answer.get()
    if answer is not None:
        answer.failed.append(message)
    typer.secho(f"Error: {message}", fg=typer.colors.RED, err=True)
    if failure.hint:
        typer.echo(failure.hint, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation on a terminal, unless `yes` is set. Raises Abort if it is denied."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 broker", "3 brokers"."""
    several = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else several}"


def human_bytes(size: int) -> str:
    """Format a size: "1.5 MiB", or "?" if it is negative."""
    if size < 0:
        return "?"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"


def _cell(value: object) -> str:
    """Return the text of a cell. Square brackets are escaped: they are not markup."""
    from rich.markup import escape

    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return escape(",".join(str(item) for item in value))
    return escape(str(value))
