"""The blocking producer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from raylog.client.background import BackgroundLoop
from raylog.client.closing import OfOneProcess
from raylog.client.config import Config, client_and_producer
from raylog.client.core import Core
from raylog.client.errors import BufferExhausted
from raylog.client.interceptors import ClientInterceptor, ProducerRecord, RecordMetadata
from raylog.client.producer.batch import Headers, Listener
from raylog.client.producer.core import Offsets, ProducerCore, pipeline_of
from raylog.client.producer.future import RecordFuture
from raylog.client.producer.partitioner import Partitioner
from raylog.client.producer.reports import OnDelivery, ProducerStatistics
from raylog.client.producer.task import SenderTask
from raylog.client.serializers import K, Serializer, V
from raylog.client.streams import AsyncIo
from raylog.wire.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from raylog.client.consumer.membership import GroupMetadata
    from raylog.client.producer.pipeline import Pipeline
    from raylog.client.producer.rows import Row


class Producer(OfOneProcess, Generic[K, V]):
    """Sends records; batches leave when they are full or have lingered, everything at `flush`.

    `Producer("localhost:9092", linger_ms=20)`: settings by Kafka's names, in a mapping or as
    keyword arguments. Keys and values are bytes unless there are serializers.

    A thread of the producer's own sends them, and calls `on_delivery`. Several threads may share a
    producer; one of them makes the calls about transactions. Used with `with`: leaving it normally
    flushes, and aborts a transaction that is still open. Make one of its own in each process: what
    `fork` copies cannot be used by the child.
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
        """`on_delivery` is called at the end of each batch, by the producer's thread.

        `partitioner` is a function that places records, or a name as of `partitioner_class`.
        Names of interceptors are those of packages' entry points; those of the setting
        `interceptor_classes` go first.
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
        """A producer of bytes over a core that is made already, in a thread shared by others."""
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
        """Typed by the serializers, which nobody but the pipeline knows."""
        self._pipeline = pipeline
        self._background = background
        self._background.at_end.add(producer.abandon)
        self._task = SenderTask(producer, io)
        self._is_own = False
        self._is_poking = False
        self._must_wait = False

    @property
    def delivered_count(self) -> int:
        """Records acknowledged so far."""
        return self._producer.delivered_count

    @property
    def refusal(self) -> str | None:
        """Why what is unacknowledged is sent again; None if that is not known."""
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
        """Take a record; blocks while the buffer is full, and raises BufferExhausted in the end.

        The partition is the key's unless given. `on_delivery` is called with the record's metadata
        and its failure, or None, when it has met its end; in order within a partition, by the
        producer's thread, which sends nothing meanwhile. It may send, but cannot wait for room.
        Failures of earlier records that have neither that nor a future are raised here or at
        `flush` as DeliveryFailed.
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
        """Take a record as `send` does; returns what will be its metadata, or raise its failure."""
        future = RecordFuture(on_delivery)
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
        """Send a record, wait for its end; raises its failure. It lingers like all others."""
        return self.submit(topic, value, key, headers, timestamp_ms, partition).result()

    def send_rows(
        self,
        topic: str,
        rows: Iterable[Row[K, V]],
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> int:
        """Take many records, each a value or a tuple of key and value; returns how many.

        All have the same headers and time. What `rows` or a serializer raises comes out of here
        once all rows before that one are taken.
        """
        if self._pipeline is not None and self._pipeline.is_per_record:
            count = 0
            for row in rows:
                key, value = row if isinstance(row, tuple) else (None, row)
                self.send(topic, value, key, headers, timestamp_ms, partition)
                count += 1
            return count
        from raylog.client.producer.rows import RowChunks

        chunks = RowChunks(
            self._producer, self._pipeline, topic, rows, headers, timestamp_ms, partition
        )
        while True:
            if self._must_wait or self._background.unusable is not None:
                self._wait_for_room()
            try:
                if not chunks.take():
                    return chunks.count
            except UnknownTopicOrPartition:
                self._background.call(self._producer.prepare(topic))
                chunks.take()
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
        """Take the rows of an Arrow table, columns at once; returns how many. Needs raylog[arrow].

        The arguments name columns; docs/client/arrow.md says which types these may have. Without
        `key` it is the column `key`, if there is one. Keys and values are bytes or strings already:
        neither serializers nor interceptors see them. InvalidTable, RecordTooLarge and
        UnknownTopicOrPartition are raised before anything is taken, all else as by `send`.
        """
        from raylog.extras import check

        check("arrow", "send_table")
        from raylog.client.arrow.outgoing import ColumnNames
        from raylog.client.arrow.sending import TableBatches

        names = ColumnNames(value, key, headers, timestamp, partition)
        partitioner = None if self._pipeline is None else self._pipeline.partitioner
        try:
            batches = TableBatches(self._producer, topic, table, names, partitioner)
        except UnknownTopicOrPartition:
            self._background.call(self._producer.prepare(topic))
            batches = TableBatches(self._producer, topic, table, names, partitioner)
        while True:
            if self._must_wait or self._background.unusable is not None:
                self._wait_for_room()
            if not batches.take():
                return batches.count
            self._attend()

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all and wait until every record has met its end.

        Raises DeliveryFailed if one failed that has neither future nor callback, RequestTimedOut
        when time is up: then records go on being sent.
        """
        self._background.call(self._task.flush(timeout_s))

    def partitions_for(self, topic: str) -> list[int]:
        """A topic's partitions; the broker may create the topic."""
        try:
            return list(self._producer.partitions(topic))
        except UnknownTopicOrPartition:
            self._background.call(self._producer.prepare(topic))
            return list(self._producer.partitions(topic))

    def statistics(self) -> ProducerStatistics:
        """What was done so far, and how it stands."""
        return self._producer.statistics()

    # -- transactions --------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Take the transactional id over, once, before all else.

        Other producers of the same id are fenced, and what they left open is aborted.
        """
        self._background.call(self._producer.init_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction: records and offsets from now on are part of it."""
        self._background.check()
        self._producer.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets, the next ones to read, if the transaction is committed.

        Raises AbortRequired, such as when the member is not in the group any more.
        """
        self._background.call(self._producer.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Flush and commit. AbortRequired: call `abort_transaction`; ProducerUnusable: close.

        Whatever else is raised leaves the outcome open: call this again.
        """
        self._background.call(self._task.end_transaction(commit=True))

    def abort_transaction(self) -> None:
        """Abort the transaction; records that were not sent yet never will be."""
        self._background.call(self._task.end_transaction(commit=False))

    @property
    def has_open_transaction(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._producer.has_open_transaction

    # -- the end -------------------------------------------------------------------------------

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, or abort the open transaction, then end the connections.

        After `timeout_s`, 0 for at once, what is not acknowledged fails. Raises as `flush`.
        Harmless where all has ended, or is the parent process'.
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

    def _send_through(
        self, pipeline: Pipeline, record: ProducerRecord, listener: Listener | None
    ) -> bool:
        """Take a record by the long way."""
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
        """See to what a record has begun: a batch to be sent, a full buffer."""
        if not self._is_poking:
            self._is_poking = True
            self._background.post(self._poke)
        self._must_wait = self._producer.is_full
        self._producer.raise_failures()

    def _wait_for_room(self) -> None:
        """Before a record: wait while the buffer is full, raise where nothing is taken at all."""
        self._background.check()
        if self._producer.is_full:
            if self._background.is_current:
                raise BufferExhausted(
                    "on_delivery runs in the thread that makes room in the buffer"
                )
            self._background.call(self._task.make_room())
        self._must_wait = False

    def _poke(self) -> None:
        """In the thread; who appends from now on pokes again."""
        self._is_poking = False
        self._task.poke()


BlockingProducer = Producer
"""The name in 0.1."""
