"""Processes are found by a mark; the kernel reports what they use."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.measure import (
    anonymous_bytes,
    cpu_seconds,
    environment,
    marked_processes,
    new_mark,
    open_files,
    usage,
)
from bench.peers import end, free_ports

SCRIPT = """
import os, sys, time
os.setsid()
while time.process_time() < 0.05:
    pass
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def marked() -> Iterator[tuple[str, int]]:
    """A process with a mark, which even left our session."""
    mark = new_mark()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env=environment(mark),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield mark, process.pid
    assert process.stdin is not None
    process.stdin.close()
    process.stdout.close()
    process.wait()


def test_a_marked_process_is_found_wherever_it_is(marked: tuple[str, int]) -> None:
    mark, pid = marked
    assert marked_processes(mark) == [pid]
    found = usage(mark)
    assert found.processes == 1
    assert 0 < found.cpu_s < 60
    assert open_files(mark) >= 3, "its standard streams"
    assert 0 < anonymous_bytes(mark) < found.pss_bytes
    assert 1 << 20 < found.pss_bytes < 1 << 30


def test_nobody_carries_a_new_mark() -> None:
    assert marked_processes(new_mark()) == []
    assert cpu_seconds(new_mark()) == 0


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_end_insists() -> None:
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", script])
    end(process)
    assert process.returncode is not None
    assert not os.path.exists(f"/proc/{process.pid}/exe")
