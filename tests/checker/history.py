"""Histories of several processes, merged by their clocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from tests.checker.lines import Decoder, Malformed
from tests.checker.operations import (
    Assign,
    Begin,
    End,
    FinalRead,
    Operation,
    Poll,
    Rebalance,
    Reset,
    Seek,
    Send,
    Subscribe,
    Topic,
)


class HistoryError(ValueError):
    """A history cannot be checked. The message names the place and what was expected."""


@dataclass(slots=True)
class History:
    """Operations by kind, each in the order of time.

    Sends are in the order of their invocation. The polls of a process are in the order of their
    completion, with its resets (assignments, seeks, rebalances) among them at their time.
    """

    sends: list[Send] = field(default_factory=list)
    reads: dict[str, list[Poll | Reset]] = field(default_factory=dict)
    """By process, its polls and resets."""
    begins: list[Begin] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    finals: list[FinalRead] = field(default_factory=list)
    compacted: set[str] = field(default_factory=set)
    """Names of topics."""
    count: int = 0
    """The number of all operations."""

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> History:
        """Sort operations. Those with equal times keep their order."""
        history = cls()
        reads: dict[str, list[Poll | Reset]] = defaultdict(list)
        for operation in operations:
            history.count += 1
            if isinstance(operation, Send):
                history.sends.append(operation)
            elif isinstance(operation, Poll | Assign | Subscribe | Rebalance | Seek):
                reads[operation.process].append(operation)
            else:
                history._take_other(operation)
        history.sends.sort(key=attrgetter("invoked_ns"))
        for of_process in reads.values():
            of_process.sort(key=_read_at)
        history.reads = dict(reads)
        history.begins.sort(key=attrgetter("at_ns"))
        history.ends.sort(key=attrgetter("invoked_ns"))
        return history

    def _take_other(self, operation: Begin | End | FinalRead | Topic) -> None:
        match operation:
            case Begin():
                self.begins.append(operation)
            case End():
                self.ends.append(operation)
            case FinalRead():
                self.finals.append(operation)
            case Topic(name, compacted):
                if compacted:
                    self.compacted.add(name)

    @property
    def polls(self) -> Iterator[Poll]:
        """All polls, process by process."""
        for of_process in self.reads.values():
            for operation in of_process:
                if isinstance(operation, Poll):
                    yield operation

    @property
    def operations(self) -> Iterator[Operation]:
        """All operations except the topics'."""
        yield from self.sends
        for of_process in self.reads.values():
            yield from of_process
        yield from self.begins
        yield from self.ends
        yield from self.finals


def _read_at(operation: Poll | Reset) -> int:
    return operation.completed_ns if isinstance(operation, Poll) else operation.at_ns


def load(paths: Iterable[Path]) -> History:
    """Read and merge files. Raises HistoryError with file, line and what was expected."""
    return History.of(operations_in(paths))


def operations_in(paths: Iterable[Path]) -> Iterator[Operation]:
    """The operations of files, in their order. Raises HistoryError."""
    decoder = Decoder()
    for path in paths:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield decoder.operation(line)
                except Malformed as error:
                    raise HistoryError(f"{path}:{number}: {error}") from error
