"""Tables, JSON and messages. Answers go to standard output, everything else to standard error."""

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
    """What a command that was called with --json has to say."""

    messages: list[str] = field(default_factory=list)
    """What it did, line by line."""
    failed: list[str] = field(default_factory=list)
    """What failed, where the command goes on with the rest."""
    is_printed: bool = False


_answer: ContextVar[Answer | None] = ContextVar("_answer", default=None)


@contextmanager
def answering() -> Iterator[Answer]:
    """Inside, standard output is for one JSON document only."""
    answer = Answer()
    token = _answer.set(answer)
    try:
        yield answer
    finally:
        _answer.reset(token)


def print_answer(text: str, facts: Mapping[str, object]) -> None:
    """Print an answer: the text, or the facts where --json was given."""
    answer = _answer.get()
    if answer is None:
        typer.echo(text)
    else:
        answer.is_printed = True
        print_json(facts)


def print_line(text: str) -> None:
    """One line of several to standard output; to standard error where --json was given."""
    typer.echo(text, err=_answer.get() is not None)


def console(*, stderr: bool = False) -> Console:
    """Where rich output goes; without a terminal lines are long rather than cut."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_OF_NO_TERMINAL
    return Console(stderr=stderr, width=width, highlight=False)


def print_json(value: object) -> None:
    """One JSON document."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print a table as `table` makes it."""
    console().print(table(title, columns, rows))


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; columns whose name ends in "#" are numbers and stand right."""
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
    """Print rows as JSON, or as a table with their values, or their `cells`, and then a note."""
    if as_json:
        print_json(rows)
        return
    print_table(None, columns, [list(cells(row)) for row in rows])
    if note:
        print_done(note)


def print_done(message: str) -> None:
    """Say that something was done; on standard error, so that pipes carry data only."""
    answer = _answer.get()
    if answer is not None:
        answer.messages.append(message)
    typer.echo(message, err=True)


def print_failure(failure: Failure) -> None:
    """Say what failed and what to do. Texts from outside are escaped, and cut, line by line."""
    from raylog.actors.log_formatting import plain

    message = "\n".join(plain(line) for line in failure.message.splitlines())
    answer = _answer.get()
    if answer is not None:
        answer.failed.append(message)
    typer.secho(f"Error: {message}", fg=typer.colors.RED, err=True)
    if failure.hint:
        typer.echo(failure.hint, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask at a terminal, unless the answer was given; aborts if it is no."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def counted(number: int, noun: str) -> str:
    """A number of things: "1 broker", "3 brokers"."""
    several = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else several}"


def human_bytes(size: int) -> str:
    """A size for people: 1.5 MiB."""
    if size < 0:
        return "?"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"


def _cell(value: object) -> str:
    """One cell's text; square brackets must not be taken for markup."""
    from rich.markup import escape

    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return escape(",".join(str(item) for item in value))
    return escape(str(value))
