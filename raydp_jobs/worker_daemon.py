"""Forks Spark's Python workers as `pyspark.daemon` does, for tasks that are shorter than its rites.

`spark.python.daemon.module` names it. Three things take a worker of pyspark longer than a small
task itself:

- It invalidates all import caches. Spark puts its jar and two zip files on the path, and Python
  reads the directories of archives anew for that: some 70 ms of a core. Where pyspark is installed
  nothing is imported from them, so they leave the path.
- It collects garbage, through all that was ever imported: 60 to 120 ms. What the daemon has
  imported is frozen before it forks, so collectors pass it over.
- It waits for the JVM, whose socket holds a small piece back until the one before is acknowledged
  (Nagle), while the kernel delays that for 40 ms. It acknowledges before it waits.
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
"""A worker's task: what it reads from the JVM, and what it writes to it."""


def leave_archives() -> None:
    """Take Spark's archives off the path if pyspark is there without them."""
    before = list(sys.path)
    sys.path[:] = [each for each in before if not _is_sparks(each)]
    sys.path_importer_cache.clear()
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = before


def _is_sparks(entry: str) -> bool:
    name = Path(entry).name
    return name.endswith(_ARCHIVES) and name.startswith(_SPARKS)


class _Acknowledging(io.RawIOBase):
    """A socket's bytes, of which each is acknowledged before more are waited for."""

    def __init__(self, source: io.BufferedReader, connection: socket.socket) -> None:
        self._source, self._connection = source, connection

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what it comes to
        """Bytes that are there, or the next ones."""
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return self._source.readinto1(buffer)


def prompt(main: Main) -> Main:
    """A worker's task that neither waits for delayed acknowledgements nor causes such waits."""

    def run(infile: io.BufferedReader, outfile: BinaryIO) -> None:
        with socket.socket(fileno=os.dup(infile.fileno())) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            main(io.BufferedReader(_Acknowledging(infile, connection), _BUFFER_BYTES), outfile)

    return run


if __name__ == "__main__":
    leave_archives()
    from pyspark import daemon

    import raylog.raydp_jobs.rows
    import raylog.raydp_jobs.tasks  # noqa: F401  # forked workers have both

    if hasattr(socket, "TCP_QUICKACK"):  # of Linux
        daemon.worker_main = prompt(daemon.worker_main)  # type: ignore[attr-defined]  # no types
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]  # it has no types
