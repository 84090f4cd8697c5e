"""Journals of processes that may be killed at any moment.

Each line is a JSON array written by a single call, so that SIGKILL costs the end of the last line
at most. Times are `time.monotonic_ns()` of one machine. The file is named after the process.

| line | meaning |
|---|---|
| `["began", t]` | the process has started |
| `["sent", t, partition, value]` | a record is about to be given to the producer |
| `["acked", t, partition, value, offset]` | the broker acknowledged it |
| `["failed", t, partition, value, why]` | the producer gave it up; it may have been written |
| `["assigned", t, partitions]`, `revoked`, `lost` | a call of the rebalance listener |
| `["seek", t, partition, offset]` | the consumer continues elsewhere |
| `["polled", t, invoked, partition, offsets, values]` | what one poll returned of a partition |
| `["done", t, partition, offsets, keys]` | these records were processed |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.checker.operations import (
    Change,
    Operation,
    Outcome,
    Poll,
    Rebalance,
    Seek,
    Send,
)

SUFFIX = ".jsonl"


class Journal:
    """The journal of one process. Any thread may write."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.write("began")

    def write(self, kind: str, *row: object) -> None:
        """Write a line with the current time. It survives the process."""
        line = json.dumps([kind, time.monotonic_ns(), *row], separators=(",", ":"))
        os.write(self._fd, line.encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Done:
    """A record that a process has processed."""

    process: str
    began_ns: int
    """The start time of that process."""
    at_ns: int
    partition: int
    offset: int
    key: str


@dataclass(slots=True)
class Journals:
    """The content of journals."""

    operations: list[Operation] = field(default_factory=list)
    """For `checker.check`."""
    failed: set[str] = field(default_factory=set)
    """Values that producers gave up."""
    done: list[Done] = field(default_factory=list)
    """In the order of time."""


def read_journals(paths: Iterable[Path], topic: str) -> Journals:
    """Read the journals of processes that worked on a topic."""
    journals = Journals()
    for path in paths:
        _Reader(path.name.removesuffix(SUFFIX), topic, journals).read(path)
    journals.done.sort(key=lambda one: one.at_ns)
    return journals


class _Reader:
    """Reads the journal of one process."""

    def __init__(self, process: str, topic: str, journals: Journals) -> None:
        self._process = process
        self._topic = topic
        self._journals = journals
        self._began_ns = 0
        self._sends: dict[str, Send] = {}

    def read(self, path: Path) -> None:
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # a killed process may leave a partial line
                kind, at_ns, *row = json.loads(line)
                if kind in ("sent", "acked", "failed"):
                    self._produced(kind, at_ns, *row)
                else:
                    self._consumed(kind, at_ns, *row)
        self._journals.operations += self._sends.values()

    def _produced(self, kind: str, at_ns: int, partition: int, value: str, *more: Any) -> None:
        if kind == "sent":
            send = Send(
                self._process, (self._topic, partition), value, at_ns, at_ns, Outcome.UNKNOWN
            )
            assert self._sends.setdefault(value, send) is send, f"{value} was sent twice"
            return
        send = self._sends[value]
        send.completed_ns = at_ns
        if kind == "acked":
            send.outcome = Outcome.OK
            send.offset = more[0] if more[0] >= 0 else None
        else:
            self._journals.failed.add(value)

    def _consumed(self, kind: str, at_ns: int, *row: Any) -> None:
        match kind, *row:
            case ["began"]:
                self._began_ns = at_ns
            case ["done", partition, offsets, keys]:
                self._journals.done += [
                    Done(self._process, self._began_ns, at_ns, partition, offset, key)
                    for offset, key in zip(offsets, keys, strict=True)
                ]
            case _:
                self._journals.operations.append(self._operation(kind, at_ns, *row))

    def _operation(self, kind: str, at_ns: int, *row: Any) -> Operation:
        match kind, *row:
            case ["assigned" | "revoked" | "lost", partitions]:
                keys = [(self._topic, partition) for partition in partitions]
                return Rebalance(self._process, at_ns, Change(kind), keys)
            case ["seek", partition, offset]:
                return Seek(self._process, at_ns, (self._topic, partition), offset)
            case ["polled", invoked_ns, partition, offsets, values]:
                batch = ((self._topic, partition), offsets, values)
                return Poll(self._process, invoked_ns, at_ns, [batch])
        raise ValueError(f"{self._process}: {kind} is no kind of line")
