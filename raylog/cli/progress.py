"""Telling what a command is doing while it takes its time."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from raylog.cli.failures import Failure
from raylog.cli.output import console, print_done, print_failure


@contextlib.contextmanager
def within(timeout_s: float, otherwise: Failure) -> Iterator[None]:
    """End this process with a failure if what is inside takes longer.

    For calls into Ray, which neither take a deadline nor answer to signals while they wait.
    """
    timer = threading.Timer(timeout_s, _give_up, [otherwise])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(failure: Failure) -> None:
    print_failure(failure)
    sys.stderr.flush()
    os._exit(failure.exit_code)


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
