"""Forks Spark's Python workers like `pyspark.daemon`, with less overhead per task.

The setting `spark.python.daemon.module` names this module. Three things take a pyspark worker
longer than a small task itself:

- It invalidates all import caches. Spark puts its jar and two zip files on the path, and Python
  then reads the directories of these archives again: some 70 ms of CPU time. If pyspark is
  installed, nothing is imported from them, so this module removes them from the path.
- It collects garbage, including everything imported: 60 to 120 ms. What the daemon has imported is
  frozen before it forks, so collections skip it.
- It waits for the JVM, whose socket holds a small segment back until the previous one is
  acknowledged (Nagle), while the kernel delays that for 40 ms. This worker acknowledges first.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

MODULE = "raylog.raydp_jobs.worker_daemon"
SETTING = "spark.python.daemon.module"
_ARCHIVES = (".jar", ".zip")
_SPARKS = ("pyspark", "py4j", "spark-core")
_BUFFER_BYTES = 65_536

Main = Callable[[io.BufferedReader, BinaryIO], None]
"""A worker's task: takes its input from the JVM, and its output to the JVM."""


def leave_archives() -> None:
    """Remove Spark's archives from the path if pyspark is available without them."""
    before = list(sys.path)
    sys.path[:] = [each for each in before if not _is_sparks(each)]
    sys.path_importer_cache.clear()
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = before


def _is_sparks(entry: str) -> bool:
    name = Path(entry).name
    return name.endswith(_ARCHIVES) and name.startswith(_SPARKS)


class _Acknowledging(io.RawIOBase):
    """Reads a socket, acknowledging received bytes before it waits for more."""

    def __init__(self, source: io.BufferedReader, connection: socket.socket) -> None:
        self._source, self._connection = source, connection

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # always a memoryview
        """Read available bytes, or wait for the next ones."""
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return self._source.readinto1(buffer)


def prompt(main: Main) -> Main:
    """Wrap a worker's task to avoid delayed acknowledgements in both directions."""

    def run(infile: io.BufferedReader, outfile: BinaryIO) -> None:
        with socket.socket(fileno=os.dup(infile.fileno())) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            main(io.BufferedReader(_Acknowledging(infile, connection), _BUFFER_BYTES), outfile)

    return run


if __name__ == "__main__":
    leave_archives()
    from pyspark import daemon

    if hasattr(socket, "TCP_QUICKACK"):  # Linux only
        daemon.worker_main = prompt(daemon.worker_main)  # type: ignore[attr-defined]  # no types
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]  # it has no types
