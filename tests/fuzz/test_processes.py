"""Growth and death of a process are seen."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from time import monotonic

import pytest

from bench.measure import environment, new_mark
from raylog.actors.runtime.worker_processes import MODULE as HELPER
from tests.fuzz import processes
from tests.fuzz.processes import SAMPLE_S, Sampler

GROWN = 80 << 20
SCRIPT = f"""
import sys
print("ready", flush=True)
sys.stdin.readline()
held = b"x" * {GROWN}
print("grown", flush=True)
sys.stdin.readline()
held = b""
print("shrunk", flush=True)
sys.stdin.readline()
"""


def await_that(sampler: Sampler, holds: Callable[[], bool]) -> None:
    """Return when it holds; fail after a time in which there are many samples."""
    deadline = monotonic() + 100 * SAMPLE_S
    while not holds():
        assert monotonic() < deadline, sampler.lines()


def test_the_peak_and_the_end_of_a_process_are_seen() -> None:
    mark = new_mark()
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=pipe, stdout=pipe, env=environment(mark), text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, Sampler(mark) as sampler:
        assert process.stdout.readline() == "ready\n"
        sampler.start()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "grown\n"
        await_that(sampler, lambda: sampler.growth >= GROWN * 0.9)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "shrunk\n"
        seen = sampler.samples
        await_that(sampler, lambda: sampler.samples > seen + 1)
        assert sampler.growth >= GROWN * 0.9
        assert sampler.died == []
        process.kill()
        process.wait()
        await_that(sampler, lambda: sampler.died != [])


def test_a_helper_that_ends_when_idle_has_not_died() -> None:
    mark = new_mark()
    ours, theirs = socket.socketpair()
    helper = subprocess.Popen(
        [sys.executable, "-m", HELPER], stdin=theirs.fileno(), env=environment(mark)
    )
    other = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, env=environment(mark)
    )
    with helper, other, Sampler(mark) as sampler:
        sampler.start()
        assert {memory.name for memory in sampler.memories.values()} >= {HELPER}
        theirs.close()
        ours.close()
        helper.wait()
        other.kill()
        other.wait()
        await_that(sampler, lambda: sampler.died != [])
        assert [f"({other.pid})" in one for one in sampler.died] == [True]


def test_reused_process_id_is_a_different_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = new_mark()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, env=environment(mark)
    )
    with process, Sampler(mark) as sampler:
        sampler.start()
        process.kill()
        process.wait()
        await_that(sampler, lambda: sampler.died != [])
        monkeypatch.setattr(processes, "private_bytes", lambda _: GROWN)
        seen = sampler.samples
        await_that(sampler, lambda: sampler.samples > seen + 1)
        assert sampler.growth < GROWN / 2
