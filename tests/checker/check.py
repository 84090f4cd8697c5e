"""Checks a whole history."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.anomalies import Anomaly, Counts, Kind, Options, Verdict
from tests.checker.cycles import check_cycles
from tests.checker.evidence import attach
from tests.checker.history import History
from tests.checker.index import Index
from tests.checker.isolation import check_isolation
from tests.checker.losses import check_losses
from tests.checker.offsets import check_offsets
from tests.checker.operations import Outcome
from tests.checker.polls import check_polls

DEFAULT = Options()


def check(history: History, options: Options = DEFAULT) -> Verdict:
    """Find all anomalies, in time nearly linear in the number of operations.

    Raises HistoryError if the history itself is inconsistent.
    """
    index = Index.of(history)
    verdict = Verdict([], [], _counts(index))
    for anomaly in _all(index, options):
        tolerated = anomaly.kind in options.tolerated
        (verdict.tolerated if tolerated else verdict.anomalies).append(anomaly)
        verdict.counts.unseen += anomaly.kind is Kind.UNSEEN
    attach(history, [*verdict.anomalies, *verdict.tolerated])
    return verdict


def _all(index: Index, options: Options) -> Iterator[Anomaly]:
    yield from check_losses(index)
    yield from check_offsets(index, options)
    yield from check_isolation(index, options)
    yield from check_polls(index)
    yield from check_cycles(index, options)


def _counts(index: Index) -> Counts:
    history = index.history
    counts = Counts(
        operations=history.count,
        sends=len(history.sends),
        transactions=len(index.transactions),
        partitions=len(index.logs),
        partitions_read_to_the_end=len(index.covers),
    )
    processes = set(history.reads)
    for send in history.sends:
        processes.add(send.process)
        counts.acknowledged += send.outcome is Outcome.OK
        counts.failed += send.outcome is Outcome.FAILED
        counts.unknown += send.outcome is Outcome.UNKNOWN
    for poll in history.polls:
        counts.polls += 1
        counts.records_polled += sum(len(offsets) for _, offsets, _ in poll.batches)
    counts.processes = len(processes)
    return counts
