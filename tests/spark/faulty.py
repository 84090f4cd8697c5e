"""Tasks that fail in one way, once: imported by Spark's workers, as the sink's own are."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raylog.raydp_jobs.tasks import WriteRun
from raylog.sink.commit import TaskReport


@dataclass(frozen=True)
class FaultyRun(WriteRun):
    """A run in which the first task to write all its rows meets a fault then."""

    folder: str = ""
    """Of the test; holds a file once the fault was met."""

    def write(self, target: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[TaskReport]:
        """Write, then fail if nobody has yet."""
        reports = list(WriteRun.write(self, target, blocks))
        if self._is_first():
            self.fail()
        yield from reports

    def fail(self) -> None:
        """Meet the fault."""

    def _is_first(self) -> bool:
        try:
            (Path(self.folder) / "met").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class DyingRun(FaultyRun):
    """Its Python worker dies; Spark repeats the task."""

    def fail(self) -> None:
        """Die without a word."""
        os._exit(1)


@dataclass(frozen=True)
class HangingRun(FaultyRun):
    """The task does not end."""

    def fail(self) -> None:
        """Wait for Spark to end it."""
        signal.pause()


@dataclass(frozen=True)
class ShuffleLosingRun(FaultyRun):
    """The shuffle's files are lost; Spark repeats the stage upstream, then this one.

    There must be more tasks than run at a time, so that one has not begun to read.
    """

    shuffle: str = ""
    """Folder of Spark's blocks."""

    def fail(self) -> None:
        """Remove the files; tasks that have begun hold theirs open."""
        for path in Path(self.shuffle).rglob("shuffle_*"):
            path.unlink()
