"""Processes are told from strangers with the same pid, and end with all that they started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raylog.actors.runtime.processes import descendants, end, is_running, pid_space, record_of

OBEDIENT = "import time; print('ready', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + OBEDIENT
PARENT = (
    "import subprocess, sys, time; "
    f"p = subprocess.Popen([sys.executable, '-c', {OBEDIENT!r}]); print(p.pid, flush=True); "
    "time.sleep(60)"
)
_SPACE = "from raylog.actors.runtime.processes import pid_space; print(pid_space())"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def start(code: str, started: list[subprocess.Popen[bytes]]) -> tuple[int, bytes]:
    """Start an interpreter; returns its pid and its first line."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None
    return process.pid, process.stdout.readline()


def test_a_process_is_recorded_and_ends(started: list[subprocess.Popen[bytes]]) -> None:
    pid, _ = start(OBEDIENT, started)
    record = record_of("sleeper", pid)
    assert record is not None
    assert (record.name, record.pid) == ("sleeper", pid)
    assert is_running(record)
    assert end([record], grace_ms=5_000) == []
    assert not is_running(record)
    assert end([record], grace_ms=0) == []


def test_another_process_of_the_same_pid_is_left_alone(
    started: list[subprocess.Popen[bytes]],
) -> None:
    pid, _ = start(OBEDIENT, started)
    record = record_of("sleeper", pid)
    assert record is not None
    older = replace(record, started="before")
    assert not is_running(older)
    assert end([older], grace_ms=0) == []
    assert is_running(record)


def test_process_that_ignores_the_signal_is_killed(started: list[subprocess.Popen[bytes]]) -> None:
    pid, _ = start(DEAF, started)
    record = record_of("deaf", pid)
    assert record is not None
    assert end([record], grace_ms=50) == []
    assert not is_running(record)


def test_children_belong_to_it(started: list[subprocess.Popen[bytes]]) -> None:
    pid, line = start(PARENT, started)
    record = record_of("parent", pid)
    assert record is not None
    below = descendants([record])
    assert [child.pid for child in below] == [int(line)]
    assert end([record, *below], grace_ms=5_000) == []
    assert descendants([record]) == []


def test_zombie_process_counts_as_ended(started: list[subprocess.Popen[bytes]]) -> None:
    pid, _ = start(OBEDIENT, started)
    record = record_of("sleeper", pid)
    assert record is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(record)


def test_no_process_of_that_pid() -> None:
    assert record_of("nobody", 2**22 + 1) is None


def test_processes_that_see_the_same_pids_have_a_space_in_common() -> None:
    command = [sys.executable, "-c", _SPACE]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert seen == str(pid_space())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="spaces of pids are Linux's")
def test_processes_in_a_container_have_a_space_of_their_own() -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _SPACE]
    seen = subprocess.run(command, capture_output=True, text=True, check=False)
    if seen.returncode:
        pytest.skip(f"unshare: {seen.stderr.strip()}")
    assert seen.stdout.strip() != str(pid_space())
