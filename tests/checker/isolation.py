"""Checks reads against transactions: records that were aborted, or not committed yet."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.anomalies import Anomaly, Kind, Options
from tests.checker.index import Index
from tests.checker.offsets import name_of
from tests.checker.operations import Partition, Poll, Send


def check_isolation(index: Index, options: Options) -> Iterator[Anomaly]:
    """Every polled record whose send failed, or whose transaction was not committed by then."""
    reported: set[tuple[Kind, str, str]] = set()
    hidden = index.never_written | index.never_visible
    within = {value for value, send in index.writer.items() if send.transaction is not None}
    for poll in index.history.polls:
        for partition, offsets, values in poll.batches:
            if not (hidden or within) or (hidden.isdisjoint(values) and within.isdisjoint(values)):
                continue
            for offset, value in zip(offsets, values, strict=True):
                found = _look(index, options, poll, value)
                if found is None:
                    continue
                kind, why = found
                if (kind, poll.process, value) not in reported:
                    reported.add((kind, poll.process, value))
                    yield _anomaly(kind, why, index.writer[value], poll, partition, offset)


def _look(index: Index, options: Options, poll: Poll, value: str) -> tuple[Kind, str] | None:
    """What is wrong with a polled value, if anything."""
    if value in index.never_written:
        return Kind.ABORTED_READ, "whose send had failed"
    send = index.writer.get(value)
    if send is None or send.transaction is None or not poll.read_committed:
        return None
    if send.transaction == poll.transaction:
        return Kind.PRECOMMITTED_READ, "which its own transaction had sent"
    if value in index.never_visible:
        return Kind.ABORTED_READ, f"whose transaction {send.transaction} was never committed"
    transaction = index.transactions.get(send.transaction)
    commit_ns = None if transaction is None else transaction.commit_invoked_ns
    if options.one_clock and commit_ns is not None and poll.completed_ns < commit_ns:
        early_ns = commit_ns - poll.completed_ns
        return Kind.PRECOMMITTED_READ, (
            f"{early_ns} ns before the commit of {send.transaction} was asked for"
        )
    return None


def _anomaly(
    kind: Kind, why: str, send: Send, poll: Poll, partition: Partition, offset: int
) -> Anomaly:
    names = (send.transaction, poll.transaction)
    return Anomaly(
        kind,
        f"{poll.process} read {send.value} at {offset} of {name_of(partition)}, {why}",
        partition,
        (send.value,),
        (offset,),
        (poll.process, send.process),
        tuple(name for name in names if name is not None),
    )
