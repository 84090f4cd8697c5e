"""`python -m raylog.demo` runs the pipeline; with `clients`, two clients without Spark."""

import sys

import typer

from raylog.demo.clients import clients
from raylog.demo.cluster import end_on_signals
from raylog.demo.pipeline import pipeline

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(pipeline)
app.command()(clients)


def main() -> None:
    """Run the command given on the command line, or `pipeline` if there is none."""
    end_on_signals()
    words = sys.argv[1:]
    app(words if words[:1] in (["pipeline"], ["clients"], ["--help"]) else ["pipeline", *words])


if __name__ == "__main__":
    main()
