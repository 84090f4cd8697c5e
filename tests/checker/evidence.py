"""The operations that prove an anomaly: sends, resets and polls of its values and offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.checker.anomalies import Anomaly, Kind
from tests.checker.history import History
from tests.checker.lines import encode
from tests.checker.operations import Batch, Begin, End, FinalRead, Partition, Poll, Send

FULL_MAX = 10
"""The number of anomalies of a kind that get evidence."""
_LINES_MAX = 10
"""The most operations per anomaly."""


@dataclass(slots=True)
class _Wanted:
    """What to look for, and the anomalies that need it."""

    values: dict[str, list[Anomaly]]
    offsets: dict[tuple[Partition, int], list[Anomaly]]
    transactions: dict[str, list[Anomaly]]
    partitions: dict[Partition, list[Anomaly]]
    """For lost writes, which the final read proves."""


def attach(history: History, anomalies: Iterable[Anomaly]) -> None:
    """Attach operations to the first anomalies of each kind, in one pass over the history."""
    wanted = _wanted(_first_of_each_kind(anomalies))
    if not (wanted.values or wanted.offsets or wanted.transactions):
        return
    for send in history.sends:
        _add(wanted.values.get(send.value, ()), send)
    for begin in history.begins:
        _add(wanted.transactions.get(begin.transaction, ()), begin)
    for end in history.ends:
        _add(wanted.transactions.get(end.transaction, ()), end)
    for poll in history.polls:
        _take_poll(wanted, poll)
    for final in history.finals:
        for span in final.spans:
            alone = replace(final, spans=[span])
            _add(wanted.partitions.get(span.partition, ()), alone)


def _first_of_each_kind(anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
    seen: Counter[Kind] = Counter()
    for anomaly in anomalies:
        seen[anomaly.kind] += 1
        if seen[anomaly.kind] <= FULL_MAX:
            yield anomaly


def _wanted(anomalies: Iterable[Anomaly]) -> _Wanted:
    wanted = _Wanted({}, {}, {}, {})
    for anomaly in anomalies:
        for value in anomaly.values:
            wanted.values.setdefault(value, []).append(anomaly)
        for name in anomaly.transactions:
            wanted.transactions.setdefault(name, []).append(anomaly)
        if anomaly.partition is not None:
            for offset in anomaly.offsets:
                wanted.offsets.setdefault((anomaly.partition, offset), []).append(anomaly)
            if anomaly.kind is Kind.LOST_WRITE:
                wanted.partitions.setdefault(anomaly.partition, []).append(anomaly)
    return wanted


def _add(anomalies: Iterable[Anomaly], operation: Send | Begin | End | FinalRead | Poll) -> None:
    line = None
    for anomaly in anomalies:
        if len(anomaly.operations) < _LINES_MAX:
            line = line or encode(operation)
            if line not in anomaly.operations:
                anomaly.operations.append(line)


def _take_poll(wanted: _Wanted, poll: Poll) -> None:
    """Add a poll, cut to the relevant records, to the anomalies that need it."""
    found: dict[int, tuple[Anomaly, dict[Partition, Batch]]] = {}
    for partition, offsets, values in poll.batches:
        for offset, value in zip(offsets, values, strict=True):
            for anomaly in _wanting(wanted, partition, offset, value):
                _, batches = found.setdefault(id(anomaly), (anomaly, {}))
                batch = batches.setdefault(partition, (partition, [], []))
                if not batch[1] or batch[1][-1] != offset:
                    batch[1].append(offset)
                    batch[2].append(value)
    for anomaly, batches in found.values():
        _add([anomaly], replace(poll, batches=list(batches.values())))


def _wanting(wanted: _Wanted, partition: Partition, offset: int, value: str) -> list[Anomaly]:
    by_value = wanted.values.get(value, [])
    by_offset = wanted.offsets.get((partition, offset), [])
    return by_value + by_offset if by_value or by_offset else []
