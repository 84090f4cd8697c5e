"""Records of processes that we started, which do not match others that reuse their pid.

The system reuses pids, but not a pid with its start time, within one boot.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CHILD = "child"
"""Name of a process that a Raylog process has started."""
_PROC = Path("/proc")
_GONE_MS = 10_000


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process start."""

    name: str
    """A description for people, such as "raylet"."""
    pid: int
    started: str
    """Start time as the system writes it; only compared, never parsed."""


def record_of(name: str, pid: int) -> ProcessRecord | None:
    """Record a running process; None if no process has that pid."""
    started = _started(pid)
    return None if started is None else ProcessRecord(name, pid, started)


def is_running(record: ProcessRecord) -> bool:
    """Whether that process start still runs. A zombie does not."""
    _reap(record.pid)
    return _started(record.pid) == record.started


def cores_here() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def be_as_urgent_as_parent() -> bool:
    """Take the niceness of the parent process; return False if that is not allowed.

    Ray starts its workers at niceness 15 by default, which would give them the CPU last.
    """
    wanted = os.getpriority(os.PRIO_PROCESS, os.getppid())
    if os.getpriority(os.PRIO_PROCESS, 0) <= wanted:
        return True
    threads = [int(one.name) for one in (_PROC / "self/task").iterdir()] if _PROC.is_dir() else [0]
    try:
        for thread in threads:  # niceness is per thread
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread, wanted)
    except PermissionError:
        return False
    return True


def pid_space() -> str | None:
    """Return an id of the pid namespace, equal in two processes only if pids mean the same to both.

    It includes the boot. None if the system does not tell.
    """
    try:
        return f"{_boot_id()}:{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def descendants(records: Iterable[ProcessRecord]) -> list[ProcessRecord]:
    """Return all descendants of the recorded processes that still run, without these."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[ProcessRecord] = []
    pending = [record.pid for record in records if is_running(record)]
    while pending:
        for child in children.get(pending.pop(), []):
            record = record_of(CHILD, child)
            if record is not None:
                found.append(record)
                pending.append(child)
    return found


def end(records: Iterable[ProcessRecord], *, grace_ms: int) -> list[ProcessRecord]:
    """End processes: SIGTERM to all, SIGKILL to those left after `grace_ms`.

    Returns those that still run 10 s after SIGKILL (blocked in the kernel), normally none. On a
    busy machine a killed process with a low priority, such as Ray's workers, takes seconds to end.
    """
    left = [record for record in records if _signal(record, signal.SIGTERM)]
    left = _wait(left, grace_ms)
    left = [record for record in left if _signal(record, signal.SIGKILL)]
    return _wait(left, _GONE_MS)


def was_started_here(record: ProcessRecord) -> bool:
    """Whether a process was recorded on this machine, since its last boot."""
    return not _PROC.is_dir() or record.started.startswith(f"{_boot_id()}:")


def kill_and_wait(record: ProcessRecord) -> None:
    """Kill that process start and wait until it is gone, at most 10 s. Blocking.

    A process that reuses the pid is left alone.
    """
    try:
        descriptor = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return
    try:
        if _started(record.pid, ended_too=True) != record.started:
            return  # the descriptor is another process's
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
    except (ProcessLookupError, ChildProcessError):
        _poll_gone(descriptor)
    finally:
        os.close(descriptor)


def _poll_gone(descriptor: int) -> None:
    """Wait for the end of a process that is not our child."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(_GONE_MS)


def _wait(records: list[ProcessRecord], timeout_ms: int) -> list[ProcessRecord]:
    """Wait until the processes are gone; return those that are not."""
    deadline = time.monotonic() + timeout_ms / 1000
    left = [record for record in records if is_running(record)]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [record for record in left if is_running(record)]
    return left


def _signal(record: ProcessRecord, number: signal.Signals) -> bool:
    """Send a signal to exactly that process start; return False if it is gone."""
    if not is_running(record):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, number)
        return True
    return False


def _reap(pid: int) -> None:
    """Reap an ended child of ours, so that it does not stay a zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _started(pid: int, *, ended_too: bool = False) -> str | None:
    """Return the start time of a running process, or also of one whose main thread has ended."""
    if not _PROC.is_dir():
        return _ps("-o", "lstart=", "-p", str(pid)).strip() or None
    fields = _stat_fields(pid)
    if fields is None or (fields[0] in "ZX" and not ended_too):
        return None
    return f"{_boot_id()}:{fields[19]}"


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on (proc(5) numbers them from 3)."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    """Return the id of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _parents() -> dict[int, int]:
    """Return the parent pid of every process."""
    if not _PROC.is_dir():
        lines = _ps("-A", "-o", "pid=,ppid=").splitlines()
        return {int(pid): int(parent) for pid, parent in map(str.split, lines)}
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat_fields(int(entry.name))
            if fields is not None:
                found[int(entry.name)] = int(fields[1])
    return found


def _ps(*arguments: str) -> str:
    """Return the output of ps(1), on systems without /proc."""
    command = ["ps", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - fixed program, numeric arguments
