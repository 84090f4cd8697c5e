"""Telling what a command is doing while it takes its time."""

from __future__ import annotations

import sys

from raylog.cli.output import console, print_done


class Progress:
    """What is being done, as a spinner on a terminal and as lines elsewhere."""

    def __init__(self) -> None:
        self._status = console(stderr=True).status("") if sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, what: str) -> None:
        """Say what comes next."""
        if self._status is not None:
            self._status.update(what)
        else:
            print_done(what)
