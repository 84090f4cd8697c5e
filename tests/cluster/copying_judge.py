"""What exactly-once means for the copy job, told from the sink's records and the copiers' notes.

The source's partition holds the numbers 0, 1, 2, … as values. A copier writes each of them to the
sink's partition of the same index as `NUMBER TRANSACTION COUNT`: the transaction's name and how
many records it has. It notes the end of every transaction, once it knows it, as a line
`committed TRANSACTION COUNT` or `aborted TRANSACTION COUNT`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SHOWN_MAX = 10
"""Anomalies of one kind that are kept; the others are counted."""


@dataclass(slots=True)
class Ends:
    """Transactions whose end copiers knew, and what else they noted; names to counts."""

    committed: dict[str, int] = field(default_factory=dict)
    aborted: dict[str, int] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    """Errors that copiers were told of, by code."""

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Ends:
        """Read notes; a line without its end was being written when its copier was killed."""
        ends = cls()
        for path in paths:
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    ends._take(*line.split())
        return ends

    def _take(self, kind: str, name: str, count: str) -> None:
        match kind:
            case "committed":
                self.committed[name] = int(count)
            case "aborted":
                self.aborted[name] = int(count)
            case "error":
                self.errors[name] += int(count)
            case _:
                raise ValueError(f"{kind} is no kind of note")


@dataclass(slots=True)
class Judge:
    """What one reader of the sink was given, in the order it was given."""

    partitions: int
    anomalies: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Kinds of anomalies, all of them."""
    numbers: dict[int, int] = field(init=False)
    """Partition to the number that is to come next."""
    _transactions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name to the records that were seen, and to those that it has."""
    _ended_at: dict[int, int] = field(init=False)
    """Partition to the offset behind the last record."""

    def __post_init__(self) -> None:
        self.numbers = dict.fromkeys(range(self.partitions), 0)
        self._ended_at = dict.fromkeys(range(self.partitions), 0)

    @property
    def seen(self) -> int:
        """Records that came."""
        return sum(seen for seen, _ in self._transactions.values())

    @property
    def transactions(self) -> int:
        """Transactions of which something was seen."""
        return len(self._transactions)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """One record."""
        number, name, count = value.decode().split()
        place = f"{partition}@{offset}"
        if offset < self._ended_at[partition]:
            self._note("offset given again", f"{place} after {self._ended_at[partition] - 1}")
        self._ended_at[partition] = offset + 1
        expected = self.numbers[partition]
        if int(number) < expected:
            self._note("duplicate or out of order", f"{number} at {place}, due was {expected}")
        else:
            if int(number) > expected:
                self._note("lost", f"{expected} to {int(number) - 1} before {place}")
            self.numbers[partition] = int(number) + 1
        seen, _ = self._transactions.get(name, (0, 0))
        self._transactions[name] = seen + 1, int(count)

    def _note(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.anomalies.append(f"{kind}: {text}")

    def finish(self, sent: Mapping[int, int], ends: Ends) -> None:
        """All was read: compare with what the source has, and with what copiers know."""
        for partition, count in sent.items():
            if self.numbers[partition] != count:
                found = self.numbers[partition]
                self._note("not copied", f"partition {partition} ends at {found}, not {count}")
        for name, (seen, count) in self._transactions.items():
            if seen != count:
                self._note("torn transaction", f"{seen} of {count} records of {name}")
        for name in self._transactions.keys() & ends.aborted.keys():
            self._note("aborted transaction read", name)
        for name in ends.committed.keys() - self._transactions.keys():
            self._note("committed transaction not read", name)

    def lines(self) -> Iterator[str]:
        """What was wrong."""
        yield from self.anomalies
        for kind, count in self.counts.items():
            if count > SHOWN_MAX:
                yield f"{kind}: {count} in all"
