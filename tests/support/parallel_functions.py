"""Functions that processes and actors can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from raylog.client.interceptors import ConsumerRecord, ProducerRecord


def note_down(record: ConsumerRecord) -> None:
    """Append key, offset and process to the file that the record's value names."""
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


def note_place(record: ConsumerRecord) -> None:
    """Append key, number and Ray node to the file that the record's value names."""
    import ray

    assert isinstance(record.value, bytes)
    assert isinstance(record.key, bytes)
    number, _, path = record.value.decode().partition("|")
    time.sleep(0.05)
    line = f"{record.key.decode()} {number} {ray.get_runtime_context().get_node_id()}\n"
    with open(path, "a") as file:
        file.write(line)


def with_place(record: ConsumerRecord) -> bytes:
    """Return the record's number, and the Ray node that it was processed on."""
    import ray

    assert isinstance(record.value, bytes)
    time.sleep(0.3)
    number = record.value.partition(b"|")[0]
    return number + b"|" + ray.get_runtime_context().get_node_id().encode()


def upper(record: ConsumerRecord) -> ProducerRecord | None:
    """Return a result for topic `out`."""
    assert isinstance(record.value, bytes)
    if record.value.startswith(b"poison"):
        raise ValueError(record.value.decode())
    return ProducerRecord("out", record.value.upper(), record.key)
