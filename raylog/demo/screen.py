"""What the demonstration says while it works."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner

_WIDTH_OF_NO_TERMINAL = 100


class DemoError(Exception):
    """The demonstration cannot go on; the text says what to do."""


class Steps:
    """One bar of the progress display."""

    def __init__(self, display: Progress, text: str, total: int) -> None:
        self._display = display
        self._task = display.add_task(text, total=total)

    def reached(self, count: int) -> None:
        """So many records are done."""
        self._display.update(self._task, completed=count)


def bars(say: Console) -> Progress:
    """A display of bars; add them with `Steps`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=say,
        redirect_stdout=False,  # what others print is for the log
        redirect_stderr=False,
    )


def screen() -> Console:
    """Standard output as it is now, whoever replaces `sys.stdout` later."""
    width = None if sys.stdout.isatty() else _WIDTH_OF_NO_TERMINAL
    return Console(file=sys.stdout, width=width)


@contextmanager
def step(say: Console, text: str) -> Iterator[None]:
    """Something that takes its time: a spinner on a terminal, and how long it took at the end."""
    began = monotonic()
    if not say.is_terminal:
        say.print(f"{text} ...")
    spinner = Spinner("dots", text)
    with Live(spinner, console=say, transient=True, redirect_stdout=False, redirect_stderr=False):
        yield
    say.print(f"{text}: [bold]{monotonic() - began:.1f} s[/bold]")
