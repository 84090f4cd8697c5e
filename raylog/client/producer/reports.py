"""Reports the results of batches to listeners, and counts them."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from raylog.client.errors import DeliveryFailed
from raylog.client.interceptors import RecordMetadata
from raylog.client.producer.batch import Batch, Delivery, Listener, RowsListener
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
_TIMES_KEPT = 2_048
"""Quantiles are computed over this many of the newest batches."""
_UNKNOWN_OFFSET = -1
_metadata = RecordMetadata._make

OnDelivery = Callable[[Delivery], object]


class Observer:
    """Wraps a listener that does not count as handling failures: `flush` still raises them."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """Call the listener."""
        self._listener(metadata, failure)


class ProducerStatistics(NamedTuple):
    """Counts since the producer's start, and its current state. Times in ms."""

    records: int
    """Acknowledged records."""
    bytes: int
    """Compressed bytes of acknowledged batches."""
    batches: int
    """Acknowledged batches."""
    requests: int
    """Produce requests sent, retries included."""
    retries: int
    """Batches sent again after a retriable error."""
    splits: int
    """Batches split in two because they were too large for a broker."""
    errors: int
    """Records that failed."""
    queue_ms_p50: float
    """From a batch's first record to its first request, for the newest batches."""
    queue_ms_p99: float
    latency_ms_p50: float
    """From a batch's first record to its acknowledgement, for the newest batches."""
    latency_ms_p99: float
    buffer_bytes: int
    """Bytes held by records that are waiting or in flight."""
    buffer_bytes_max: int
    batches_waiting: int
    batches_in_flight: int


class Reports:
    """Reports and counts batches. `raise_failures` may be called from any thread."""

    def __init__(self, on_delivery: OnDelivery | None, now_ms: Callable[[], float]) -> None:
        self.on_delivery = on_delivery
        self.delivered_count = 0
        self.delivered_bytes = 0
        self.batch_count = 0
        self.request_count = 0
        self.retry_count = 0
        self.split_count = 0
        self.error_count = 0
        self._now_ms = now_ms
        self._times: deque[tuple[float, float]] = deque(maxlen=_TIMES_KEPT)
        self._failures = threading.Lock()
        """Guards the next two attributes, which are not only used in the sender's thread."""
        self._failed_count = 0
        self._first_failure: Delivery | None = None

    def acknowledged(self, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
        """Report a written batch; an append time of -1 means that the records keep their own."""
        self.delivered_count += batch.record_count
        self.delivered_bytes += batch.encoded_bytes
        self.batch_count += 1
        created_ms = batch.created_ms
        self._times.append((batch.drained_ms - created_ms, self._now_ms() - created_ms))
        self._tell(batch, base_offset, append_time_ms, None)

    def failed(self, batch: Batch, failure: Exception) -> None:
        """Report a failed batch."""
        self.error_count += batch.record_count
        listeners = batch.listeners or ()
        unhandled = batch.record_count - sum(type(one) is not Observer for _, _, one in listeners)
        unhandled -= sum(count for _, count, _, _ in batch.stretches or ())
        if unhandled:
            with self._failures:
                self._failed_count += unhandled
                if self._first_failure is None:
                    self._first_failure = _delivery(batch, _UNKNOWN_OFFSET, failure)
        self._tell(batch, _UNKNOWN_OFFSET, -1, failure)

    @property
    def has_failures(self) -> bool:
        """Whether records without a listener failed since the last `raise_failures`."""
        return self._first_failure is not None

    def raise_failures(self) -> None:
        """Raise DeliveryFailed if records without a listener failed since the last call."""
        if self._first_failure is None:
            return
        first, count = self.forget_failures()
        if first is not None:
            assert first.failure is not None
            raise DeliveryFailed(
                f"{count} records were not delivered; the first to "
                f"{first.topic}-{first.partition}: {describe(first.failure)}"
            ) from first.failure

    def forget_failures(self) -> tuple[Delivery | None, int]:
        """Return and reset the first failed batch and the number of failed records."""
        with self._failures:
            failures = self._first_failure, self._failed_count
            self._first_failure, self._failed_count = None, 0
        return failures

    def quantiles_ms(self) -> tuple[float, float, float, float]:
        """Return p50 and p99 of the time in the queue, then of the time to acknowledgement."""
        times = list(self._times)
        queued = sorted(queue_ms for queue_ms, _ in times)
        whole = sorted(latency_ms for _, latency_ms in times)
        return (*_quantiles(queued), *_quantiles(whole))

    def _tell(
        self, batch: Batch, base_offset: int, append_time_ms: int, failure: Exception | None
    ) -> None:
        """Call all listeners; an exception in one is logged, and the others are still called."""
        if self.on_delivery is not None:
            try:
                self.on_delivery(_delivery(batch, base_offset, failure))
            except Exception:  # raised by the caller's function; other batches go on, as in Kafka
                log.exception("on_delivery failed for %s", batch.key)
        if batch.stretches is not None:
            self._tell_of_rows(batch, batch.stretches, base_offset, failure)
        if batch.listeners is None:
            return
        topic, partition = batch.key
        for position, timestamp_ms, listener in batch.listeners:
            offset = base_offset + position if base_offset >= 0 else _UNKNOWN_OFFSET
            time_ms = append_time_ms if append_time_ms >= 0 else timestamp_ms
            try:
                listener(_metadata((topic, partition, offset, time_ms)), failure)
            except Exception:  # as above
                log.exception("on_delivery failed for a record of %s", batch.key)
        batch.listeners = None

    @staticmethod
    def _tell_of_rows(
        batch: Batch,
        stretches: list[tuple[int, int, int, RowsListener]],
        base_offset: int,
        failure: Exception | None,
    ) -> None:
        for position, count, first_row, listener in stretches:
            offset = base_offset + position if base_offset >= 0 else _UNKNOWN_OFFSET
            try:
                listener(first_row, Delivery(*batch.key, offset, count, failure))
            except Exception:  # as above
                log.exception("on_delivery failed for rows of %s", batch.key)
        batch.stretches = None


def _delivery(batch: Batch, base_offset: int, failure: Exception | None) -> Delivery:
    return Delivery(*batch.key, base_offset, batch.record_count, failure)


def _quantiles(ordered: list[float]) -> tuple[float, float]:
    if not ordered:
        return 0.0, 0.0
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def describe(error: Exception) -> str:
    """Describe an error for a message, by Kafka's name if it has one."""
    name = error.code.name if isinstance(error, KafkaError) else type(error).__name__
    return f"{name}: {error}" if str(error) else name
