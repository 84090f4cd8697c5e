"""The path of Python workers, and how they communicate with the JVM."""

import io
import socket
import sys
from typing import BinaryIO

import pytest

from raylog.raydp_jobs.worker_daemon import leave_archives, prompt

ARCHIVES = ["/s/pyspark.zip", "/s/py4j-0.10.9.7-src.zip", "/s/spark-core_2.12-3.5.7.jar"]


def test_sparks_archives_go_and_the_users_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [*sys.path, "/u/mine.zip"]
    monkeypatch.setattr(sys, "path", [*ARCHIVES, *others])
    monkeypatch.setattr("raylog.raydp_jobs.worker_daemon.find_spec", lambda _: object())
    leave_archives()
    assert sys.path == others


def test_they_stay_where_pyspark_is_in_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [*ARCHIVES, *sys.path]
    monkeypatch.setattr(sys, "path", list(before))
    monkeypatch.setattr("raylog.raydp_jobs.worker_daemon.find_spec", lambda _: None)
    leave_archives()
    assert sys.path == before


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="of Linux")
def test_a_task_reads_all_that_was_sent_also_what_was_read_ahead() -> None:
    """The worker has read a greeting from the same buffer before."""
    found: list[bytes] = []

    def main(infile: io.BufferedReader, outfile: BinaryIO) -> None:
        found.extend((infile.read(4), infile.read()))
        outfile.write(b"done")
        outfile.flush()

    with socket.create_server(("127.0.0.1", 0)) as server:
        jvm = socket.create_connection(server.getsockname())
        worker, _ = server.accept()
        with jvm, worker, worker.makefile("rb") as infile, worker.makefile("wb") as outfile:
            jvm.sendall(b"hellotask")
            assert infile.read(5) == b"hello"
            jvm.sendall(b" and more" * 100_000)
            jvm.shutdown(socket.SHUT_WR)
            prompt(main)(infile, outfile)
            assert jvm.recv(4) == b"done"
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert found == [b"task", b" and more" * 100_000]
