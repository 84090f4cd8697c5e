"""Runs a topic's interceptors over a batch: decodes it, calls each one and encodes the result.

The batch keeps its offsets, sequence numbers, producer and attributes: a record that was left out
leaves a gap, so that the sequence numbers of an idempotent producer stay valid and duplicates are
detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from raylog.actors.interceptors.api import Interceptor, Record, Rejected
from raylog.wire.buffers import Buffer
from raylog.wire.errors import InvalidRecord, MessageTooLarge, UnknownServerError
from raylog.wire.records import (
    NO_TIMESTAMP,
    BatchHeader,
    decode_batch,
    encode_like,
    iter_batches,
    refusal_of,
)
from raylog.wire.records import Record as StoredRecord

RECORDS_MAX = 200_000
"""Maximum records in a produced batch: decoded, tiny ones take fifty times their size."""

Records = tuple[Record, ...]
_new = tuple.__new__  # half the cost of the generated constructors


class InterceptorFailed(UnknownServerError):
    """An interceptor raised an exception or returned something invalid; the message names it."""


class InterceptorsUnusable(InterceptorFailed):
    """An interceptor is not installed, cannot be loaded or rejects its options."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The configured interceptors of a topic, in the order in which they are called."""

    topic: str
    interceptors: tuple[Interceptor, ...]
    trace: list[str] = field(default_factory=list)
    """The interceptors called so far: the last one is running, or has failed."""

    def traced(self, trace: list[str]) -> Chain:
        """Return a copy with its own trace, for one call."""
        return replace(self, trace=trace)

    @property
    def intercepts_fetch(self) -> bool:
        """Whether any of them overrides `on_fetch`."""
        return any(
            getattr(type(one), "on_fetch", None) is not Interceptor.on_fetch
            for one in self.interceptors
        )

    def produced(self, batch: Buffer, header: BatchHeader) -> tuple[Records, bool]:
        """Return the records of a batch to store, and whether any differ from those produced.

        The batch has passed `check_produced`. Raises InvalidRecord with `record_errors` if a record
        is rejected, and InterceptorFailed.
        """
        if header.record_count > RECORDS_MAX:
            raise MessageTooLarge(
                f"{header.record_count} records in a batch: at most {RECORDS_MAX} are allowed "
                "where a topic has interceptors"
            )
        came = tuple(map(_shown, decode_batch(batch)))
        for position, record in enumerate(came):
            if record.offset != position:
                raise InvalidRecord(f"record at offset {record.offset}, expected {position}")
        records = came
        for one in self.interceptors:
            records = self._on_produce(one, records)
        return records, not _same(records, came)

    def _on_produce(self, one: Interceptor, records: Records) -> Records:
        returned = self._called(one, one.on_produce, records)
        rejected = [item for item in returned if isinstance(item, Rejected)]
        if rejected:
            _check_rejected(one, rejected, records)
            raise refusal_of(
                InvalidRecord, [(item.offset, f"{one.name}: {item.reason}") for item in rejected]
            )
        return _checked(one, returned, records)

    def fetched(self, data: Buffer) -> bytes:
        """Return stored batches as a consumer gets them. Raises InterceptorFailed."""
        return b"".join(
            batch if header.is_control else self._fetched(batch, header)
            for header, batch in iter_batches(data)
        )

    def _fetched(self, batch: memoryview, header: BatchHeader) -> Buffer:
        came = tuple(map(_shown, decode_batch(batch)))
        if not came:
            return batch
        records = came
        for one in self.interceptors:
            returned = self._called(one, one.on_fetch, records)
            records = _checked(one, returned, records)
        return batch if _same(records, came) else encoded(header, records)

    def _called(
        self,
        one: Interceptor,
        method: Callable[[str, Records], Iterable[Record | Rejected]],
        records: Records,
    ) -> Sequence[Record | Rejected]:
        """Call an interceptor; any exception becomes InterceptorFailed."""
        if not records:
            return records
        self.trace.append(one.name)
        try:
            returned = method(self.topic, records)
            return returned if returned is records else tuple(returned)
        except BaseException as failure:  # a plug-in may even raise SystemExit
            raise InterceptorFailed(
                f"interceptor {one.name!r} failed: {type(failure).__name__}: {failure}"
            ) from failure


def encoded(header: BatchHeader, records: Iterable[Record], level: int | None = None) -> bytes:
    """Return the batch of `header` with these records.

    Without any it has no timestamp either, so that a search for the latest timestamp does not end
    there.
    """
    stored = list(map(_stored, records))
    if not stored:
        header = header._replace(max_timestamp=NO_TIMESTAMP)
    return encode_like(header, stored, level)


def _shown(record: StoredRecord) -> Record:
    offset, timestamp, key, value, headers = record
    return _new(Record, (offset, timestamp, key, value, tuple(headers) if headers else ()))


def _stored(record: Record) -> StoredRecord:
    offset, timestamp, key, value, headers = record
    return _new(StoredRecord, (offset, timestamp, key, value, list(headers)))


def _same(records: Records, came: Records) -> bool:
    return records is came or (
        len(records) == len(came)
        and all(one is other for one, other in zip(records, came, strict=True))
    )


# ---- validating what an interceptor returns ----------------------------------------------------


def _checked(one: Interceptor, returned: Sequence[Record | Rejected], given: Records) -> Records:
    """Return the records if they are a subsequence, by offset, of those it was given."""
    if returned is given:
        return given
    by_offset = {record.offset: record for record in given}
    last = -1
    records = []
    for item in returned:
        if not isinstance(item, Record):
            raise _nonsense(one, f"returned a {type(item).__name__} instead of a Record")
        original = by_offset.get(item.offset)
        if original is None:
            raise _nonsense(one, f"returned a record of offset {item.offset}, which it did not get")
        if item.offset <= last:
            raise _nonsense(one, f"returned offset {item.offset} behind {last}")
        if item is not original:
            _check_record(one, item)
        last = item.offset
        records.append(item)
    return tuple(records)


def _check_record(one: Interceptor, record: Record) -> None:
    is_right = (
        isinstance(record.timestamp, int)
        and record.timestamp >= -1
        and _is_bytes(record.key)
        and _is_bytes(record.value)
        and isinstance(record.headers, tuple | list)
        and all(_is_header(header) for header in record.headers)
    )
    if not is_right:
        raise _nonsense(
            one,
            f"returned at offset {record.offset} what is no record: timestamp in ms, key and value "
            "bytes or None, headers (str, bytes or None) are expected",
        )


def _is_bytes(value: object) -> bool:
    return value is None or isinstance(value, bytes)


def _is_header(header: object) -> bool:
    match header:
        case (str(), value):
            return _is_bytes(value)
        case _:
            return False


def _check_rejected(one: Interceptor, rejected: Iterable[Rejected], given: Records) -> None:
    offsets = {record.offset for record in given}
    for item in rejected:
        if item.offset not in offsets:
            raise _nonsense(one, f"rejected offset {item.offset}, which it did not get")


def _nonsense(one: Interceptor, what: str) -> InterceptorFailed:
    return InterceptorFailed(f"interceptor {one.name!r} {what}")
