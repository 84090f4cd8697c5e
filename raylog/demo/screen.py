"""The output of the demonstration."""

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
    """The demonstration cannot continue. The text says what to do."""


class Steps:
    """One bar of the progress display."""

    def __init__(self, display: Progress, text: str, total: int) -> None:
        self._display = display
        self._task = display.add_task(text, total=total)

    def reached(self, count: int) -> None:
        """Set the number of completed records."""
        self._display.update(self._task, completed=count)


def bars(say: Console) -> Progress:
    """Create a display of progress bars. Add bars with `Steps`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=say,
        redirect_stdout=False,  # other output belongs in the log
        redirect_stderr=False,
    )


def screen() -> Console:
    """Return a console on the current standard output, even if `sys.stdout` is replaced later."""
    width = None if sys.stdout.isatty() else _WIDTH_OF_NO_TERMINAL
    return Console(file=sys.stdout, width=width)


@contextmanager
def step(say: Console, text: str) -> Iterator[None]:
    """Show a step that takes time: a spinner on a terminal, and the duration at the end."""
    began = monotonic()
    if not say.is_terminal:
        say.print(f"{text} ...")
    spinner = Spinner("dots", text)
    with Live(spinner, console=say, transient=True, redirect_stdout=False, redirect_stderr=False):
        yield
    say.print(f"{text}: [bold]{monotonic() - began:.1f} s[/bold]")
