"""The blocking producer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from raylog.client.background import BackgroundLoop
from raylog.client.closing import OfOneProcess
from raylog.client.core import Core
from raylog.client.errors import BufferExhausted
from raylog.client.interceptors import ClientInterceptor, ProducerRecord, RecordMetadata
from raylog.client.producer.batch import Headers, Listener, RowsListener
from raylog.client.producer.core import Offsets, ProducerCore, pipeline_of
from raylog.client.producer.future import RecordFuture
from raylog.client.producer.partitioner import Partitioner
from raylog.client.producer.reports import OnDelivery, ProducerStatistics
from raylog.client.producer.task import SenderTask
from raylog.client.serializers import K, Serializer, V
from raylog.client.setting_parsing import Config, client_and_producer
from raylog.client.streams import AsyncIo
from raylog.wire.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from raylog.client.consumer.membership import GroupMetadata
    from raylog.client.producer.pipeline import Pipeline
    from raylog.client.producer.rows import Row

T = TypeVar("T")


class Producer(OfOneProcess, Generic[K, V]):
    """Sends records in batches; a batch is sent once it is full or has waited for `linger.ms`.

    `Producer("localhost:9092", linger_ms=20)`: settings have Kafka's names, in a mapping or as
    keyword arguments. Keys and values are bytes, unless you pass serializers.

    The producer sends in its own thread, which also calls `on_delivery`. Several threads can share
    a producer, but only one of them may call the methods for transactions. Use it in a `with`
    block: at its end the producer flushes, or aborts an open transaction, and closes. Create a
    producer in each process: a child of `fork` cannot use its parent's.
    """

    def __init__(
        self,
        config: Config = None,
        /,
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        partitioner: Partitioner | str | None = None,
        interceptors: Sequence[str | ClientInterceptor] = (),
        on_delivery: OnDelivery | None = None,
        **settings: object,
    ) -> None:
        """`on_delivery` is called by the producer's thread when a batch is acknowledged or fails.

        `partitioner` is a function that chooses partitions, or a name as in `partitioner_class`.
        Interceptors are objects or names of packages' entry points; those named by the setting
        `interceptor_classes` come first.
        """
        client, own = client_and_producer(config, settings, partitioner)
        io = AsyncIo()
        producer = ProducerCore(Core(io, client), own, on_delivery)
        pipeline = pipeline_of(
            producer, interceptors, key_serializer, value_serializer, partitioner
        )
        background = BackgroundLoop()
        background.at_end.add(io.finish)
        self._begin(producer, background, io, pipeline)
        self._is_own = True

    @classmethod
    def over(
        cls, producer: ProducerCore, background: BackgroundLoop, io: AsyncIo
    ) -> Producer[bytes, bytes]:
        """Create a producer of bytes on top of an existing core, in a shared thread."""
        made: Producer[bytes, bytes] = Producer.__new__(Producer)
        made._begin(producer, background, io, pipeline_of(producer))
        return made

    def _begin(
        self,
        producer: ProducerCore,
        background: BackgroundLoop,
        io: AsyncIo,
        pipeline: Pipeline | None,
    ) -> None:
        self._producer = producer
        self._append: Any = producer.append
        """Any: its types depend on the serializers, which only the pipeline knows."""
        self._pipeline = pipeline
        self._background = background
        self._thread = weakref.ref(background)  # a future must not keep the thread alive
        self._background.at_end.add(producer.abandon)
        self._task = SenderTask(producer, io)
        self._is_own = False
        self._is_poking = False
        self._must_wait = False

    @property
    def delivered_count(self) -> int:
        """Number of records acknowledged so far."""
        return self._producer.delivered_count

    @property
    def refusal(self) -> str | None:
        """Why unacknowledged records are being sent again; None if not known."""
        return self._producer.refusal

    # -- records -------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Listener | None = None,
    ) -> None:
        """Add a record to the buffer, to be sent in the background.

        Blocks while the buffer is full, and raises BufferExhausted after `max.block.ms`. Without
        `partition`, the key selects the partition. `on_delivery` is called with the metadata and
        the failure, or None, when the record is acknowledged or has failed: in order within a
        partition, in the producer's thread, which sends nothing until the call returns. The
        callback may send records, but not when the buffer is full. If an earlier record without
        callback and future has failed, `flush` or this call raises DeliveryFailed; then this
        record is not sent.
        """
        if self._must_wait or self._background.unusable is not None:
            self._wait_for_room()
        if self._pipeline is not None:
            record = ProducerRecord(topic, value, key, headers, timestamp_ms, partition)
            due = self._send_through(self._pipeline, record, on_delivery)
        else:
            try:
                due = self._append(topic, value, key, headers, timestamp_ms, partition, on_delivery)
            except UnknownTopicOrPartition:
                self._background.call(self._producer.prepare(topic))
                due = self._append(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        if due:
            self._attend()

    def submit(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Listener | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record as `send` does; return a future for its metadata."""
        future = RecordFuture(on_delivery, self._thread)
        self.send(topic, value, key, headers, timestamp_ms, partition, future.ended)
        return future

    def send_and_wait(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Send a record, wait until it is acknowledged, and raise its failure if it has failed."""
        self._background.require_another_thread()
        return self.submit(topic, value, key, headers, timestamp_ms, partition).result()

    def send_rows(
        self,
        topic: str,
        rows: Iterable[Row[K, V]],
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: RowsListener | None = None,
    ) -> int:
        """Send many records, each a value or a tuple of key and value; return their number.

        All records get the same headers and timestamp. If `rows` or a serializer raises an
        exception, the rows before it are sent and the exception is raised here. `on_delivery`,
        which needs `partition`, is called as in `send`, but once for several adjacent rows: with
        the index of the first of them, counted from 0, and their Delivery.
        """
        from raylog.client.producer.rows import RowChunks, listener_of_row

        if self._pipeline is not None and self._pipeline.is_per_record:
            count = 0
            for row in rows:
                key, value = row if isinstance(row, tuple) else (None, row)
                listener = listener_of_row(count, on_delivery)
                self.send(topic, value, key, headers, timestamp_ms, partition, listener)
                count += 1
            return count

        chunks = RowChunks(
            self._producer,
            self._pipeline,
            topic,
            rows,
            headers,
            timestamp_ms,
            partition,
            on_delivery,
        )
        while True:
            if self._must_wait or self._background.unusable is not None:
                self._wait_for_room()
            if not self._prepared(topic, chunks.take):
                return chunks.count
            self._attend()

    def send_table(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        value: str = "value",
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | int | None = None,
    ) -> int:
        """Send the rows of an Arrow table; return their number. Needs raylog[arrow].

        The arguments are column names; docs/client/arrow.md lists the column types. Keys come from
        the column `key` if the table has one and no other is named. Serializers and interceptors
        are not called. InvalidTable, RecordTooLarge and UnknownTopicOrPartition are raised before
        anything is sent; other errors are raised as by `send`.
        """
        from raylog.extras import check

        check("arrow", "send_table")
        from raylog.client.arrow.outgoing import ColumnNames
        from raylog.client.arrow.sending import TableBatches

        names = ColumnNames(value, key, headers, timestamp, partition)
        partitioner = None if self._pipeline is None else self._pipeline.partitioner
        batches = self._prepared(
            topic, lambda: TableBatches(self._producer, topic, table, names, partitioner)
        )
        while True:
            if self._must_wait or self._background.unusable is not None:
                self._wait_for_room()
            if not batches.take():
                return batches.count
            self._attend()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is acknowledged or has failed.

        Raises DeliveryFailed if a record without callback and future has failed, RequestTimedOut
        after `timeout_s`; the producer then continues to send.
        """
        self._background.call(self._task.flush(timeout_s))

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic; the broker may create the topic."""
        return list(self._prepared(topic, lambda: self._producer.partitions(topic)))

    def statistics(self) -> ProducerStatistics:
        """Return counts since the start, and the current state."""
        return self._producer.statistics()

    # -- transactions --------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Register the transactional id. Call it once, before all other calls.

        Fence other producers with the same id and abort their open transaction.
        """
        self._background.call(self._producer.init_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction: records and offsets sent from now on belong to it."""
        self._background.check()
        self._producer.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets (of the next records to read) with the transaction.

        Raises AbortRequired, for example when the member has left the group.
        """
        self._background.call(self._producer.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Flush and commit.

        After AbortRequired, call `abort_transaction`; after ProducerUnusable, close the producer.
        After any other error the outcome is unknown: call `commit_transaction` again.
        """
        self._background.call(self._task.end_transaction(commit=True))

    def abort_transaction(self) -> None:
        """Abort the transaction. Records that are not sent yet are dropped."""
        self._background.call(self._task.end_transaction(commit=False))

    @property
    def has_open_transaction(self) -> bool:
        """Whether there is an open transaction that can be aborted."""
        return self._producer.has_open_transaction

    # -- the end -------------------------------------------------------------------------------

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, or abort the open transaction, and close the connections.

        Records that are not acknowledged within `timeout_s` fail; 0 means at once. Raises the same
        errors as `flush`. Has no effect if the producer is closed, or belongs to the parent
        process.
        """
        if self._background.unusable is not None:
            return
        try:
            if timeout_s is None or timeout_s > 0:
                self._background.call(self._task.finish(timeout_s))
        finally:
            self._background.call(self._task.stop())
            self._background.at_end.discard(self._producer.abandon)
            if self._is_own:
                self._background.stop()
            if self._pipeline is not None:
                self._pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_left_open = self._producer.has_open_transaction
        self.close(None if kind is None or is_left_open else 0)

    # -- inside --------------------------------------------------------------------------------

    def _prepared(self, topic: str, attempt: Callable[[], T]) -> T:
        """Run an attempt; if its topic is unknown, fetch the metadata and run it again."""
        try:
            return attempt()
        except UnknownTopicOrPartition:
            self._background.call(self._producer.prepare(topic))
            return attempt()

    def _send_through(
        self, pipeline: Pipeline, record: ProducerRecord, listener: Listener | None
    ) -> bool:
        """Send a record through the pipeline."""
        serialized = pipeline.serialized(record, listener)
        try:
            try:
                return pipeline.append(serialized)
            except UnknownTopicOrPartition:
                self._background.call(self._producer.prepare(serialized.topic))
                return pipeline.append(serialized)
        except Exception as error:
            pipeline.refused(serialized, error)
            raise

    def _attend(self) -> None:
        """Wake the sender after a record has started a batch or filled the buffer."""
        if not self._is_poking:
            self._is_poking = True
            self._background.post(self._poke)
        self._must_wait = self._producer.is_full or self._producer.has_failures

    def _wait_for_room(self) -> None:
        """Before a record is added: raise earlier failures, then wait while the buffer is full."""
        self._background.check()
        self._producer.raise_failures()
        if self._producer.is_full:
            if self._background.is_current:
                raise BufferExhausted(
                    "on_delivery runs in the thread that makes room in the buffer"
                )
            self._background.call(self._task.make_room())
        self._must_wait = False

    def _poke(self) -> None:
        """Wake the sender, in its thread. Records added later schedule another call."""
        self._is_poking = False
        self._task.poke()


BlockingProducer = Producer
"""Name of `Producer` in version 0.1."""
