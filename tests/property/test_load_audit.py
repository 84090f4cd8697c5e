"""The audit of a load test against a model that checks each record on its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from raylog.client import TopicPartition
from raylog.loadtest.findings import Findings
from raylog.loadtest.ledger import UNKNOWN_OFFSET, Fate, Ledger, merged
from raylog.loadtest.reconcile import PartitionAudit

TOPIC = "t"
SENDERS = (0, 1, 5_000_000)
Key = tuple[int, int]
"""A sender and a sequence number."""


@dataclass
class History:
    """What the senders of one partition did, and the resulting log."""

    log: dict[int, Key] = field(default_factory=dict)
    """By offset. A missing one is a control record or an aborted record."""
    sent: list[tuple[int, int, int, int, Fate]] = field(default_factory=list)
    """Batches: sender, first sequence, count, offset, fate."""
    end: int = 0

    def fates(self) -> dict[Key, tuple[Fate, int]]:
        """By record, its fate and its acknowledged offset."""
        return {
            (sender, first + at): (fate, UNKNOWN_OFFSET if offset < 0 else offset + at)
            for sender, first, count, offset, fate in self.sent
            for at in range(count)
        }


Batch = tuple[int, int, Fate, bool, int]
"""Sender, count, fate, whether it was written (if unanswered), and control records after it."""
batches = st.lists(
    st.tuples(
        st.sampled_from(SENDERS),
        st.integers(1, 5),
        st.sampled_from([Fate.ACKNOWLEDGED, Fate.ACKNOWLEDGED, Fate.UNANSWERED, Fate.ABORTED]),
        st.booleans(),
        st.integers(0, 1),
    ),
    max_size=25,
)
faults = st.lists(
    st.tuples(
        st.sampled_from(["lose", "double", "swap", "misplace", "invent", "show-aborted"]),
        st.integers(0, 1_000),
    ),
    max_size=4,
)


def history_of(given_batches: list[Batch]) -> History:
    """The history with a correct broker."""
    history = History()
    following: Counter[int] = Counter()
    for sender, count, fate, is_written, control in given_batches:
        first = following[sender]
        following[sender] += count
        offset = UNKNOWN_OFFSET if fate is Fate.UNANSWERED else history.end
        history.sent.append((sender, first, count, offset, fate))
        if fate is Fate.ACKNOWLEDGED or (fate is Fate.UNANSWERED and is_written):
            for at in range(count):
                history.log[history.end + at] = (sender, first + at)
        history.end += count + control
    return history


def plant(history: History, kind: str, number: int) -> None:
    """Plant one fault, if there is a place for it."""
    if kind == "invent":
        history.log[history.end] = (SENDERS[0], 10_000 + number)
        history.end += 1
        return
    if kind == "show-aborted":
        aborted = [batch for batch in history.sent if batch[4] is Fate.ABORTED]
        if aborted:
            sender, first, _, offset, _ = aborted[number % len(aborted)]
            history.log[offset] = (sender, first)
        return
    if kind == "misplace":
        at = number % len(history.sent) if history.sent else 0
        if history.sent and history.sent[at][4] is Fate.ACKNOWLEDGED:
            sender, first, count, offset, fate = history.sent[at]
            history.sent[at] = (sender, first, count, offset + 1, fate)
        return
    if not history.log:
        return
    offset = sorted(history.log)[number % len(history.log)]
    if kind == "lose":
        del history.log[offset]
    elif kind == "double":
        history.log[history.end] = history.log[offset]
        history.end += 1
    elif offset + 1 in history.log:
        history.log[offset], history.log[offset + 1] = (
            history.log[offset + 1],
            history.log[offset],
        )


def expected(history: History) -> dict[str, int]:
    """The expected findings, from each record on its own."""
    fates = history.fates()
    places: dict[Key, list[int]] = {}
    highest: Counter[int] = Counter()
    backward: set[Key] = set()
    for offset, (sender, sequence) in sorted(history.log.items()):
        places.setdefault((sender, sequence), []).append(offset)
        if sequence < highest[sender]:
            backward.add((sender, sequence))
        highest[sender] = max(highest[sender], sequence + 1)
    found: Counter[str] = Counter()
    for key, (fate, offset) in fates.items():
        found["lost"] += fate is Fate.ACKNOWLEDGED and key not in places
        found["aborted-seen"] += fate is Fate.ABORTED and key in places
        is_known = fate is Fate.ACKNOWLEDGED and offset >= 0 and len(places.get(key, ())) == 1
        found["wrong-offset"] += is_known and places[key] != [offset]
    found["doubled"] = sum(len(offsets) - 1 for offsets in places.values())
    found["unknown"] = sum(key not in fates for key in places)
    found["reordered"] = sum(len(places[key]) == 1 for key in backward)
    return {kind: count for kind, count in found.items() if count}


def give(audit: PartitionAudit, history: History, offsets: list[int]) -> None:
    """Give the audit records that were read."""
    keys = [history.log[offset] for offset in offsets]
    audit.found(
        np.array(offsets, np.int64),
        np.array([sender for sender, _ in keys], np.int64),
        np.array([sequence for _, sequence in keys], np.int64),
    )


def runs(history: History, chosen: slice) -> Ledger:
    ledger = Ledger()
    for sender, first, count, offset, fate in history.sent[chosen]:
        ledger.add(TOPIC, 0, sender, first, count, fate, offset)
    return ledger


def counts(findings: Findings) -> dict[str, int]:
    return {one.kind: one.count for one in findings.result()}


@given(batches, faults, st.integers(1, 10))
def test_at_the_end_each_wrong_record_is_counted(
    given_batches: list[Batch], planted: list[tuple[str, int]], read_at_once: int
) -> None:
    history = history_of(given_batches)
    for kind, number in planted:
        plant(history, kind, number)
    findings = Findings()
    audit = PartitionAudit(TopicPartition(TOPIC, 0), findings)
    offsets = sorted(history.log)
    for start in range(0, len(offsets), read_at_once):
        give(audit, history, offsets[start : start + read_at_once])
    for rows in merged([runs(history, slice(None)).take()]).values():
        audit.sent(rows)
    audit.finish()
    assert counts(findings) == expected(history)
    assert audit.counts.found == len(history.log)
    assert audit.held_runs == 0


@given(batches, faults, st.data())
def test_settling_on_the_way_neither_hides_nor_invents(
    given_batches: list[Batch], planted: list[tuple[str, int]], data: st.DataObject
) -> None:
    history = history_of(given_batches)
    for kind, number in planted:
        plant(history, kind, number)
    findings = Findings()
    audit = PartitionAudit(TopicPartition(TOPIC, 0), findings)
    offsets, reported = sorted(history.log), 0
    position = 0
    while position < history.end or reported < len(history.sent):
        size = data.draw(st.integers(0, 12), label="read")
        give(audit, history, [at for at in offsets if position <= at < position + size])
        position += size
        more = data.draw(st.integers(0, 5), label="told")
        for rows in merged([runs(history, slice(reported, reported + more)).take()]).values():
            audit.sent(rows)
        reported += more
        if data.draw(st.booleans(), label="settle"):
            audit.settle(position)
        if not size and not more:
            position, reported = position + 1, reported + 1
            give(audit, history, [at for at in offsets if at == position - 1])
            for rows in merged([runs(history, slice(reported - 1, reported)).take()]).values():
                audit.sent(rows)
    audit.finish()
    assert bool(counts(findings)) == bool(expected(history))
    kinds = {kind for kind, _ in planted}
    if kinds <= {"lose", "invent", "show-aborted"}:
        assert counts(findings) == expected(history)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 1),
            st.sampled_from(SENDERS),
            st.integers(1, 4),
            st.sampled_from(Fate),
            st.integers(-1, 3),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_ledgers_of_several_processes_add_up(
    steps: list[tuple[int, int, int, int, Fate, int, bool]],
) -> None:
    """Whatever was taken when, every record is there once, with its fate and its offset."""
    ledgers = [Ledger() for _ in range(3)]
    parts: list[bytes] = []
    following: Counter[tuple[int, int]] = Counter()
    ends: Counter[int] = Counter()
    fate_of: dict[tuple[int, int, int], tuple[int, Fate]] = {}
    for process, partition, sender, count, fate, gap, takes in steps:
        number = sender * 10 + process
        first = following[number, partition]
        following[number, partition] += count
        offset = UNKNOWN_OFFSET if gap < 0 else ends[partition] + gap
        ends[partition] = max(ends[partition], offset + count)
        ledgers[process].add(TOPIC, partition, number, first, count, fate, offset)
        for at in range(count):
            place = UNKNOWN_OFFSET if offset < 0 else offset + at
            fate_of[partition, number, first + at] = (place, fate)
        if takes:
            parts.append(ledgers[process].take())
    parts += [ledger.take() for ledger in ledgers]
    found: dict[tuple[int, int, int], tuple[int, Fate]] = {}
    for partition, number, first, offset, count, fate in merged(parts).get(TOPIC, np.empty((0, 6))):
        for at in range(int(count)):
            key = (int(partition), int(number), int(first) + at)
            assert key not in found
            found[key] = (UNKNOWN_OFFSET if offset < 0 else int(offset) + at, Fate(int(fate)))
    assert found == fate_of
