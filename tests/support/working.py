"""Work in threads and processes beside a test, until a `with` block ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

JOIN_S = 120.0


class Until(ABC):
    """A context manager made of `begin` and `end`."""

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    @abstractmethod
    def begin(self) -> None:
        """Enter the block."""

    @abstractmethod
    def end(self) -> None:
        """Leave the block, after an exception or without one."""


class Working(Until):
    """Work in a thread until the `with` block ends or `finish` is called."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.ending = threading.Event()
        self._thread = threading.Thread(target=self.work, name=type(self).__name__, daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Finish the work."""
        self.finish()

    def finish(self) -> None:
        """End the work and wait for the thread."""
        self.ending.set()
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive(), f"the {self._thread.name} does not end"

    @abstractmethod
    def work(self) -> None:
        """Work until `ending` is set."""


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process whose stdin is a pipe with SIGKILL."""
    process.kill()
    process.wait()
    close(process.stdin)


def close(stdin: IO[bytes] | None) -> None:
    """Close the stdin of a process, which may be gone."""
    assert stdin is not None
    with suppress(BrokenPipeError):
        stdin.close()


def input_ended() -> bool:
    """Return whether the parent process has closed our stdin."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)
