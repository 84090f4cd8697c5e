"""A process's use of its machine, and the lag of its event loop.

Measured only on request. The first request on an event loop starts the timer that measures its lag,
so a process whose metrics nobody reads does not wake up for it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from raylog.actors.metrics.counts import Histogram
from raylog.actors.metrics.families.process import LAG_SECONDS

LAG_TICK_S = 0.25
_PROC = Path("/proc/self")
_STARTED_FIELD = 19
"""In /proc/self/stat, counted from the field after the name: ticks since the boot."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The usage of one process; None for what this system does not report."""

    cpu_seconds: float
    open_files_max: int
    loop_lag: Histogram
    """In seconds, of the running event loop."""
    resident_bytes: int | None
    open_files: int | None
    started_seconds: float | None
    """Since the Unix epoch."""


class LoopLag:
    """Asks an event loop to wake up at regular times, and measures how late it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seconds = Histogram(LAG_SECONDS)
        self._now = loop.time
        self._call_at = loop.call_at
        self._due = self._now() + LAG_TICK_S
        self._call_at(self._due, self._tick)

    def _tick(self) -> None:
        now = self._now()
        self.seconds.observe(max(0.0, now - self._due))
        self._due = now + LAG_TICK_S
        self._call_at(self._due, self._tick)


_LAGS: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopLag] = WeakKeyDictionary()


def usage_here() -> ProcessUsage:
    """Measure this process."""
    loop = asyncio.get_running_loop()
    lag = _LAGS.get(loop)
    if lag is None:
        lag = _LAGS[loop] = LoopLag(loop)
    here = _PROC.is_dir()
    return ProcessUsage(
        cpu_seconds=time.process_time(),
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        loop_lag=lag.seconds,
        resident_bytes=_resident_bytes() if here else None,
        open_files=len(os.listdir(_PROC / "fd")) if here else None,
        started_seconds=_started_seconds() if here else None,
    )


def _resident_bytes() -> int:
    pages = int((_PROC / "statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _started_seconds() -> float:
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    booted = next(
        line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")
    )
    return int(booted.split()[1]) + int(fields[_STARTED_FIELD]) / os.sysconf("SC_CLK_TCK")
