"""Adds up the reports of all processes of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from raylog.loadtest.error_texts import count_error
from raylog.loadtest.findings import Findings
from raylog.loadtest.histograms import added_up
from raylog.loadtest.missing_records import Position, RecordRuns
from raylog.loadtest.results import Finding, Generator, Interval, Operation

_PARTS_MAX = 8
"""The most histograms of one second that wait to be added up. Each takes a few KiB."""


@dataclass(slots=True)
class _Second:
    requests: int = 0
    failures: int = 0
    bytes: int = 0
    latencies: list[str] = field(default_factory=list)

    def add(self, one: Interval) -> None:
        self.requests += one.requests
        self.failures += one.failures
        self.bytes += one.bytes
        if one.requests:
            self.latencies.append(one.latencies)
            if len(self.latencies) > _PARTS_MAX:
                self.latencies = [self.added_up()]

    def added_up(self) -> str:
        if len(self.latencies) == 1:
            return self.latencies[0]
        encoded: bytes = added_up(self.latencies).encode()
        return encoded.decode()


@dataclass(slots=True)
class _Operation:
    errors: Counter[str] = field(default_factory=Counter)
    seconds: dict[int, _Second] = field(default_factory=dict)

    def add(self, one: Operation) -> None:
        for text, count in one.errors.items():
            count_error(self.errors, text, count)
        for interval in one.intervals:
            number = max(0, interval.second)  # a user that slept may begin a moment early
            self.seconds.setdefault(number, _Second()).add(interval)


@dataclass(slots=True)
class MergedReports:
    """The sum of what processes took from their recorders, ledgers and findings."""

    ledgers: list[bytes] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    generators: dict[int, Generator] = field(default_factory=dict)
    """By worker, its newest report."""
    received: defaultdict[Position, RecordRuns] = field(
        default_factory=lambda: defaultdict(RecordRuns)
    )
    """By reader and partition, what was read."""
    _operations: dict[str, _Operation] = field(default_factory=dict)

    def add(
        self,
        operations: Iterable[Operation],
        ledger: bytes,
        findings: Iterable[Finding],
        generator: Generator | None,
    ) -> None:
        """Add the report of one process."""
        for one in operations:
            self._operations.setdefault(one.name, _Operation()).add(one)
        if ledger:
            self.ledgers.append(ledger)
        self.findings.merge(findings)
        if generator is not None:
            self.generators[generator.worker] = generator

    def receive(self, rows: Iterable[tuple[str, str, int, bytes]]) -> None:
        """Add what one process's readers have read: reader, topic, partition and runs."""
        for reader, topic, partition, runs in rows:
            self.received[reader, topic, partition].rows.frombytes(runs)

    def operations(self, first: int = 0, end: int | None = None) -> dict[str, Operation]:
        """Operations by name, with the seconds in [first, end)."""
        return {
            name: Operation(
                name=name,
                errors=dict(one.errors),
                intervals=[
                    Interval(
                        second=number,
                        requests=second.requests,
                        failures=second.failures,
                        bytes=second.bytes,
                        latencies=second.added_up(),
                    )
                    for number, second in sorted(one.seconds.items())
                    if number >= first and (end is None or number < end)
                ],
            )
            for name, one in sorted(self._operations.items())
        }

    def counted(self, name: str, first: int, end: int) -> tuple[int, int]:
        """The numbers of successful and failed requests of an operation in some seconds."""
        one = self._operations.get(name)
        seconds = [] if one is None else [one.seconds.get(number) for number in range(first, end)]
        there = [second for second in seconds if second is not None]
        return sum(one.requests for one in there), sum(one.failures for one in there)
