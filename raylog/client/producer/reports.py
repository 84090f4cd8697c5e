"""What becomes of batches: who is told, what is counted."""

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
"""Of the newest batches: what quantiles are taken of."""
_UNKNOWN_OFFSET = -1
_metadata = RecordMetadata._make

OnDelivery = Callable[[Delivery], object]


class Unheard:
    """Marks a listener whose hearing of a failure does not spare `flush` from raising it."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """Pass it on."""
        self._listener(metadata, failure)


class ProducerStatistics(NamedTuple):
    """What a producer has done so far, and how it stands. Times in ms."""

    records: int
    """Acknowledged."""
    bytes: int
    """Of acknowledged batches as they were sent, compressed."""
    batches: int
    """Acknowledged."""
    requests: int
    """Produce requests sent, repeats included."""
    retries: int
    """Batches that were refused for now and are sent again."""
    splits: int
    """Batches that were too large for a broker and went out as two."""
    errors: int
    """Records that failed."""
    queue_ms_p50: float
    """From a batch's first record to its first request; of the newest batches."""
    queue_ms_p99: float
    latency_ms_p50: float
    """From a batch's first record to its acknowledgement; of the newest batches."""
    latency_ms_p99: float
    buffer_bytes: int
    """Held by records that are waiting or in flight."""
    buffer_bytes_max: int
    batches_waiting: int
    batches_in_flight: int


class Reports:
    """Tells the ends of batches and counts them. `raise_failures` may come from any thread."""

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
        """Guards the two below: they are taken by other threads than the sender's."""
        self._failed_count = 0
        self._first_failure: Delivery | None = None

    def acknowledged(self, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
        """A batch was written; the append time is -1 where the records' own count."""
        self.delivered_count += batch.record_count
        self.delivered_bytes += batch.encoded_bytes
        self.batch_count += 1
        created_ms = batch.created_ms
        self._times.append((batch.drained_ms - created_ms, self._now_ms() - created_ms))
        self._tell(batch, base_offset, append_time_ms, None)

    def failed(self, batch: Batch, failure: Exception) -> None:
        """A batch was given up."""
        self.error_count += batch.record_count
        listeners = batch.listeners or ()
        unheard = batch.record_count - sum(type(one) is not Unheard for _, _, one in listeners)
        unheard -= sum(count for _, count, _, _ in batch.stretches or ())
        if unheard:
            with self._failures:
                self._failed_count += unheard
                if self._first_failure is None:
                    self._first_failure = _delivery(batch, _UNKNOWN_OFFSET, failure)
        self._tell(batch, _UNKNOWN_OFFSET, -1, failure)

    @property
    def has_failures(self) -> bool:
        """Whether records failed since this was last asked that nobody watches."""
        return self._first_failure is not None

    def raise_failures(self) -> None:
        """Raise DeliveryFailed if records failed since this was last asked that nobody watches."""
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
        """The first batch that failed since this was last asked, and how many records did."""
        with self._failures:
            told = self._first_failure, self._failed_count
            self._first_failure, self._failed_count = None, 0
        return told

    def quantiles_ms(self) -> tuple[float, float, float, float]:
        """p50 and p99 of the time in the queue, then of that to the acknowledgement."""
        times = list(self._times)
        queued = sorted(queue_ms for queue_ms, _ in times)
        whole = sorted(latency_ms for _, latency_ms in times)
        return (*_quantiles(queued), *_quantiles(whole))

    def _tell(
        self, batch: Batch, base_offset: int, append_time_ms: int, failure: Exception | None
    ) -> None:
        """Call who asked for it; what a callback raises is logged, the others are still called."""
        if self.on_delivery is not None:
            try:
                self.on_delivery(_delivery(batch, base_offset, failure))
            except Exception:  # of the caller's; the other batches go on, as in Kafka's producer
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
    """An error for a person: Kafka's name where it has one."""
    name = error.code.name if isinstance(error, KafkaError) else type(error).__name__
    return f"{name}: {error}" if str(error) else name
