"""Reads the topics of a run back and compares them with what was acknowledged.

It may follow the log while the run goes on, which keeps memory small and is ahead of retention, or
read it all at the end. Of both sides it keeps runs (`ledger.py`), of 40 bytes each, until they are
settled: about one for each produced batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from time import monotonic

import numpy as np

from raylog.client import EARLIEST, LATEST, Admin, ConsumedRecords, Consumer, TopicPartition
from raylog.loadtest.findings import Findings, seen_by_both
from raylog.loadtest.ledger import read
from raylog.loadtest.reading import examine
from raylog.loadtest.receiving import Written
from raylog.loadtest.reconcile import PartitionAudit
from raylog.loadtest.records import run_number
from raylog.loadtest.results import Audit, Finding

STALLED_S = 90.0
"""The audit gives up when it has read nothing for so long and is not at the end.

A transaction whose producer has died is open until it times out, after 60 s by default."""
_POLL_MS = 500.0
_US_PER_S = 1_000_000
_POLL_RECORDS = 20_000
_SETTLED_AT = 100_000
"""Runs of one partition that are held at most before they are settled."""


class AuditFailed(Exception):
    """The log could not be read to its end; nobody knows what is lost."""


class _Partition:
    """What is read of one partition."""

    def __init__(self, key: TopicPartition, findings: Findings) -> None:
        self.key = key
        self.where = f"{key.topic}-{key.partition}"
        self.book = PartitionAudit(self.where, findings)
        self.next_offset = 0
        self.end = 0
        """The highest end that the broker has told."""
        self.held = 0
        """Runs that were left at the last settling."""
        self.written = Written()


class RunAudit:
    """The audit of one run. Close it."""

    def __init__(self, settings: Mapping[str, object], run: str, topics: Iterable[str]) -> None:
        """`settings` are those of a client, `topics` the names that they have in this run."""
        self._run_number = run_number(run)
        self.started_us = 0
        """The start of the run: seconds are counted from here."""
        self.findings = Findings()
        self._consumer = Consumer(
            {
                **settings,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._partitions = {
            key: _Partition(key, self.findings)
            for topic in topics
            for key in self._consumer.partitions_for(topic)
        }
        self._consumer.assign(dict.fromkeys(self._partitions, EARLIEST))
        self._admin = Admin(settings)

    def add(self, taken: bytes) -> None:
        """What `Ledger.take` of some process returned."""
        for topic, runs in read(taken).items():
            for partition in np.unique(runs[:, 0]).tolist():
                of = self._partitions.get(TopicPartition(topic, partition))
                if of is None:
                    raise AuditFailed(f"{topic}-{partition} was written, but is not of this run")
                of.book.sent(runs[runs[:, 0] == partition])

    def step(self, timeout_ms: float = _POLL_MS) -> int:
        """Read what is there, waiting for it so long at most; returns the number of records."""
        count = 0
        for group in self._consumer.poll(timeout_ms, _POLL_RECORDS):
            count += len(group.records)
            self._take(group)
        return count

    def settle(self) -> None:
        """Compare as much as can be compared by now, and forget it."""
        for key, of in self._partitions.items():
            of.book.settle(self._consumer.position(key))
            of.held = of.book.held_runs

    def finish(self, incomplete: Collection[int] = (), stalled_s: float = STALLED_S) -> Audit:
        """Read up to the end, now that nobody writes any more, and compare all that is left.

        `incomplete` are workers that were lost with a part of their ledger: nobody knows what they
        have sent. Raises AuditFailed.
        """
        self.look_at_ends()
        progressed_s = monotonic()
        while behind := self._behind():
            if self.step():
                progressed_s = monotonic()
            elif monotonic() - progressed_s > stalled_s:
                told = ", ".join(
                    f"{of.where} at {self._consumer.position(of.key)} of {of.end}" for of in behind
                )
                raise AuditFailed(f"nothing could be read for {stalled_s:g} s: {told}")
        self.look_at_ends()
        self._look_for_deleted()
        for of in self._partitions.values():
            of.book.finish(incomplete)
        return self.result()

    def result(self, seen_by_users: Iterable[Finding] = ()) -> Audit:
        """What was found so far."""
        counts = [of.book.counts for of in self._partitions.values()]
        return Audit(
            acknowledged=sum(one.acknowledged for one in counts),
            unanswered=sum(one.unanswered for one in counts),
            found=sum(one.found for one in counts),
            findings=seen_by_both(self.findings.result(), seen_by_users),
        )

    def written(self) -> dict[TopicPartition, Written]:
        """What was read of each partition, by offset."""
        return {key: of.written for key, of in self._partitions.items()}

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._admin.close()

    def look_at_ends(self) -> None:
        """Ask for the ends of all partitions: they never move back.

        These are high watermarks. What is readable may end before them for a while: a commit is
        answered before its marker is in every partition.
        """
        ends = self._admin.list_offsets(dict.fromkeys(self._partitions, LATEST))
        for key, found in ends.items():
            of, end = self._partitions[key], found.offset
            if end < of.end:
                self.findings.add("wrong-offset", f"{of.where}: the end was {of.end}, is {end}")
            of.end = max(of.end, end)

    # -- inside ----------------------------------------------------------------------------------

    def _behind(self) -> list[_Partition]:
        return [of for key, of in self._partitions.items() if self._consumer.position(key) < of.end]

    def _take(self, group: ConsumedRecords) -> None:
        of = self._partitions[TopicPartition(group.topic, group.partition)]
        first = group.records[0].offset
        if first > of.next_offset:  # control records are there, or retention deleted something
            begin = self._consumer.beginning_offsets([of.key])[of.key]
            self._note_deleted(of, min(begin, first))
        seen = examine(group, self._run_number, self.findings)
        offsets = seen.offsets
        if first < of.next_offset or (np.diff(offsets) <= 0).any():
            self.findings.add(
                "wrong-offset",
                f"{of.where}: expected offsets from {of.next_offset} up, found {first}",
            )
        of.next_offset = max(of.next_offset, group.records[-1].offset + 1)
        of.book.found(offsets, seen.senders, seen.sequences)
        of.written.add(offsets, (seen.intended_us - self.started_us) // _US_PER_S)
        if of.book.held_runs > of.held + _SETTLED_AT:
            of.book.settle(of.next_offset)
            of.held = of.book.held_runs

    def _look_for_deleted(self) -> None:
        """At the end no record may follow those that retention deleted."""
        begins = self._consumer.beginning_offsets(self._partitions)
        for key, begin in begins.items():
            self._note_deleted(self._partitions[key], begin)

    def _note_deleted(self, of: _Partition, end_offset: int) -> None:
        if end_offset > of.next_offset:
            of.book.deleted(of.next_offset, end_offset)
