"""Runs and readers that fail once, in a module that Ray's workers can import."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raylog.ray_data.tasks import RayRun
from raylog.sink.commit import TaskReport


def is_first(folder: str) -> bool:
    """Whether this is the first call for this folder, by any process."""
    try:
        (Path(folder) / "met").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class DyingRun(RayRun):
    """The first worker that writes a partition dies before it reports."""

    folder: str = ""

    def write(self, target: int, parts: Iterable[Any]) -> TaskReport:
        """Write, then exit if this is the first call."""
        report = RayRun.write(self, target, parts)
        if is_first(self.folder):
            os._exit(1)
        return report


@dataclass(frozen=True)
class RepeatedRun(RayRun):
    """One task runs twice under its identity, as if Ray had retried it."""

    folder: str = ""

    def write(self, target: int, parts: Iterable[Any]) -> TaskReport:
        """Write; write again if this is the first call."""
        parts = list(parts)
        report = RayRun.write(self, target, parts)
        return RayRun.write(self, target, parts) if is_first(self.folder) else report


@dataclass(frozen=True)
class DyingReader:
    """For `map_batches`: a reading task's worker exits once, after it has returned some rows."""

    folder: str
    value: bytes
    """Value of a row in the middle of the task's range."""

    def __call__(self, rows: Any) -> Any:
        """Return the rows unchanged."""
        if self.value in rows["value"].to_pylist() and is_first(self.folder):
            os._exit(1)
        return rows
