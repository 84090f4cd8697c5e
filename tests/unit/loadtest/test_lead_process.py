"""The lead process of a run ends in the middle of a line, or prints nonsense."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raylog.loadtest import process_supervisor
from raylog.loadtest.process_supervisor import RunFailed, conduct
from tests.support import load_results

JOB = load_results.job()
WRITES = "import os, sys; sys.stdin.readline(); os.write(1, {written!r}); {then}"


def leads(monkeypatch: pytest.MonkeyPatch, written: bytes, then: str) -> None:
    """Have a process lead that writes this and does no more."""
    script = WRITES.format(written=written, then=then)

    def launched(first: str, *, stdout: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=stdout
        )
        assert process.stdin is not None
        process.stdin.write(first.encode() + b"\n")
        process.stdin.flush()
        return process

    monkeypatch.setattr(process_supervisor, "launched", launched)


@pytest.mark.timeout(30)
def test_a_process_that_dies_while_it_writes_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    leads(monkeypatch, b'{"kind":"ended","result":{"for', "os.kill(os.getpid(), 9)")
    with pytest.raises(RunFailed, match="the process that leads the run was ended by signal 9"):
        conduct(JOB, None, None, lambda _: None)


@pytest.mark.timeout(30)
def test_a_line_that_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    leads(monkeypatch, b"hello\n", "sys.stdin.read()")
    with pytest.raises(RunFailed, match="leads the run: expected a message, found b'hello"):
        conduct(JOB, None, None, lambda _: None)
