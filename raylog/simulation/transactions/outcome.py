"""Derives the outcome of transactions from the batches of a log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raylog.wire.control import decode_end_txn_marker
from raylog.wire.records import BatchHeader, Record, decode_batch, iter_batches

Batch = tuple[BatchHeader, list[Record]]


class MarkerSeen(NamedTuple):
    """One marker in a log."""

    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    ended: bool
    """Whether there was a transaction to end."""


@dataclass(slots=True, eq=False)
class _Span:
    """One transaction in one partition."""

    producer_id: int
    first_offset: int
    records: list[tuple[int, bytes | None, bytes | None]]
    marker_offset: int | None = None
    is_committed: bool = False


class Outcome:
    """The outcome of one partition: visible and aborted records, and last stable offsets."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.visible: dict[int, bytes] = {}
        """Values of visible records by offset."""
        self.latest: dict[bytes, tuple[int, bytes | None]] = {}
        """By key, the offset and value of its last visible record."""
        self.aborted: dict[int, bytes] = {}
        self.markers: list[MarkerSeen] = []
        self._spans: list[_Span] = []
        self._open: dict[int, _Span] = {}
        for header, records in batches:
            self._take(header, records)

    def _take(self, header: BatchHeader, records: list[Record]) -> None:
        producer_id = header.producer_id
        if header.is_control:
            for record in records:
                self._end(header, record)
            return
        found = [(one.offset, one.key, one.value) for one in records]
        if not header.is_transactional:
            self._count(found)
            return
        span = self._open.get(producer_id)
        if span is None:
            span = self._open[producer_id] = _Span(producer_id, header.base_offset, [])
            self._spans.append(span)
        span.records += found

    def _end(self, header: BatchHeader, record: Record) -> None:
        marker = decode_end_txn_marker(record)
        if marker is None:
            return
        span = self._open.pop(header.producer_id, None)
        producer = (header.producer_id, header.producer_epoch)
        ended = span is not None
        self.markers.append(MarkerSeen(record.offset, *producer, marker.coordinator_epoch, ended))
        if span is None:
            return
        span.marker_offset, span.is_committed = record.offset, marker.is_commit
        if marker.is_commit:
            self._count(span.records)
        else:
            self.aborted.update((offset, value or b"") for offset, _, value in span.records)

    def _count(self, found: Sequence[tuple[int, bytes | None, bytes | None]]) -> None:
        for offset, key, value in found:
            self.visible[offset] = value or b""
            if key is not None and offset >= self.latest.get(key, (0, None))[0]:
                self.latest[key] = (offset, value)

    @property
    def undecided(self) -> list[int]:
        """Producers whose transactions have no marker."""
        return list(self._open)

    def values_together(self) -> Iterator[list[bytes]]:
        """The values of each transaction, as markers delimit them."""
        for span in self._spans:
            yield [value or b"" for _, _, value in span.records]

    def last_stable_offset(self, high_watermark: int) -> int:
        """The last stable offset at a high watermark. It follows from the log below."""
        undecided = [
            span.first_offset
            for span in self._spans
            if span.first_offset < high_watermark
            and (span.marker_offset is None or span.marker_offset >= high_watermark)
        ]
        return min([high_watermark, *undecided])

    def aborted_spans(self) -> list[tuple[int, int, int]]:
        """(producer id, first offset, offset of the marker) of every aborted transaction."""
        return [
            (span.producer_id, span.first_offset, span.marker_offset)
            for span in self._spans
            if span.marker_offset is not None and not span.is_committed
        ]


def committed_records(
    data: bytes, aborted: Sequence[Sequence[int]]
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The batches with the records that a read_committed reader returns, as in Kafka's consumer."""
    waiting = sorted((first, producer_id) for producer_id, first in aborted)
    skipped: set[int] = set()
    for header, batch in iter_batches(data):
        while waiting and waiting[0][0] <= header.last_offset:
            skipped.add(waiting.pop(0)[1])
        if header.is_control:
            for record in decode_batch(batch):
                marker = decode_end_txn_marker(record)
                if marker is not None and not marker.is_commit:
                    skipped.discard(header.producer_id)
            yield header, []
        elif header.is_transactional and header.producer_id in skipped:
            yield header, []
        else:
            yield header, decode_batch(batch)
