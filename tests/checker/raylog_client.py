"""Raylog's blocking client with all operations recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic

from raylog.client import (
    EARLIEST,
    LATEST,
    BlockingClient,
    ConsumerSettings,
    Delivery,
    DeliveryFailed,
    ProducerSettings,
    TopicPartition,
)
from raylog.wire.errors import ErrorCode, KafkaError
from tests.checker.operations import (
    Assign,
    FinalRead,
    Outcome,
    Partition,
    Poll,
    Seek,
    Send,
    Span,
    Start,
)
from tests.checker.recorder import Recorder, payload_of, value_of

_NEVER_WRITTEN = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Errors that every attempt would get. All others mean unknown."""
_RECORD_OVERHEAD_BYTES = 100
_POLL_MS = 200.0


class RecordingProducer:
    """A producer that knows the outcome of each record.

    A delivery report is about a batch, not about its records, and the batches of a partition may
    complete in another order than they were sent. So each partition has one batch in flight:
    everything is flushed before it is full.
    """

    def __init__(
        self,
        recorder: Recorder,
        process: str,
        client: BlockingClient,
        settings: ProducerSettings | None = None,
        *,
        record_bytes: int = 0,
    ) -> None:
        self.process = process
        settings = settings or ProducerSettings()
        self._recorder = recorder
        self._record_bytes = record_bytes
        self._batch_bytes = settings.batch_bytes // 2
        self._producer = client.producer(settings, self._delivered)
        self._unanswered: dict[Partition, list[Send]] = {}
        self._bytes: dict[Partition, int] = {}

    def send(self, partition: Partition, value: str, key: str | None = None) -> None:
        """Send a record. It leaves with the next flush, which may be in this call."""
        payload = payload_of(value, self._record_bytes)
        encoded_key = None if key is None else key.encode()
        size = len(payload) + len(encoded_key or b"") + _RECORD_OVERHEAD_BYTES
        if self._bytes.get(partition, 0) + size > self._batch_bytes:
            self.flush()
        now_ns = self._recorder.now_ns()
        send = Send(self.process, partition, value, now_ns, 0, Outcome.UNKNOWN, key=key)
        self._unanswered.setdefault(partition, []).append(send)
        self._bytes[partition] = self._bytes.get(partition, 0) + size
        topic, index = partition
        self._producer.send(topic, payload, encoded_key, partition=index)

    def flush(self) -> None:
        """Wait until every record is completed."""
        try:
            self._producer.flush()
        except DeliveryFailed:
            assert not any(self._unanswered.values()), "every failure was delivered and recorded"
        self._bytes.clear()

    def close(self) -> None:
        """Close at once. Records that were not flushed have an unknown outcome."""
        self._producer.close(0)
        for sends in self._unanswered.values():
            for send in sends:
                self._record(send, Outcome.UNKNOWN, None)
        self._unanswered.clear()

    def _delivered(self, delivery: Delivery) -> None:
        sends = self._unanswered.pop((delivery.topic, delivery.partition))
        assert len(sends) == delivery.record_count, "a partition has one batch on its way"
        for place, send in enumerate(sends):
            if delivery.failure is None:
                known = delivery.base_offset + place if delivery.base_offset >= 0 else None
                self._record(send, Outcome.OK, known)
            else:
                self._record(send, _outcome_of(delivery.failure), None)

    def _record(self, send: Send, outcome: Outcome, offset: int | None) -> None:
        send.outcome, send.offset = outcome, offset
        send.completed_ns = self._recorder.now_ns()
        self._recorder.add(send)


def _outcome_of(failure: Exception) -> Outcome:
    never = isinstance(failure, KafkaError) and failure.code in _NEVER_WRITTEN
    return Outcome.FAILED if never else Outcome.UNKNOWN


class RecordingConsumer:
    """A consumer of assigned partitions."""

    def __init__(
        self,
        recorder: Recorder,
        process: str,
        client: BlockingClient,
        settings: ConsumerSettings | None = None,
    ) -> None:
        self.process = process
        settings = settings or ConsumerSettings(read_committed=True, reset="none")
        self._recorder = recorder
        self._client = client
        self._read_committed = settings.read_committed
        self._consumer = client.consumer(settings)

    def assign(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions, each from an offset."""
        self._recorder.add(
            Assign(self.process, self._recorder.now_ns(), [Start(*one) for one in starts.items()])
        )
        self._consumer.assign({TopicPartition(*key): offset for key, offset in starts.items()})

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at an offset."""
        self._recorder.add(Seek(self.process, self._recorder.now_ns(), partition, offset))
        self._consumer.seek(TopicPartition(*partition), offset)

    def poll(self, timeout_ms: float = _POLL_MS) -> int:
        """Poll records. Returns their number."""
        invoked_ns = self._recorder.now_ns()
        batches = [
            (
                (found.topic, found.partition),
                [record.offset for record in found.records],
                [value_of(record.value) for record in found.records],
            )
            for found in self._consumer.poll(timeout_ms)
        ]
        if batches:
            times = invoked_ns, self._recorder.now_ns()
            self._recorder.add(Poll(self.process, *times, batches, self._read_committed))
        return sum(len(offsets) for _, offsets, _ in batches)

    def read_to_the_end(self, partitions: Iterable[Partition], timeout_s: float) -> None:
        """Do the final read. Raises TimeoutError."""
        deadline = monotonic() + timeout_s
        invoked_ns = self._recorder.now_ns()
        keys = [TopicPartition(*partition) for partition in partitions]
        starts = self._client.list_offsets(dict.fromkeys(keys, EARLIEST))
        ends = self._client.list_offsets(dict.fromkeys(keys, LATEST))
        spans = [
            Span((key.topic, key.partition), starts[key].offset, ends[key].offset) for key in keys
        ]
        self.assign({span.partition: span.start for span in spans})
        while late := [span for span in spans if self._position(span.partition) < span.end]:
            if monotonic() > deadline:
                raise TimeoutError(
                    f"the final read has not reached the end of {late} within {timeout_s:g} s"
                )
            self.poll()
        self._recorder.add(FinalRead(self.process, invoked_ns, self._recorder.now_ns(), spans))

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _position(self, partition: Partition) -> int:
        return self._consumer.position(TopicPartition(*partition))
