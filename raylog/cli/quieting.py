"""Keeps the output of libraries and child processes off the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def output_to(path: Path) -> Iterator[TextIO]:
    """Redirect file descriptor 2 to a file, but not `sys.stderr`.

    Child processes that start in the body, such as Spark's JVM, write to the file until they end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    before = sys.stderr
    before.flush()
    with path.open("w", buffering=1) as log, os.fdopen(os.dup(2), "w", buffering=1) as ours:
        os.dup2(log.fileno(), 2)
        sys.stderr = ours
        try:
            yield log
        finally:
            sys.stderr = before
            os.dup2(ours.fileno(), 2)
