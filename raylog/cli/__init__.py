"""The command line, `raylog`. Each command is a module that imports what it needs when it runs."""


def main() -> None:
    """Run the command line; the entry point of the installed script."""
    from raylog.cli.app import run

    run()
