"""Letters: records that failed, as written to a retry or dead-letter topic, and read back.

Key and value stay unchanged; headers after the record's own hold the rest, as UTF-8 text.

| header | value |
|---|---|
| `raylog-original-topic`, `-partition`, `-offset`, `-timestamp` | where it was first read; ms |
| `raylog-exception-class`, `raylog-exception-text` | why the last run failed; text is truncated |
| `raylog-failure` | raised, stalled, worker lost, undelivered |
| `raylog-attempts` | runs so far, in all topics |
| `raylog-group` | the group that gave it up |
| `raylog-first-failure` | when the first run failed, ms since 1970 |
| `raylog-not-before` | retry topics: when it is due, ms since 1970 |
| `raylog-value-left-out` | bytes of a value that was too large to send with these headers |
| `raylog-replayed` | set by `raylog dlq replay`: the letter's partition and offset |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition
from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.policy import Failure
from raylog.wire.record import Record

Headers = Sequence[tuple[str, bytes | None]]

PREFIX = "raylog-"
ORIGINAL_TOPIC = "raylog-original-topic"
ORIGINAL_PARTITION = "raylog-original-partition"
ORIGINAL_OFFSET = "raylog-original-offset"
ORIGINAL_TIMESTAMP = "raylog-original-timestamp"
EXCEPTION_CLASS = "raylog-exception-class"
EXCEPTION_TEXT = "raylog-exception-text"
FAILURE = "raylog-failure"
ATTEMPTS = "raylog-attempts"
GROUP = "raylog-group"
FIRST_FAILURE = "raylog-first-failure"
NOT_BEFORE = "raylog-not-before"
VALUE_LEFT_OUT = "raylog-value-left-out"
REPLAYED = "raylog-replayed"
OURS = frozenset(
    {
        ORIGINAL_TOPIC,
        ORIGINAL_PARTITION,
        ORIGINAL_OFFSET,
        ORIGINAL_TIMESTAMP,
        EXCEPTION_CLASS,
        EXCEPTION_TEXT,
        FAILURE,
        ATTEMPTS,
        GROUP,
        FIRST_FAILURE,
        NOT_BEFORE,
        VALUE_LEFT_OUT,
    }
)
"""Headers about a failure. `REPLAYED` is not one: it stays when a record is retried."""
_TEXT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was first read, and how often it has been run since."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    attempts: int = 0
    first_failure_ms: int | None = None
    not_before_ms: int | None = None


def origin_of(key: TopicPartition, record: Record) -> Origin:
    """Return a record's origin from its headers, or its own position if they are not valid."""
    if not record.headers:
        return Origin(key.topic, key.partition, record.offset, record.timestamp)
    found = {name: value for name, value in record.headers if name in OURS}
    topic = found.get(ORIGINAL_TOPIC)
    partition, offset = _number(found, ORIGINAL_PARTITION), _number(found, ORIGINAL_OFFSET)
    timestamp_ms = _number(found, ORIGINAL_TIMESTAMP)
    not_before_ms = _number(found, NOT_BEFORE)
    if topic is None or partition is None or offset is None:
        return Origin(
            key.topic, key.partition, record.offset, record.timestamp, not_before_ms=not_before_ms
        )
    return Origin(
        topic.decode(errors="replace"),
        partition,
        offset,
        record.timestamp if timestamp_ms is None else timestamp_ms,
        _number(found, ATTEMPTS) or 0,
        _number(found, FIRST_FAILURE),
        not_before_ms,
    )


def as_first_read(key: TopicPartition, record: Record) -> tuple[TopicPartition, Record]:
    """Return a retry topic's record as it was in its original topic, for the function."""
    if not any(name in OURS for name, _ in record.headers):
        return key, record
    origin = origin_of(key, record)
    restored = Record(
        origin.offset,
        origin.timestamp_ms,
        record.key,
        record.value,
        without_ours(record.headers),
    )
    return TopicPartition(origin.topic, origin.partition), restored


def without_ours(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return a record's own headers."""
    return [header for header in headers if header[0] not in OURS]


def letter(
    topic: str,
    record: Record,
    origin: Origin,
    failure: Failure,
    *,
    group: str,
    now_ms: int,
    delay_ms: float | None,
) -> ProducerRecord:
    """Build the record for a retry topic (with `delay_ms`) or a dead-letter topic (None).

    `origin.attempts` includes the run that failed; `now_ms` is since 1970.
    """
    first_ms = now_ms if origin.first_failure_ms is None else origin.first_failure_ms
    headers = without_ours(record.headers)
    own_headers: list[tuple[str, object]] = [
        (ORIGINAL_TOPIC, origin.topic),
        (ORIGINAL_PARTITION, origin.partition),
        (ORIGINAL_OFFSET, origin.offset),
        (ORIGINAL_TIMESTAMP, origin.timestamp_ms),
        (EXCEPTION_CLASS, failure.exception[:_TEXT_MAX]),
        (EXCEPTION_TEXT, failure.text[:_TEXT_MAX]),
        (FAILURE, failure.kind.value),
        (ATTEMPTS, origin.attempts),
        (GROUP, group),
        (FIRST_FAILURE, first_ms),
    ]
    if delay_ms is not None:
        own_headers.append((NOT_BEFORE, int(now_ms + delay_ms)))
    headers += [(name, str(value).encode(errors="replace")) for name, value in own_headers]
    return ProducerRecord(topic, record.value, record.key, headers)


def value_left_out(sent: ProducerRecord) -> ProducerRecord:
    """Return a letter without its value, which is too large to send with the headers."""
    assert isinstance(sent.value, bytes)
    note = (VALUE_LEFT_OUT, str(len(sent.value)).encode())
    return sent._replace(value=None, headers=[*sent.headers, note])


def size_of(sent: ProducerRecord) -> int:
    """Return the approximate bytes of key, value and headers."""
    size = sum(len(part) for part in (sent.key, sent.value) if isinstance(part, bytes))
    return size + sum(len(name) + len(value or b"") for name, value in sent.headers)


def _number(found: dict[str, bytes | None], name: str) -> int | None:
    """Parse a header's number; None if it has none."""
    text = (found.get(name) or b"").decode(errors="replace")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@dataclass(frozen=True, slots=True)
class LetterHeaders:
    """What a letter's headers say about its record; None where they are missing or not valid."""

    origin: Origin | None
    reason: str | None
    exception: str | None
    text: str | None
    group: str | None
    value_left_out: int | None
    """Bytes of the value, if it was too large for the letter."""


def read_letter(record: Record) -> LetterHeaders:
    """Parse the headers of any record, whoever wrote it."""
    nowhere = TopicPartition("", -1)
    origin = origin_of(nowhere, record)
    found = {name: value for name, value in record.headers if name in OURS}
    return LetterHeaders(
        None if origin.topic == nowhere.topic else origin,
        _text(found, FAILURE),
        _text(found, EXCEPTION_CLASS),
        _text(found, EXCEPTION_TEXT),
        _text(found, GROUP),
        _number(found, VALUE_LEFT_OUT),
    )


def as_sent_again(
    key: TopicPartition, record: Record, letter: LetterHeaders, to: str | None
) -> ProducerRecord:
    """Rebuild a letter's record for its original topic and partition, or for topic `to` by key."""
    assert to is not None or letter.origin is not None, "it goes somewhere"
    headers = [header for header in without_ours(record.headers) if header[0] != REPLAYED]
    headers.append((REPLAYED, f"{key} offset {record.offset}".encode()))
    if to is not None or letter.origin is None:
        return ProducerRecord(to or "", record.value, record.key, headers)
    return ProducerRecord(
        letter.origin.topic, record.value, record.key, headers, None, letter.origin.partition
    )


def _text(found: dict[str, bytes | None], name: str) -> str | None:
    value = found.get(name)
    return None if value is None else value.decode(errors="replace")
