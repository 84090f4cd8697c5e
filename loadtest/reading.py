"""Checks what was read: each value is whole, of this run, and in order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raylog.client import ConsumedRecords, TopicPartition
from raylog.loadtest.findings import Findings
from raylog.loadtest.histograms import Numbers
from raylog.loadtest.records import heads, torn


class Seen(NamedTuple):
    """Whole records of this run in a partition, as columns."""

    offsets: Numbers
    senders: Numbers
    sequences: Numbers
    intended_us: Numbers
    bytes: int
    """The total size of the values."""


def examine(records: ConsumedRecords, run_number: int, findings: Findings) -> Seen:
    """Parse values. Torn ones and those of another run are findings and left out."""
    kept = records.records
    key = TopicPartition(records.topic, records.partition)
    broken = torn([record.value for record in kept])
    if broken:
        first = kept[broken[0]]
        size = len(first.value or b"")
        findings.add(
            "torn",
            key,
            f"the checksum of the record at offset {first.offset} ({size} bytes) is wrong",
            len(broken),
        )
        left_out = set(broken)
        kept = [record for at, record in enumerate(kept) if at not in left_out]
    values = [record.value or b"" for record in kept]
    columns = heads(values)
    offsets = np.array([record.offset for record in kept], np.int64)
    is_foreign = columns["run"] != run_number
    if is_foreign.any():
        at = int(offsets[is_foreign][0])
        text = f"the record at offset {at} is of another run"
        findings.add("unknown", key, text, int(is_foreign.sum()))
        offsets, columns = offsets[~is_foreign], columns[~is_foreign]
    return Seen(
        offsets,
        columns["sender"].astype(np.int64),
        columns["sequence"].astype(np.int64),
        columns["intended_us"].astype(np.int64),
        sum(map(len, values)),
    )


class Order:
    """One reader's view of one partition: offsets and each sender's sequences must increase."""

    def __init__(self, key: TopicPartition, findings: Findings) -> None:
        self._key = key
        self._findings = findings
        self._next_offset = 0
        self._next: dict[int, int] = {}
        """By sender, the end of the sequences read so far."""

    def follow(self, seen: Seen) -> None:
        """Check the next records."""
        if not len(seen.offsets):
            return
        first, last = int(seen.offsets[0]), int(seen.offsets[-1])
        if first < self._next_offset or (np.diff(seen.offsets) <= 0).any():
            self._findings.add(
                "wrong-offset",
                self._key,
                f"expected offsets from {self._next_offset} up, found {first} to {last}",
            )
        self._next_offset = last + 1
        senders, sequences = seen.senders, seen.sequences
        if (senders == senders[0]).all() and (np.diff(sequences) > 0).all():
            self._follow(int(senders[0]), int(sequences[0]), int(sequences[-1]))
            return
        for sender, sequence in zip(senders.tolist(), sequences.tolist(), strict=True):
            self._follow(sender, sequence, sequence)

    def _follow(self, sender: int, first: int, last: int) -> None:
        expected = self._next.get(sender, 0)
        if first < expected:
            self._findings.add(
                "doubled" if first == expected - 1 else "reordered",
                self._key,
                f"record {first} of sender {sender} came after record {expected - 1}",
            )
        self._next[sender] = max(expected, last + 1)
