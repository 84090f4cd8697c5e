"""What a partition's audit handles that its model does not: deletions, workers, memory."""

from __future__ import annotations

import numpy as np
import pytest

from raylog.client import TopicPartition
from raylog.loadtest.findings import Findings
from raylog.loadtest.ledger import UNKNOWN_OFFSET, Fate, Ledger, merged
from raylog.loadtest.local import SENDERS_PER_WORKER
from raylog.loadtest.reconcile import SEQUENCES, PartitionAudit


class Partition:
    """An audit and its input."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.audit = PartitionAudit(TopicPartition("t", 3), self.findings)

    def sent(
        self, first: int, count: int, offset: int, fate: Fate = Fate.ACKNOWLEDGED, sender: int = 0
    ) -> None:
        ledger = Ledger()
        ledger.add("t", 3, sender, first, count, fate, offset)
        self.audit.sent(merged([ledger.take()])["t"])

    def found(self, first: int, count: int, offset: int, sender: int = 0) -> None:
        numbers = np.arange(count)
        self.audit.found(offset + numbers, np.full(count, sender), first + numbers)

    @property
    def counts(self) -> dict[str, int]:
        return {one.kind: one.count for one in self.findings.result()}


def test_examples_say_where() -> None:
    of = Partition()
    of.sent(0, 10, 100)
    of.found(0, 4, 100)
    of.found(6, 4, 106)
    of.audit.finish()
    (lost,) = of.findings.result()
    assert (lost.kind, lost.count) == ("lost", 2)
    assert lost.examples == [
        "t-3: record 4 of sender 0, acknowledged at offset 104, was acknowledged, but is not in "
        "the log"
    ]


def test_records_deleted_by_retention_are_not_lost() -> None:
    of = Partition()
    of.sent(0, 100, 0)
    of.audit.deleted(0, 40)
    of.found(41, 59, 41)
    of.audit.finish()
    assert of.counts == {"lost": 1}


def test_lost_workers_may_have_sent_what_nobody_knows() -> None:
    of = Partition()
    of.found(0, 5, 0, sender=2 * SENDERS_PER_WORKER + 1)
    of.found(0, 5, 5, sender=3 * SENDERS_PER_WORKER)
    of.audit.finish(incomplete=[2])
    assert of.counts == {"unknown": 5}


def test_a_run_that_goes_well_needs_no_memory() -> None:
    of = Partition()
    for number in range(0, 1_000, 10):
        of.found(number, 10, number)
        of.sent(number, 10, number)
        of.audit.settle(number + 10)
        assert of.audit.held_runs == 0
    of.audit.finish()
    assert of.counts == {}
    assert of.audit.counts == (1_000, 0, 1_000)


@pytest.mark.parametrize("is_sent_first", [True, False])
def test_neither_side_has_to_be_first(*, is_sent_first: bool) -> None:
    of = Partition()
    for step in (of.sent, of.found) if is_sent_first else (of.found, of.sent):
        step(0, 10, 0)
        of.audit.settle(10 if of.audit.counts.found else 0)
    of.audit.finish()
    assert of.counts == {}


def test_unanswered_records_may_be_present_or_absent() -> None:
    of = Partition()
    of.sent(0, 5, UNKNOWN_OFFSET, Fate.UNANSWERED)
    of.sent(5, 5, UNKNOWN_OFFSET, Fate.UNANSWERED)
    of.sent(10, 5, 5)
    of.found(5, 5, 0)
    of.found(10, 5, 5)
    of.audit.settle(10)
    assert of.audit.held_runs == 0
    of.audit.finish()
    assert of.counts == {}
    assert of.audit.counts == (5, 10, 10)


def test_an_offset_that_nobody_reported_is_not_wrong() -> None:
    of = Partition()
    of.sent(0, 5, UNKNOWN_OFFSET)
    of.found(0, 4, 7)
    of.audit.finish()
    assert of.counts == {"lost": 1}


def test_record_repeated_much_later_is_doubled() -> None:
    of = Partition()
    of.sent(0, 10, 0)
    of.found(0, 10, 0)
    of.audit.settle(10)
    of.found(3, 2, 10)
    of.audit.finish()
    assert of.counts == {"doubled": 2}


def test_numbers_beyond_all_bounds_are_unknown() -> None:
    of = Partition()
    of.found(SEQUENCES - 1, 2, 0)
    of.audit.finish()
    assert of.counts == {"unknown": 2}
