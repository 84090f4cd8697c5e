"""Anomalies planted into clean histories, to see that each is found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import TypeVar

from tests.checker.anomalies import Kind
from tests.checker.bed import Bed
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
    """What a check must name."""

    kind: Kind
    partition: Partition | None
    values: tuple[str, ...] = ()
    """All of them."""
    transactions: tuple[str, ...] = ()


Planter = Callable[[Bed], Planted | None]
"""Changes a history; None where it has no room for the anomaly."""


def plant(kind: Kind, operations: list[Operation], seed: int) -> Planted | None:
    """Plant an anomaly of a kind into a clean history, in place."""
    bed = Bed(operations, Random(seed))
    return PLANTERS[kind](bed)


def _choose(bed: Bed, candidates: Iterable[T]) -> T | None:
    found: Sequence[T] = list(candidates)
    return bed.random.choice(found) if found else None


# -- the log -----------------------------------------------------------------------------------


def _lost_write(bed: Bed) -> Planted | None:
    def is_covered(send: Send) -> bool:
        cover = bed.index.covers.get(send.partition)
        offset = send.offset
        return (
            cover is not None and offset is not None and cover.start <= offset < cover.end
        ) and send.value in cover.values

    send = _choose(bed, filter(is_covered, bed.certain()))
    if send is None:
        return None
    bed.erase(send.value)
    if bed.index.covers[send.partition].start == 0 and bed.random.random() < 0.3:
        send.offset = None
    return Planted(Kind.LOST_WRITE, send.partition, (send.value,))


def _truncated_tail(bed: Bed) -> Planted | None:
    """The last acknowledged record is above the end that the final read found."""
    covers = bed.index.covers
    sends = [
        send
        for send in bed.certain()
        if send.partition in covers and send.offset == max(bed.index.logs[send.partition].at)
    ]
    send = _choose(bed, sends)
    if send is None or send.offset is None:
        return None
    bed.erase(send.value)
    for operation in bed.operations:
        if isinstance(operation, FinalRead):
            operation.spans = [
                span._replace(end=send.offset, start=min(span.start, send.offset))
                if span.partition == send.partition
                else span
                for span in operation.spans
            ]
    return Planted(Kind.LOST_WRITE, send.partition, (send.value,))


def _unseen(bed: Bed) -> Planted | None:
    send = _choose(bed, bed.certain())
    if send is None:
        return None
    bed.erase(send.value)
    kept = [operation for operation in bed.operations if not isinstance(operation, FinalRead)]
    bed.operations[:] = kept
    return Planted(Kind.UNSEEN, send.partition, (send.value,))


def _duplicate(bed: Bed) -> Planted | None:
    """A retry that was written twice: the second copy stands at the end."""
    polled = [send for send in bed.index.history.sends if send.value in bed.places]
    unknown = [send for send in polled if send.outcome is Outcome.UNKNOWN]
    send = _choose(bed, unknown if unknown and bed.random.random() < 0.5 else polled)
    if send is None:
        return None
    bed.add_poll("planted", send.partition, [(bed.end(send.partition), send.value)])
    return Planted(Kind.DUPLICATE, send.partition, (send.value,))


def _inconsistent_offset(bed: Bed) -> Planted | None:
    """Two readers disagree, or two sends are acknowledged at one offset."""
    partition = bed.random.choice(bed.partitions())
    at = bed.index.logs[partition].at
    offset = _choose(bed, at)
    if offset is None:
        return None
    if bed.random.random() < 0.5:
        bed.add_send("planted", partition, "planted", offset)
    else:
        bed.add_send("planted", partition, "planted", None)
        bed.add_poll("planted-reader", partition, [(offset, "planted")])
    return Planted(Kind.INCONSISTENT_OFFSET, partition, (at[offset], "planted"))


def _phantom(bed: Bed) -> Planted | None:
    """A value that nobody sent, or that was sent to another partition."""
    partition, other = bed.random.sample(bed.partitions(), 2)
    if bed.random.random() < 0.5:
        bed.add_send("planted", other, "planted", None)
    bed.add_poll("planted-reader", partition, [(bed.end(partition), "planted")])
    return Planted(Kind.PHANTOM, partition, ("planted",))


# -- the order of sends ------------------------------------------------------------------------


def _pairs(bed: Bed) -> Iterable[tuple[Send, Send]]:
    """Two acknowledged records of a partition and of one transaction (or none), in order."""
    by_place: dict[tuple[Partition, str | None], list[Send]] = {}
    for send in bed.certain():
        by_place.setdefault((send.partition, send.transaction), []).append(send)
    for sends in by_place.values():
        for first, second in combinations(sends, 2):
            if first.offset is not None and second.offset is not None:
                yield (first, second) if first.offset < second.offset else (second, first)


def _nonmonotonic_send(bed: Bed) -> Planted | None:
    """Of a producer, two neighbours among its acknowledged records change places."""
    last: dict[tuple[Partition, str], Send] = {}
    pairs = []
    for send in bed.index.history.sends:
        if send.offset is None:
            continue
        before = last.get((send.partition, send.process))
        last[send.partition, send.process] = send
        if before is not None and before.transaction == send.transaction:
            pairs.append((before, send))
    both = [pair for pair in pairs if all(map(bed.is_certain, pair))]
    pair = _choose(bed, [pair for pair in both if bed.is_plain(pair[0].partition)])
    if pair is None:
        return None
    bed.swap(*pair)
    return Planted(Kind.NONMONOTONIC_SEND, pair[0].partition, (pair[0].value, pair[1].value))


def _append_against_time(bed: Bed) -> Planted | None:
    pairs = [pair for pair in _pairs(bed) if pair[0].completed_ns < pair[1].invoked_ns]
    pair = _choose(bed, [pair for pair in pairs if pair[0].process != pair[1].process])
    if pair is None:
        return None
    bed.swap(*pair)
    return Planted(Kind.APPEND_AGAINST_TIME, pair[0].partition, (pair[0].value,))


# -- polls -------------------------------------------------------------------------------------


def _nonmonotonic_poll(bed: Bed) -> Planted | None:
    """A poll begins with the last record of the one before."""
    pair = _choose(bed, bed.neighbours())
    if pair is None:
        return None
    partition, offsets, values = pair.before
    pair.after[1].insert(0, offsets[-1])
    pair.after[2].insert(0, values[-1])
    return Planted(Kind.NONMONOTONIC_POLL, partition, (values[-1],))


def _internal_nonmonotonic_poll(bed: Bed) -> Planted | None:
    """Two neighbours within a poll change places."""
    found = _choose(bed, [batch for _, batch in bed.undisturbed() if len(batch[1]) > 1])
    if found is None:
        return None
    partition, offsets, values = found
    at = bed.random.randrange(len(offsets) - 1)
    offsets[at : at + 2] = offsets[at : at + 2][::-1]
    values[at : at + 2] = values[at : at + 2][::-1]
    return Planted(Kind.INTERNAL_NONMONOTONIC_POLL, partition, (values[at + 1],))


def _skipped_poll(bed: Bed) -> Planted | None:
    """A poll's first record is left out, which others have."""
    pairs = [
        pair
        for pair in bed.neighbours()
        if len(pair.after[1]) > 1
        and bed.is_missed(pair.poll, pair.after[0], pair.after[2][0], pair.after[1][0])
    ]
    pair = _choose(bed, pairs)
    if pair is None:
        return None
    partition, offsets, values = pair.after
    offsets.pop(0)
    return Planted(Kind.SKIPPED_POLL, partition, (values.pop(0),))


def _internal_skipped_poll(bed: Bed) -> Planted | None:
    """A record in the middle of a poll is left out, which others have."""
    inner = [
        (batch, at)
        for poll, batch in bed.undisturbed()
        for at in range(1, len(batch[1]) - 1)
        if bed.is_missed(poll, batch[0], batch[2][at], batch[1][at])
    ]
    found = _choose(bed, inner)
    if found is None:
        return None
    (partition, offsets, values), at = found
    offsets.pop(at)
    return Planted(Kind.INTERNAL_SKIPPED_POLL, partition, (values.pop(at),))


# -- transactions ------------------------------------------------------------------------------


def _aborted_read(bed: Bed) -> Planted | None:
    """A transaction whose records were read turns out aborted, or a send that failed is read."""
    if bed.random.random() < 0.4:
        return _failed_read(bed)
    read = [send for send in bed.certain() if send.transaction and bed.committed_places(send.value)]
    mixed = {one.transaction for one in bed.index.history.sends if not bed.is_plain(one.partition)}
    send = _choose(bed, [send for send in read if send.transaction not in mixed])
    if send is None:
        return None
    for operation in bed.operations:
        if isinstance(operation, End) and operation.transaction == send.transaction:
            operation.action = Action.ABORT
    return Planted(Kind.ABORTED_READ, send.partition, (send.value,))


def _failed_read(bed: Bed) -> Planted | None:
    send = _choose(bed, [send for send in bed.certain() if send.value in bed.places])
    if send is None:
        return None
    send.outcome, send.offset = Outcome.FAILED, None
    return Planted(Kind.ABORTED_READ, send.partition, (send.value,))


def _precommitted_read(bed: Bed) -> Planted | None:
    """A transaction, or somebody else, reads its record before it is committed."""
    commits = {
        end.transaction: end.invoked_ns
        for end in bed.index.history.ends
        if end.action is Action.COMMIT and end.outcome is Outcome.OK
    }
    send = _choose(bed, [send for send in bed.certain() if send.transaction in commits])
    if send is None or send.transaction is None or send.offset is None:
        return None
    bed.add_poll(
        "planted",
        send.partition,
        [(send.offset, send.value)],
        read_committed=True,
        transaction=send.transaction if bed.random.random() < 0.5 else None,
        at_ns=commits[send.transaction] - 1,
    )
    return Planted(Kind.PRECOMMITTED_READ, send.partition, (send.value,))


def _write_cycle(bed: Bed) -> Planted | None:
    """Two transactions write to two partitions, in either first."""
    first, second = bed.random.sample(bed.partitions(), 2)
    names = ("one", "two")
    for name in names:
        bed.add_begin(f"planted-{name}", name)
    for partition, order in ((first, names), (second, names[::-1])):
        end = bed.end(partition)
        for place, name in enumerate(order):
            bed.add_send(f"planted-{name}", partition, f"{partition}{name}", end + place, name)
    for name in names:
        bed.add_commit(f"planted-{name}", name)
    return Planted(Kind.G0, None, transactions=names)


def _read_cycle(bed: Bed) -> Planted | None:
    """Each of two transactions reads what the other wrote."""
    partitions = bed.random.sample(bed.partitions(), 2)
    names = ("one", "two")
    ends = [bed.end(partition) for partition in partitions]
    for name, partition, end in zip(names, partitions, ends, strict=True):
        bed.add_begin(f"planted-{name}", name)
        bed.add_send(f"planted-{name}", partition, f"of-{name}", end, name)
    for reader, writer in ((0, 1), (1, 0)):
        bed.add_poll(
            f"reader-{names[reader]}",
            partitions[writer],
            [(ends[writer], f"of-{names[writer]}")],
            read_committed=True,
            transaction=names[reader],
        )
    for name in names:
        bed.add_commit(f"planted-{name}", name)
    return Planted(Kind.G1C, None, transactions=names)


def _read_and_write_cycle(bed: Bed) -> Planted | None:
    """One transaction writes before another, and reads what that wrote elsewhere."""
    first, second = bed.random.sample(bed.partitions(), 2)
    end, other_end = bed.end(first), bed.end(second)
    for name, partition, offset in (("one", first, end), ("two", first, end + 1)):
        bed.add_begin(f"planted-{name}", name)
        bed.add_send(f"planted-{name}", partition, f"of-{name}", offset, name)
    bed.add_send("planted-two", second, "also-of-two", other_end, "two")
    bed.add_commit("planted-two", "two")
    records = [(other_end, "also-of-two")]
    bed.add_poll("reader", second, records, read_committed=True, transaction="one")
    bed.add_commit("planted-one", "one")
    return Planted(Kind.G1C_WITH_WRITES, None, transactions=("one", "two"))


def _lost_or_truncated(bed: Bed) -> Planted | None:
    return _lost_write(bed) if bed.random.random() < 0.7 else _truncated_tail(bed)


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
    # A reader that leaves a record out at the end of its own final read has lost it, too.
    Kind.SKIPPED_POLL: frozenset({Kind.LOST_WRITE}),
    Kind.INTERNAL_SKIPPED_POLL: frozenset({Kind.LOST_WRITE}),
    # What comes too late was left out where it belonged.
    Kind.INTERNAL_NONMONOTONIC_POLL: frozenset({Kind.INTERNAL_SKIPPED_POLL, Kind.SKIPPED_POLL}),
    # An acknowledged record whose place another one has cannot be read.
    Kind.INCONSISTENT_OFFSET: frozenset({Kind.LOST_WRITE, Kind.APPEND_AGAINST_TIME}),
    Kind.NONMONOTONIC_SEND: frozenset({Kind.APPEND_AGAINST_TIME}),
    Kind.APPEND_AGAINST_TIME: frozenset({Kind.NONMONOTONIC_SEND}),
    # A copy of a record of an open transaction was there before its commit.
    Kind.G1C: frozenset({Kind.PRECOMMITTED_READ}),
}
"""Anomalies that come with a planted one, being true of the history as well."""
