"""The command line, `raylog`. Each command is a module that imports what it needs when it runs."""

import sys

from raylog.extras import MissingExtra, needs

_EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line; the entry point of the installed script."""
    try:
        with needs("cli", "The command raylog"):
            from raylog.cli.app import run
    except MissingExtra as missing:
        sys.exit(f"Error: {missing}")
    except KeyboardInterrupt:  # later ones are typer's
        sys.exit(_EXIT_INTERRUPTED)
    run()
