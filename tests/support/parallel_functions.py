"""Functions that processes and actors can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from raylog.client.interceptors import ConsumerRecord, ProducerRecord


def note_down(record: ConsumerRecord) -> None:
    """Append to the file that the record's value names: key, offset, process."""
    assert isinstance(record.value, bytes)
    assert isinstance(record.key, bytes)
    path, _, what = record.value.decode().partition("|")
    if what == "kill-once" and not Path(f"{path}.killed").exists():
        Path(f"{path}.killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        time.sleep(3_600)
    time.sleep(0.001)
    line = f"{record.key.decode()} {record.offset} {os.getpid()}\n"
    with open(path, "a") as file:
        file.write(line)


def upper(record: ConsumerRecord) -> ProducerRecord | None:
    """A result for topic `out`."""
    assert isinstance(record.value, bytes)
    if record.value.startswith(b"poison"):
        raise ValueError(record.value.decode())
    return ProducerRecord("out", record.value.upper(), record.key)
