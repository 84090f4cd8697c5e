"""A benchmark that is told to terminate ends the brokers it started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bench.measure import marked_processes

SCRIPT = """
import signal
import sys

from bench import peers


class Jars:
    def command(self, name, *arguments, heap):
        lasts = name == "kafka.Kafka"
        return [sys.executable, "-c", "import signal; signal.pause()" if lasts else ""]


peers.jars.fetch = Jars
peers._await = lambda address, log: None
with peers.ApacheKafka().run() as first, peers.ApacheKafka().run() as second:
    print(first.mark, second.mark, flush=True)
    signal.pause()
"""


def test_sigterm_ends_what_was_started(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        text=True,
    )
    assert process.stdout is not None
    marks = process.stdout.readline().split()
    assert [len(marked_processes(mark)) for mark in marks] == [1, 1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    process.stdout.close()
    assert [marked_processes(mark) for mark in marks] == [[], []]
    assert not list(tmp_path.iterdir())
