"""Reads the topics of a run back and compares them with the acknowledged records.

The audit can follow the log during the run, which keeps memory small and stays ahead of retention,
or read everything at the end. It keeps runs (`ledger.py`) of both sides, 40 bytes each, until they
are settled: about one per produced batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from time import monotonic

import numpy as np

from raylog.client import EARLIEST, LATEST, Admin, ConsumedRecords, Consumer, TopicPartition
from raylog.loadtest.findings import Findings, seen_by_both
from raylog.loadtest.ledger import read
from raylog.loadtest.missing_records import RecordRuns
from raylog.loadtest.reading import examine
from raylog.loadtest.reconcile import PartitionAudit
from raylog.loadtest.records import run_number
from raylog.loadtest.results import Audit, Finding

STALLED_S = 90.0
"""The audit gives up when it has read nothing for this time and is not at the end. If a producer
dies, its transaction is open until it times out, after 60 s by default."""
_POLL_MS = 500.0
_US_PER_S = 1_000_000
_POLL_RECORDS = 20_000
_SETTLED_AT = 100_000
"""The most runs of one partition to hold before they are settled."""


class AuditFailed(Exception):
    """The log could not be read to its end, so it is unknown what is lost."""


class _Partition:
    """What was read of one partition."""

    def __init__(self, key: TopicPartition, findings: Findings) -> None:
        self.key = key
        self.book = PartitionAudit(key, findings)
        self.next_offset = 0
        self.end = 0
        """The highest end that the broker has reported."""
        self.held = 0
        """Runs left by the last settling."""
        self.written = RecordRuns()


class RunAudit:
    """The audit of one run. It must be closed."""

    def __init__(self, settings: Mapping[str, object], run: str, topics: Iterable[str]) -> None:
        """`settings` are the client's, `topics` the names of the topics in this run."""
        self._run_number = run_number(run)
        self.started_us = 0
        """The start of the run, from which seconds are counted."""
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
        self._polled: list[ConsumedRecords] = []
        """What was read and is not checked yet."""

    def add(self, taken: bytes) -> None:
        """Add the result of a process's `Ledger.take`."""
        for topic, runs in read(taken).items():
            for partition in np.unique(runs[:, 0]).tolist():
                of = self._partitions.get(TopicPartition(topic, partition))
                if of is None:
                    raise AuditFailed(
                        f"{topic}-{partition} was written, but is not a partition of this run"
                    )
                of.book.sent(runs[runs[:, 0] == partition])

    def step(self, timeout_ms: float = _POLL_MS) -> int:
        """Read once, waiting at most `timeout_ms`. Returns the number of records.

        If this fails, the next call continues with the same records.
        """
        self._polled = self._polled or self._consumer.poll(timeout_ms, _POLL_RECORDS)
        count = 0
        while self._polled:
            self._take(self._polled[0])
            count += len(self._polled.pop(0).records)
        return count

    def settle(self) -> None:
        """Compare what can be compared by now, and forget it."""
        for of in self._partitions.values():
            of.book.settle(of.next_offset)
            of.held = of.book.held_runs

    def finish(self, incomplete: Collection[int] = (), stalled_s: float = STALLED_S) -> Audit:
        """Read to the end and compare the rest. Call it when nobody writes any more.

        `incomplete` are workers whose ledger was lost in part: what they have sent is unknown.
        Raises AuditFailed.
        """
        self.look_at_ends()
        progressed_s = monotonic()
        while behind := self._behind():
            if self.step():
                progressed_s = monotonic()
            elif monotonic() - progressed_s > stalled_s:
                text = ", ".join(
                    f"{of.key} at {self._consumer.position(of.key)} of {of.end}" for of in behind
                )
                raise AuditFailed(f"reading made no progress for {stalled_s:g} s: {text}")
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

    def written(self) -> dict[TopicPartition, RecordRuns]:
        """By partition, the seconds for which the records read were meant."""
        return {key: of.written for key, of in self._partitions.items()}

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._admin.close()

    def look_at_ends(self) -> None:
        """Fetch the ends of all partitions. They never move back.

        The ends are high watermarks. Readers may stop before them for a while, because a commit is
        answered before its marker is in every partition.
        """
        ends = self._admin.list_offsets(dict.fromkeys(self._partitions, LATEST))
        for key, found in ends.items():
            of, end = self._partitions[key], found.offset
            if end < of.end:
                self.findings.add("wrong-offset", key, f"the end went back from {of.end} to {end}")
            of.end = max(of.end, end)

    # -- inside ----------------------------------------------------------------------------------

    def _behind(self) -> list[_Partition]:
        return [
            of
            for key, of in self._partitions.items()
            if self._polled or self._consumer.position(key) < of.end
        ]

    def _take(self, group: ConsumedRecords) -> None:
        of = self._partitions[TopicPartition(group.topic, group.partition)]
        first = group.records[0].offset
        if first > of.next_offset:  # a gap: control records, or records that retention deleted
            begin = self._consumer.beginning_offsets([of.key])[of.key]
            self._note_deleted(of, min(begin, first))
        seen = examine(group, self._run_number, self.findings)
        offsets = seen.offsets
        if first < of.next_offset or (np.diff(offsets) <= 0).any():
            text = f"expected offsets from {of.next_offset} up, found {first}"
            self.findings.add("wrong-offset", of.key, text)
        of.next_offset = max(of.next_offset, group.records[-1].offset + 1)
        of.book.found(offsets, seen.senders, seen.sequences)
        of.written.add(offsets, (seen.intended_us - self.started_us) // _US_PER_S)
        if of.book.held_runs > of.held + _SETTLED_AT:
            of.book.settle(of.next_offset)
            of.held = of.book.held_runs

    def _look_for_deleted(self) -> None:
        """Look at the end for records that retention deleted and that no other record follows."""
        begins = self._consumer.beginning_offsets(self._partitions)
        for key, begin in begins.items():
            self._note_deleted(self._partitions[key], begin)

    def _note_deleted(self, of: _Partition, end_offset: int) -> None:
        if end_offset > of.next_offset:
            of.book.deleted(of.next_offset, end_offset)
