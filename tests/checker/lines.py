"""The file format of histories: one JSON array per line, starting with the kind of operation.

| kind | elements after it |
|---|---|
| send | process, topic, partition, value, invoked, completed, outcome, offset, transaction, key |
| poll | process, invoked, completed, [[topic, partition, [offset…], [value…]]…], read committed, transaction |
| assign | process, at, [[topic, partition, offset]…] |
| subscribe | process, at, [topic…] |
| rebalance | process, at, "assigned" "revoked" or "lost", [[topic, partition]…] |
| seek | process, at, topic, partition, offset |
| begin | process, at, transaction |
| end | process, invoked, completed, transaction, "commit" or "abort", outcome |
| final | process, invoked, completed, [[topic, partition, start, end]…] |
| topic | name, compacted |

Times are in ns. An outcome is "ok", "failed" or "unknown". Unknown or absent values are null.
"""  # noqa: E501 (a table)

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from sys import intern
from typing import TypeVar, cast

from tests.checker.operations import (
    Action,
    Assign,
    Batch,
    Begin,
    Change,
    End,
    FinalRead,
    Operation,
    Outcome,
    Partition,
    Poll,
    Rebalance,
    Seek,
    Send,
    Span,
    Start,
    Subscribe,
    Topic,
)

Word = TypeVar("Word", bound=StrEnum)
Row = list[object]
_PREVIEW = 80
_dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Malformed(ValueError):
    """A line is not an operation."""


def encode(operation: Operation) -> str:
    """Encode an operation as a line, without the newline."""
    return _dump(_row(operation))


def _row(operation: Operation) -> Row:
    match operation:
        case Send(process, partition, value, invoked, completed, outcome, offset, within, key):
            place = (process, *partition, value, invoked, completed)
            return ["send", *place, outcome, offset, within, key]
        case Poll(process, invoked, completed, batches, committed, within):
            parts = [[*partition, offsets, values] for partition, offsets, values in batches]
            return ["poll", process, invoked, completed, parts, committed, within]
        case End(process, invoked, completed, transaction, action, outcome):
            return ["end", process, invoked, completed, transaction, action, outcome]
        case FinalRead(process, invoked, completed, spans):
            ends = [[*span.partition, span.start, span.end] for span in spans]
            return ["final", process, invoked, completed, ends]
        case Topic(name, compacted):
            return ["topic", name, compacted]
        case _:
            return _event_row(operation)


def _event_row(event: Assign | Subscribe | Rebalance | Seek | Begin) -> Row:
    match event:
        case Assign(process, at, starts):
            return ["assign", process, at, [[*one.partition, one.offset] for one in starts]]
        case Subscribe(process, at, topics):
            return ["subscribe", process, at, topics]
        case Rebalance(process, at, change, partitions):
            return ["rebalance", process, at, change, partitions]
        case Seek(process, at, partition, offset):
            return ["seek", process, at, *partition, offset]
        case Begin(process, at, transaction):
            return ["begin", process, at, transaction]


# -- checks ------------------------------------------------------------------------------------


def _shown(found: object) -> str:
    text = _dump(found)
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"


def _text(found: object, what: str) -> str:
    if type(found) is not str:
        raise Malformed(f"expected {what} as a string, found {_shown(found)}")
    return intern(found)


def _optional_text(found: object, what: str) -> str | None:
    return None if found is None else _text(found, what)


def _count(found: object, what: str) -> int:
    if type(found) is not int or found < 0:
        raise Malformed(f"expected {what} as a whole number from 0 on, found {_shown(found)}")
    return found


def _counts(found: Row) -> list[int]:
    """Check all offsets of a batch at once. One call per offset would dominate the time to read."""
    offsets = cast("list[int]", found)
    if set(map(type, found)) <= {int} and min(offsets, default=0) >= 0:
        return offsets
    return [_count(one, "an offset") for one in found]


def _texts(found: Row) -> list[str]:
    """All values of a batch at once. Each is the same object as its send's."""
    if set(map(type, found)) <= {str}:
        return list(map(intern, cast("list[str]", found)))
    return [_text(one, "a value") for one in found]


def _optional_count(found: object, what: str) -> int | None:
    return None if found is None else _count(found, what)


def _flag(found: object, what: str) -> bool:
    if type(found) is not bool:
        raise Malformed(f"expected {what} as true or false, found {_shown(found)}")
    return found


def _list(found: object, what: str) -> Row:
    if type(found) is not list:
        raise Malformed(f"expected {what} as a list, found {_shown(found)}")
    return found


def _word(found: object, words: type[Word], what: str) -> Word:
    try:
        return words(cast("str", found))
    except ValueError:
        names = ", ".join(words)
        raise Malformed(f"expected {what} as one of {names}, found {_shown(found)}") from None


def _parts(found: object, count: int, what: str) -> Row:
    row = _list(found, what)
    if len(row) != count:
        raise Malformed(f"expected {what} as {count} elements, found {len(row)}: {_shown(row)}")
    return row


# -- reading -----------------------------------------------------------------------------------


class Decoder:
    """Decodes lines. Repeated partitions and names are the same objects."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[object, object], Partition] = {}

    def operation(self, line: str | bytes) -> Operation:
        """Decode a line. Raises Malformed, which names what was expected."""
        try:
            row = json.loads(line if isinstance(line, str) else str(line, "utf-8"))
        except ValueError as error:
            raise Malformed(f"expected a JSON array: {error}") from error
        if type(row) is not list or not row:
            raise Malformed(f"expected a JSON array that begins with a kind, found {_shown(row)}")
        kind = row[0]
        if type(kind) is not str or kind not in _READERS:
            kinds = ", ".join(_READERS)
            raise Malformed(f"expected a kind of operation ({kinds}), found {_shown(kind)}")
        count, read = _READERS[kind]
        if len(row) != count:
            raise Malformed(f"expected {count} elements of a {kind}, found {len(row)}")
        return read(self, row)

    def _partition(self, topic: object, index: object) -> Partition:
        try:
            known = self._partitions.get((topic, index))
        except TypeError:  # lists and objects are not hashable
            known = None
        if known is None:
            known = (_text(topic, "a topic"), _count(index, "a partition"))
            self._partitions[known] = known
        return known

    def _times(self, invoked: object, completed: object) -> tuple[int, int]:
        begin, end = _count(invoked, "invoked"), _count(completed, "completed")
        if end < begin:
            raise Malformed(f"expected completed not before invoked ({begin}), found {end}")
        return begin, end

    def _send(self, row: Row) -> Send:
        _, process, topic, index, value, invoked, completed, outcome, offset, within, key = row
        ended = _word(outcome, Outcome, "an outcome")
        at = _optional_count(offset, "an offset")
        if at is not None and ended is not Outcome.OK:
            raise Malformed(f"expected no offset of a send that is {ended}, found {at}")
        return Send(
            _text(process, "a process"),
            self._partition(topic, index),
            _text(value, "a value"),
            *self._times(invoked, completed),
            ended,
            at,
            _optional_text(within, "a transaction"),
            _optional_text(key, "a key"),
        )

    def _poll(self, row: Row) -> Poll:
        _, process, invoked, completed, batches, committed, within = row
        return Poll(
            _text(process, "a process"),
            *self._times(invoked, completed),
            [self._batch(batch) for batch in _list(batches, "batches")],
            _flag(committed, "read committed"),
            _optional_text(within, "a transaction"),
        )

    def _batch(self, batch: object) -> Batch:
        topic, index, offsets, values = _parts(batch, 4, "a batch")
        where = _list(offsets, "offsets")
        what = _list(values, "values")
        if len(where) != len(what):
            raise Malformed(f"expected a value an offset, found {len(what)} to {len(where)}")
        return (
            self._partition(topic, index),
            _counts(where),
            _texts(what),
        )

    def _assign(self, row: Row) -> Assign:
        _, process, at, starts = row
        return Assign(
            _text(process, "a process"),
            _count(at, "a time"),
            [self._start(start) for start in _list(starts, "starts")],
        )

    def _start(self, found: object) -> Start:
        topic, index, offset = _parts(found, 3, "a start")
        return Start(self._partition(topic, index), _optional_count(offset, "an offset"))

    def _subscribe(self, row: Row) -> Subscribe:
        _, process, at, topics = row
        names = [_text(topic, "a topic") for topic in _list(topics, "topics")]
        return Subscribe(_text(process, "a process"), _count(at, "a time"), names)

    def _rebalance(self, row: Row) -> Rebalance:
        _, process, at, change, partitions = row
        pairs = [_parts(one, 2, "a partition") for one in _list(partitions, "partitions")]
        return Rebalance(
            _text(process, "a process"),
            _count(at, "a time"),
            _word(change, Change, "a change"),
            [self._partition(topic, index) for topic, index in pairs],
        )

    def _seek(self, row: Row) -> Seek:
        _, process, at, topic, index, offset = row
        return Seek(
            _text(process, "a process"),
            _count(at, "a time"),
            self._partition(topic, index),
            _optional_count(offset, "an offset"),
        )

    def _begin(self, row: Row) -> Begin:
        _, process, at, within = row
        return Begin(
            _text(process, "a process"), _count(at, "a time"), _text(within, "a transaction")
        )

    def _end(self, row: Row) -> End:
        _, process, invoked, completed, within, action, outcome = row
        return End(
            _text(process, "a process"),
            *self._times(invoked, completed),
            _text(within, "a transaction"),
            _word(action, Action, "an action"),
            _word(outcome, Outcome, "an outcome"),
        )

    def _final(self, row: Row) -> FinalRead:
        _, process, invoked, completed, spans = row
        return FinalRead(
            _text(process, "a process"),
            *self._times(invoked, completed),
            [self._span(span) for span in _list(spans, "spans")],
        )

    def _span(self, found: object) -> Span:
        topic, index, start, end = _parts(found, 4, "a span")
        first, last = _count(start, "a start"), _count(end, "an end")
        if last < first:
            raise Malformed(f"expected an end not below the start {first}, found {last}")
        return Span(self._partition(topic, index), first, last)

    def _topic(self, row: Row) -> Topic:
        _, name, compacted = row
        return Topic(_text(name, "a topic"), _flag(compacted, "compacted"))


_READERS: dict[str, tuple[int, Callable[[Decoder, Row], Operation]]] = {
    "send": (11, Decoder._send),
    "poll": (7, Decoder._poll),
    "assign": (4, Decoder._assign),
    "subscribe": (4, Decoder._subscribe),
    "rebalance": (5, Decoder._rebalance),
    "seek": (6, Decoder._seek),
    "begin": (4, Decoder._begin),
    "end": (7, Decoder._end),
    "final": (5, Decoder._final),
    "topic": (3, Decoder._topic),
}
"""By kind, the number of elements in its array including the kind, and the function to read it."""
