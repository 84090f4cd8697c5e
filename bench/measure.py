"""CPU and memory of all processes of a peer, read from /proc.

Processes are found by a mark in their environment, which children inherit even if they detach.
"""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

MARK_VARIABLE = "RAYLOG_BENCH_MARK"
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def new_mark() -> str:
    """A unique value for the environment."""
    return uuid.uuid4().hex


def environment(mark: str) -> dict[str, str]:
    """Our environment with the mark. Bytecode caching is as for users."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {MARK_VARIABLE: mark}


def marked_processes(mark: str) -> list[int]:
    """The ids of processes with the mark, ascending."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    return sorted(p for p in pids if wanted in _read(_PROC / str(p) / "environ").split(b"\0"))


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time used so far and current memory of a set of processes."""

    processes: int
    cpu_s: float
    pss_bytes: int


def usage(mark: str) -> Usage:
    """The sum over the marked processes: CPU seconds since their start, and PSS."""
    pids = marked_processes(mark)
    return Usage(
        len(pids), sum(map(cpu_of, pids)), sum(_rollup_bytes(pid, b"Pss:") for pid in pids)
    )


def cpu_seconds(mark: str) -> float:
    """CPU seconds of the marked processes since their start."""
    return sum(map(cpu_of, marked_processes(mark)))


def cpu_by_process(mark: str) -> dict[int, float]:
    """CPU seconds of each marked process since its start."""
    return {pid: cpu_of(pid) for pid in marked_processes(mark)}


def idle_cpu_percent(marks: list[str], seconds: float) -> dict[str, float]:
    """Percent of one core that each mark's processes use while idle."""
    before = {mark: cpu_seconds(mark) for mark in marks}
    began = monotonic()
    sleep(seconds)
    elapsed = monotonic() - began
    return {mark: 100 * (cpu_seconds(mark) - before[mark]) / elapsed for mark in marks}


def cpu_of(pid: int) -> float:
    """CPU seconds of a process since its start; 0 if it is gone."""
    stat = _read(_PROC / str(pid) / "stat")
    if not stat:
        return 0.0
    fields = stat[stat.rindex(b")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def anonymous_bytes(mark: str) -> int:
    """Anonymous memory of the marked processes, without page cache, which the kernel may drop.

    A shared page counts in proportion. Logs are mapped for reading, so with them memory would grow
    with the logs.
    """
    return sum(_rollup_bytes(pid, b"Pss_Anon:") for pid in marked_processes(mark))


def open_files(mark: str) -> int:
    """The number of open file descriptors of the marked processes."""
    return sum(_open_files(pid) for pid in marked_processes(mark))


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(_PROC / str(pid) / "fd"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


def _rollup_bytes(pid: int, field: bytes) -> int:
    for line in _read(_PROC / str(pid) / "smaps_rollup").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: Path) -> bytes:
    """The content of a file; empty if the process is gone or not ours."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
