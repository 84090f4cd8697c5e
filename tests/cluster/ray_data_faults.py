"""Writers of a run that meet a fault once: imported by Ray's workers, as the sink's own are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raylog.ray_data.tasks import RayRun
from raylog.raydp_jobs.commit import TaskReport


def is_first(folder: str) -> bool:
    """Whether nobody has met the fault of this folder yet."""
    try:
        (Path(folder) / "met").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class DyingRun(RayRun):
    """The worker of the first partition that is written dies then."""

    folder: str = ""

    def write(self, target: int, parts: Iterable[Any]) -> TaskReport:
        """Write, then die if nobody has."""
        report = RayRun.write(self, target, parts)
        if is_first(self.folder):
            os._exit(1)
        return report


@dataclass(frozen=True)
class RepeatedRun(RayRun):
    """One task is executed twice under its identity, as if Ray had repeated it."""

    folder: str = ""

    def write(self, target: int, parts: Iterable[Any]) -> TaskReport:
        """Write, and again if nobody has."""
        parts = list(parts)
        report = RayRun.write(self, target, parts)
        return RayRun.write(self, target, parts) if is_first(self.folder) else report


@dataclass(frozen=True)
class DyingReader:
    """For `map_batches`: a reading task's worker dies once, with rows of it handed on."""

    folder: str
    value: bytes
    """Of a row in the middle of its range."""

    def __call__(self, rows: Any) -> Any:
        """Pass rows on."""
        if self.value in rows["value"].to_pylist() and is_first(self.folder):
            os._exit(1)
        return rows
