"""Reports the progress of commands, and limits the time of calls into Ray."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

from raylog.cli.failures import Failure
from raylog.cli.output import console, print_done, print_failure


@contextlib.contextmanager
def within(timeout_s: float, otherwise: Failure) -> Iterator[None]:
    """End this process with a failure if the body takes longer than `timeout_s`.

    For calls into Ray, which take no timeout and do not react to signals while they wait.
    """
    timer = threading.Timer(timeout_s, _give_up, [otherwise])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(failure: Failure) -> None:
    if sys.stderr.isatty():
        console(stderr=True).show_cursor()  # a spinner hides it
    print_failure(failure)
    sys.stderr.flush()
    os._exit(failure.exit_code)


REMIND_S = 5.0


class Progress:
    """Shows what is being done: as a spinner on a terminal, otherwise as lines."""

    def __init__(self) -> None:
        self._status = console(stderr=True).status("") if sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show what the command waits for, and every few seconds how long it has waited."""
        self.tell(what)
        began = time.monotonic()
        ended = threading.Event()

        def remind() -> None:
            while not ended.wait(REMIND_S):
                self.tell(f"{what}: {time.monotonic() - began:.0f} s")

        thread = threading.Thread(target=remind, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def tell(self, what: str) -> None:
        """Show what is being done now."""
        if self._status is not None:
            self._status.update(what)
        else:
            print_done(what)
