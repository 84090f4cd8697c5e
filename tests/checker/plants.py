"""Plants anomalies into clean histories, to test that each is found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import TypeVar

from tests.checker.anomalies import Kind
from tests.checker.editable_history import EditableHistory
from tests.checker.operations import (
    Action,
    End,
    FinalRead,
    Operation,
    Outcome,
    Partition,
    Send,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Planted:
    """What the check must find."""

    kind: Kind
    partition: Partition | None
    values: tuple[str, ...] = ()
    """All of these values."""
    transactions: tuple[str, ...] = ()


Planter = Callable[[EditableHistory], Planted | None]
"""Changes a history. Returns None if the history has no room for the anomaly."""


def plant(kind: Kind, operations: list[Operation], seed: int) -> Planted | None:
    """Plant an anomaly of a kind into a clean history, in place."""
    history = EditableHistory(operations, Random(seed))
    return PLANTERS[kind](history)


def _choose(history: EditableHistory, candidates: Iterable[T]) -> T | None:
    found: Sequence[T] = list(candidates)
    return history.random.choice(found) if found else None


# -- the log -----------------------------------------------------------------------------------


def _lost_write(history: EditableHistory) -> Planted | None:
    def is_covered(send: Send) -> bool:
        cover = history.index.covers.get(send.partition)
        offset = send.offset
        return (
            cover is not None and offset is not None and cover.start <= offset < cover.end
        ) and send.value in cover.values

    send = _choose(history, filter(is_covered, history.certain()))
    if send is None:
        return None
    history.erase(send.value)
    if history.index.covers[send.partition].start == 0 and history.random.random() < 0.3:
        send.offset = None
    return Planted(Kind.LOST_WRITE, send.partition, (send.value,))


def _truncated_tail(history: EditableHistory) -> Planted | None:
    """Move the last acknowledged record above the end of the final read."""
    covers = history.index.covers
    sends = [
        send
        for send in history.certain()
        if send.partition in covers and send.offset == max(history.index.logs[send.partition].at)
    ]
    send = _choose(history, sends)
    if send is None or send.offset is None:
        return None
    history.erase(send.value)
    for operation in history.operations:
        if isinstance(operation, FinalRead):
            operation.spans = [
                span._replace(end=send.offset, start=min(span.start, send.offset))
                if span.partition == send.partition
                else span
                for span in operation.spans
            ]
    return Planted(Kind.LOST_WRITE, send.partition, (send.value,))


def _unseen(history: EditableHistory) -> Planted | None:
    send = _choose(history, history.certain())
    if send is None:
        return None
    history.erase(send.value)
    kept = [operation for operation in history.operations if not isinstance(operation, FinalRead)]
    history.operations[:] = kept
    return Planted(Kind.UNSEEN, send.partition, (send.value,))


def _duplicate(history: EditableHistory) -> Planted | None:
    """Write a retry twice: the second copy is at the end."""
    polled = [send for send in history.index.history.sends if send.value in history.places]
    unknown = [send for send in polled if send.outcome is Outcome.UNKNOWN]
    send = _choose(history, unknown if unknown and history.random.random() < 0.5 else polled)
    if send is None:
        return None
    history.add_poll("planted", send.partition, [(history.end(send.partition), send.value)])
    return Planted(Kind.DUPLICATE, send.partition, (send.value,))


def _inconsistent_offset(history: EditableHistory) -> Planted | None:
    """Let two readers disagree, or acknowledge two sends at one offset."""
    partition = history.random.choice(history.partitions())
    at = history.index.logs[partition].at
    offset = _choose(history, at)
    if offset is None:
        return None
    if history.random.random() < 0.5:
        history.add_send("planted", partition, "planted", offset)
    else:
        history.add_send("planted", partition, "planted", None)
        history.add_poll("planted-reader", partition, [(offset, "planted")])
    return Planted(Kind.INCONSISTENT_OFFSET, partition, (at[offset], "planted"))


def _phantom(history: EditableHistory) -> Planted | None:
    """Add a value that nobody sent, or that was sent to another partition."""
    partition, other = history.random.sample(history.partitions(), 2)
    if history.random.random() < 0.5:
        history.add_send("planted", other, "planted", None)
    history.add_poll("planted-reader", partition, [(history.end(partition), "planted")])
    return Planted(Kind.PHANTOM, partition, ("planted",))


# -- the order of sends ------------------------------------------------------------------------


def _pairs(history: EditableHistory) -> Iterable[tuple[Send, Send]]:
    """Pairs of acknowledged records of one partition and transaction (or none), in order."""
    by_place: dict[tuple[Partition, str | None], list[Send]] = {}
    for send in history.certain():
        by_place.setdefault((send.partition, send.transaction), []).append(send)
    for sends in by_place.values():
        for first, second in combinations(sends, 2):
            if first.offset is not None and second.offset is not None:
                yield (first, second) if first.offset < second.offset else (second, first)


def _nonmonotonic_send(history: EditableHistory) -> Planted | None:
    """Exchange two neighbours among a producer's acknowledged records."""
    last: dict[tuple[Partition, str], Send] = {}
    pairs = []
    for send in history.index.history.sends:
        if send.offset is None:
            continue
        before = last.get((send.partition, send.process))
        last[send.partition, send.process] = send
        if before is not None and before.transaction == send.transaction:
            pairs.append((before, send))
    both = [pair for pair in pairs if all(map(history.is_certain, pair))]
    pair = _choose(history, [pair for pair in both if history.is_plain(pair[0].partition)])
    if pair is None:
        return None
    history.swap(*pair)
    return Planted(Kind.NONMONOTONIC_SEND, pair[0].partition, (pair[0].value, pair[1].value))


def _append_against_time(history: EditableHistory) -> Planted | None:
    pairs = [pair for pair in _pairs(history) if pair[0].completed_ns < pair[1].invoked_ns]
    pair = _choose(history, [pair for pair in pairs if pair[0].process != pair[1].process])
    if pair is None:
        return None
    history.swap(*pair)
    return Planted(Kind.APPEND_AGAINST_TIME, pair[0].partition, (pair[0].value,))


# -- polls -------------------------------------------------------------------------------------


def _nonmonotonic_poll(history: EditableHistory) -> Planted | None:
    """Begin a poll with the last record of the previous one."""
    pair = _choose(history, history.neighbours())
    if pair is None:
        return None
    partition, offsets, values = pair.before
    pair.after[1].insert(0, offsets[-1])
    pair.after[2].insert(0, values[-1])
    return Planted(Kind.NONMONOTONIC_POLL, partition, (values[-1],))


def _internal_nonmonotonic_poll(history: EditableHistory) -> Planted | None:
    """Exchange two neighbours within a poll."""
    found = _choose(history, [batch for _, batch in history.undisturbed() if len(batch[1]) > 1])
    if found is None:
        return None
    partition, offsets, values = found
    at = history.random.randrange(len(offsets) - 1)
    offsets[at : at + 2] = offsets[at : at + 2][::-1]
    values[at : at + 2] = values[at : at + 2][::-1]
    return Planted(Kind.INTERNAL_NONMONOTONIC_POLL, partition, (values[at + 1],))


def _skipped_poll(history: EditableHistory) -> Planted | None:
    """Omit the first record of a poll, which others have."""
    pairs = [
        pair
        for pair in history.neighbours()
        if len(pair.after[1]) > 1
        and history.is_missed(pair.poll, pair.after[0], pair.after[2][0], pair.after[1][0])
    ]
    pair = _choose(history, pairs)
    if pair is None:
        return None
    partition, offsets, values = pair.after
    offsets.pop(0)
    return Planted(Kind.SKIPPED_POLL, partition, (values.pop(0),))


def _internal_skipped_poll(history: EditableHistory) -> Planted | None:
    """Omit a record in the middle of a poll, which others have."""
    inner = [
        (batch, at)
        for poll, batch in history.undisturbed()
        for at in range(1, len(batch[1]) - 1)
        if history.is_missed(poll, batch[0], batch[2][at], batch[1][at])
    ]
    found = _choose(history, inner)
    if found is None:
        return None
    (partition, offsets, values), at = found
    offsets.pop(at)
    return Planted(Kind.INTERNAL_SKIPPED_POLL, partition, (values.pop(at),))


# -- transactions ------------------------------------------------------------------------------


def _aborted_read(history: EditableHistory) -> Planted | None:
    """Abort a transaction whose records were read, or read a send that failed."""
    if history.random.random() < 0.4:
        return _failed_read(history)
    read = [
        send
        for send in history.certain()
        if send.transaction and history.committed_places(send.value)
    ]
    mixed = {
        one.transaction
        for one in history.index.history.sends
        if not history.is_plain(one.partition)
    }
    send = _choose(history, [send for send in read if send.transaction not in mixed])
    if send is None:
        return None
    for operation in history.operations:
        if isinstance(operation, End) and operation.transaction == send.transaction:
            operation.action = Action.ABORT
    return Planted(Kind.ABORTED_READ, send.partition, (send.value,))


def _failed_read(history: EditableHistory) -> Planted | None:
    send = _choose(history, [send for send in history.certain() if send.value in history.places])
    if send is None:
        return None
    send.outcome, send.offset = Outcome.FAILED, None
    return Planted(Kind.ABORTED_READ, send.partition, (send.value,))


def _precommitted_read(history: EditableHistory) -> Planted | None:
    """Let a transaction, or another reader, read its record before its commit."""
    commits = {
        end.transaction: end.invoked_ns
        for end in history.index.history.ends
        if end.action is Action.COMMIT and end.outcome is Outcome.OK
    }
    send = _choose(history, [send for send in history.certain() if send.transaction in commits])
    if send is None or send.transaction is None or send.offset is None:
        return None
    history.add_poll(
        "planted",
        send.partition,
        [(send.offset, send.value)],
        read_committed=True,
        transaction=send.transaction if history.random.random() < 0.5 else None,
        at_ns=commits[send.transaction] - 1,
    )
    return Planted(Kind.PRECOMMITTED_READ, send.partition, (send.value,))


def _write_cycle(history: EditableHistory) -> Planted | None:
    """Let two transactions write to two partitions, each first in one of them."""
    first, second = history.random.sample(history.partitions(), 2)
    names = ("one", "two")
    for name in names:
        history.add_begin(f"planted-{name}", name)
    for partition, order in ((first, names), (second, names[::-1])):
        end = history.end(partition)
        for place, name in enumerate(order):
            history.add_send(f"planted-{name}", partition, f"{partition}{name}", end + place, name)
    for name in names:
        history.add_commit(f"planted-{name}", name)
    return Planted(Kind.G0, None, transactions=names)


def _read_cycle(history: EditableHistory) -> Planted | None:
    """Let each of two transactions read what the other wrote."""
    partitions = history.random.sample(history.partitions(), 2)
    names = ("one", "two")
    ends = [history.end(partition) for partition in partitions]
    for name, partition, end in zip(names, partitions, ends, strict=True):
        history.add_begin(f"planted-{name}", name)
        history.add_send(f"planted-{name}", partition, f"of-{name}", end, name)
    for reader, writer in ((0, 1), (1, 0)):
        history.add_poll(
            f"reader-{names[reader]}",
            partitions[writer],
            [(ends[writer], f"of-{names[writer]}")],
            read_committed=True,
            transaction=names[reader],
        )
    for name in names:
        history.add_commit(f"planted-{name}", name)
    return Planted(Kind.G1C, None, transactions=names)


def _read_and_write_cycle(history: EditableHistory) -> Planted | None:
    """Let one transaction write before another, and read what that wrote elsewhere."""
    first, second = history.random.sample(history.partitions(), 2)
    end, other_end = history.end(first), history.end(second)
    for name, partition, offset in (("one", first, end), ("two", first, end + 1)):
        history.add_begin(f"planted-{name}", name)
        history.add_send(f"planted-{name}", partition, f"of-{name}", offset, name)
    history.add_send("planted-two", second, "also-of-two", other_end, "two")
    history.add_commit("planted-two", "two")
    records = [(other_end, "also-of-two")]
    history.add_poll("reader", second, records, read_committed=True, transaction="one")
    history.add_commit("planted-one", "one")
    return Planted(Kind.G1C_WITH_WRITES, None, transactions=("one", "two"))


def _lost_or_truncated(history: EditableHistory) -> Planted | None:
    return _lost_write(history) if history.random.random() < 0.7 else _truncated_tail(history)


PLANTERS: dict[Kind, Planter] = {
    Kind.LOST_WRITE: _lost_or_truncated,
    Kind.DUPLICATE: _duplicate,
    Kind.INCONSISTENT_OFFSET: _inconsistent_offset,
    Kind.NONMONOTONIC_POLL: _nonmonotonic_poll,
    Kind.INTERNAL_NONMONOTONIC_POLL: _internal_nonmonotonic_poll,
    Kind.SKIPPED_POLL: _skipped_poll,
    Kind.INTERNAL_SKIPPED_POLL: _internal_skipped_poll,
    Kind.NONMONOTONIC_SEND: _nonmonotonic_send,
    Kind.APPEND_AGAINST_TIME: _append_against_time,
    Kind.ABORTED_READ: _aborted_read,
    Kind.PRECOMMITTED_READ: _precommitted_read,
    Kind.PHANTOM: _phantom,
    Kind.G0: _write_cycle,
    Kind.G1C: _read_cycle,
    Kind.G1C_WITH_WRITES: _read_and_write_cycle,
    Kind.UNSEEN: _unseen,
}
"""One for each kind."""

CONSEQUENCES: dict[Kind, frozenset[Kind]] = {
    # A reader that omits a record at the end of its own final read has lost it, too.
    Kind.SKIPPED_POLL: frozenset({Kind.LOST_WRITE}),
    Kind.INTERNAL_SKIPPED_POLL: frozenset({Kind.LOST_WRITE}),
    # A record that comes too late was omitted at its place.
    Kind.INTERNAL_NONMONOTONIC_POLL: frozenset({Kind.INTERNAL_SKIPPED_POLL, Kind.SKIPPED_POLL}),
    # An acknowledged record whose offset another one has cannot be read.
    Kind.INCONSISTENT_OFFSET: frozenset({Kind.LOST_WRITE, Kind.APPEND_AGAINST_TIME}),
    Kind.NONMONOTONIC_SEND: frozenset({Kind.APPEND_AGAINST_TIME}),
    Kind.APPEND_AGAINST_TIME: frozenset({Kind.NONMONOTONIC_SEND}),
    # A copy of a record of an open transaction existed before its commit.
    Kind.G1C: frozenset({Kind.PRECOMMITTED_READ}),
}
"""Anomalies that accompany a planted one and are true as well."""
