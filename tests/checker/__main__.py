"""`python -m tests.checker FILE...`: checks a history. The exit code is 1 if it has anomalies."""

import gc
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.checker.anomalies import Options
from tests.checker.check import check
from tests.checker.history import HistoryError, load
from tests.checker.report import show, to_json

ANOMALIES = 1
UNUSABLE = 2


def main(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False)],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    write_isolation: Annotated[
        bool, typer.Option(help="Interleaved writes of transactions are anomalies.")
    ] = False,
    process_order: Annotated[
        bool, typer.Option(help="A process's transactions keep their order in cycles.")
    ] = True,
    one_clock: Annotated[
        bool, typer.Option(help="Times of different processes can be compared.")
    ] = True,
    all_sends_recorded: Annotated[
        bool, typer.Option(help="A value that no send has is an anomaly.")
    ] = True,
) -> None:
    """Check the history in FILES, merged. Exit codes: 0 clean, 1 anomalies, 2 malformed."""
    options = Options(write_isolation, process_order, one_clock, all_sends_recorded)
    try:
        verdict = check(load(files), options)
    except HistoryError as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(UNUSABLE) from error
    if as_json:
        typer.echo(to_json(verdict))
    else:
        show(verdict, Console())
    raise typer.Exit(0 if verdict.valid else ANOMALIES)


if __name__ == "__main__":
    gc.disable()  # nothing is cyclic here, and the collector would traverse everything repeatedly
    typer.run(main)
