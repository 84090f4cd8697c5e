"""A sink's records in one partition of the state topic, and which of them are committed.

Readers of committed records stop at the last stable offset. Here they would wait for open
transactions of other sinks whose state is in the same partition. So everything is read, and a batch
counts once a marker of its own producer commits it. That marker follows it in the log: coordinators
answer InitProducerId only after writing all markers of the previous transaction, and the cleaner
keeps a marker as long as any record of its transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from raylog.sink.state import VERSION, SinkState, StateUnreadable, decode_state
from raylog.wire.compression import Codec
from raylog.wire.control import decode_end_txn_marker
from raylog.wire.records import BatchHeader, Record, decode_batch, encode_batch

Headers = list[tuple[str, bytes | None]]

REGISTERED = "registered"
_VERSION_HEADER = "version"
_SEQUENCE_HEADER = "sequence"
_PARTS_HEADER = "parts"
_OVERHEAD_BYTES = 512
"""Of a batch and of a record, without its key and value."""
_NAME_BYTES = 4
"""The maximum bytes of one character of a sink's id."""


def registration(sink_id: str, now_ms: int) -> bytes:
    """Encode the batch that registers the sink in the state topic."""
    headers: Headers = [(_VERSION_HEADER, b"%d" % VERSION)]
    return encode_batch([Record(0, now_ms, _key(sink_id, REGISTERED), b"{}", headers)])


def state_batches(
    sink_id: str, sequence: int, encoded: bytes, *, batch_bytes_max: int, now_ms: int
) -> list[bytes]:
    """Encode a state as transactional batches without a producer; one batch if it fits.

    Raises StateUnreadable if `batch_bytes_max` (the topic's `max.message.bytes`) is too small.
    """
    room = batch_bytes_max - _OVERHEAD_BYTES - _NAME_BYTES * len(sink_id)
    if room <= 0:
        raise StateUnreadable(f"max.message.bytes={batch_bytes_max} has no room for a sink's state")
    parts = [encoded[start : start + room] for start in range(0, len(encoded), room)] or [b""]
    headers: Headers = [
        (_VERSION_HEADER, b"%d" % VERSION),
        (_SEQUENCE_HEADER, b"%d" % sequence),
        (_PARTS_HEADER, b"%d" % len(parts)),
    ]
    return [
        encode_batch(
            [Record(0, now_ms, _key(sink_id, number), part, headers)],
            codec=Codec.ZSTD,
            is_transactional=True,
        )
        for number, part in enumerate(parts)
    ]


def _key(sink_id: str, part: int | str) -> bytes:
    return json.dumps([sink_id, part], ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a state."""

    sequence: int
    parts: int
    value: bytes


@dataclass(slots=True)
class StateScan:
    """Scans one partition's batches, from the beginning and in order, for one sink."""

    sink_id: str
    where: str
    """Topic and partition, for messages."""
    is_registered: bool = False
    """Whether this partition has the sink's registration."""
    _parts: dict[int, _Part] = field(default_factory=dict)
    _open: dict[int, list[Record]] = field(default_factory=dict)
    """By producer id: this sink's records of a transaction without a marker yet."""

    @property
    def is_settled(self) -> bool:
        """Whether each of the sink's transactions has its marker."""
        return not self._open

    @property
    def is_known(self) -> bool:
        """Whether the sink has any record here, including those of an open transaction."""
        return self.is_registered or bool(self._parts) or bool(self._open)

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Add the next batch. Raises StateUnreadable for a record of a newer version."""
        if header.is_control:
            for record in decode_batch(batch):
                marker = decode_end_txn_marker(record)
                if marker is not None:
                    self._end(header.producer_id, is_commit=marker.is_commit)
            return
        own = [record for record in decode_batch(batch) if self._part_of(record) is not None]
        if not own:
            return
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend(own)
        else:
            self._take(own)

    def state(self) -> SinkState | None:
        """Return the newest committed state. Raises StateUnreadable."""
        first = self._parts.get(0)
        if first is None:
            return None
        parts = [self._parts.get(number) for number in range(first.parts)]
        values = [
            part.value for part in parts if part is not None and part.sequence == first.sequence
        ]
        where = f"the state of sink {self.sink_id!r} in {self.where}"
        if len(values) < first.parts:
            raise StateUnreadable(
                f"{where}: expected {first.parts} parts of sequence {first.sequence}, "
                f"found {len(values)}"
            )
        return decode_state(b"".join(values), first.sequence, where)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        """Handle the end of a producer's transaction."""
        records = self._open.pop(producer_id, [])
        if is_commit:
            self._take(records)

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            part = self._part_of(record)
            if part == REGISTERED:
                self.is_registered = record.value is not None
            elif isinstance(part, int) and record.value is None:
                self._parts.pop(part, None)
            elif isinstance(part, int):
                self._parts[part] = self._read(record)

    def _read(self, record: Record) -> _Part:
        headers = dict(record.headers)
        where = f"the state of sink {self.sink_id!r} at offset {record.offset} of {self.where}"
        try:
            version = int(headers[_VERSION_HEADER] or b"")
            if version != VERSION:
                raise StateUnreadable(
                    f"{where} is of version {version}, this build knows 1 (in the group's offsets) "
                    f"and {VERSION}: a newer build has written it"
                )
            return _Part(
                int(headers[_SEQUENCE_HEADER] or b""),
                int(headers[_PARTS_HEADER] or b""),
                bytes(record.value or b""),
            )
        except (KeyError, ValueError) as error:
            raise StateUnreadable(f"{where} is damaged: {error!r}") from error

    def _part_of(self, record: Record) -> int | str | None:
        """Return which part of this sink's state a record is; None if it is none."""
        try:
            key = json.loads(bytes(record.key or b""))
        except ValueError:
            return None
        match key:
            case [self.sink_id, int(part)]:
                return part
            case [self.sink_id, "registered"]:
                return REGISTERED
            case _:
                return None
