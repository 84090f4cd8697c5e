"""Adds many records at once, so that locks, clocks and checks are needed once per chunk."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeAlias, TypeVar

from raylog.client.errors import ClientError
from raylog.client.interceptors import RecordMetadata
from raylog.client.producer.batch import Delivery, Headers, Listener, RowsListener
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.pipeline import Pipeline

K = TypeVar("K")
V = TypeVar("V")
Row: TypeAlias = tuple[K | None, V | None] | V | None
"""A value, or a tuple of key and value."""
_FIRST_ROWS = 16
_ROWS_MAX = 1_000
_CHUNK_BYTES = 256 * 1024
"""Bytes added to the buffer between two checks whether it is full."""


class RowChunks:
    """The rows of one call, processed in chunks."""

    def __init__(
        self,
        producer: ProducerCore,
        pipeline: Pipeline | None,
        topic: str,
        rows: Iterable[object],
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
        listener: RowsListener | None = None,
    ) -> None:
        if listener is not None and partition is None:
            raise ClientError("send_rows: on_delivery needs a partition, found none")
        self.count = 0
        """Number of rows added so far."""
        self._producer = producer
        self._pipeline = pipeline
        self._topic = topic
        self._rows = iter(rows)
        self._headers = headers
        self._timestamp_ms = timestamp_ms
        self._partition = partition
        self._listener = listener
        self._size = _FIRST_ROWS
        self._pending: list[tuple[bytes | None, bytes | None]] = []
        """Rows that are serialized but not yet added, as key and value."""
        self._failure: Exception | None = None
        """To be raised once all rows before it are added."""

    def take(self) -> bool:
        """Add a chunk; return False if no rows were left.

        Raises UnknownTopicOrPartition if the topic's metadata is missing: fetch it and call again.
        Any other error is raised once all rows before it are added.
        """
        if not self._pending:
            if self._failure is not None:
                raise self._failure
            self._pending = self._read()
            if not self._pending:
                if self._failure is not None:
                    raise self._failure
                return False
        pending = self._pending
        size = self._producer.append_rows(
            self._topic,
            pending,
            self._headers,
            self._timestamp_ms,
            self._partition,
            None if self._listener is None else (self._listener, self.count),
        )
        self.count += len(pending)
        self._size = max(1, min(_ROWS_MAX, _CHUNK_BYTES * len(pending) // size))
        self._pending = []
        return True

    def _read(self) -> list[tuple[bytes | None, bytes | None]]:
        """Return the next rows as key and value, serialized."""
        chunk: list[object] = []
        try:
            chunk.extend(itertools.islice(self._rows, self._size))
        except Exception as error:  # noqa: BLE001 — raised once the rows before it are added
            self._failure = error
        if self._pipeline is None:
            return [row if type(row) is tuple else (None, row) for row in chunk]
        serialized = []
        try:
            for row in chunk:
                key, value = row if isinstance(row, tuple) else (None, row)
                serialized.append(
                    (
                        self._pipeline.serialized_key(self._topic, key, self._headers),
                        self._pipeline.serialized_value(self._topic, value, self._headers),
                    )
                )
        except Exception as error:  # noqa: BLE001 — as above
            self._failure = error
        return serialized


def listener_of_row(row: int, listener: RowsListener | None) -> Listener | None:
    """Adapt a listener of rows to a row that is sent alone."""
    if listener is None:
        return None

    def ended(metadata: RecordMetadata, failure: Exception | None) -> None:
        topic, partition, offset, _ = metadata
        listener(row, Delivery(topic, partition, offset, 1, failure))

    return ended
