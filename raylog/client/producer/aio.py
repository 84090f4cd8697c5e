"""The asyncio producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from raylog.client.closing import OfOneProcess
from raylog.client.config import Config, client_and_producer
from raylog.client.core import Core
from raylog.client.interceptors import ClientInterceptor, ProducerRecord, RecordMetadata
from raylog.client.io import Io
from raylog.client.producer.batch import Headers, Listener
from raylog.client.producer.core import Offsets, ProducerCore, pipeline_of
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

T = TypeVar("T")


class AsyncProducer(OfOneProcess, Generic[K, V]):
    """Sends records; a task of its own sends batches that are full or lingered.

    `AsyncProducer("localhost:9092", linger_ms=20)`: settings by Kafka's names, in a mapping or as
    keyword arguments. Keys and values are bytes unless there are serializers.

    Several tasks may share it; one of them makes the calls about transactions. Used with
    `async with`: leaving it normally flushes, and aborts a transaction that is still open.
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
        """`on_delivery` is called at the end of each batch.

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
        self._begin(producer, io, pipeline)
        self._own_io = io

    @classmethod
    def over(cls, producer: ProducerCore, io: Io) -> AsyncProducer[bytes, bytes]:
        """A producer of bytes over a core that is made already."""
        made: AsyncProducer[bytes, bytes] = AsyncProducer.__new__(AsyncProducer)
        made._begin(producer, io, pipeline_of(producer))
        made._own_io = None
        return made

    def _begin(self, producer: ProducerCore, io: Io, pipeline: Pipeline | None) -> None:
        self._producer = producer
        self._append: Any = producer.append
        """Typed by the serializers, which nobody but the pipeline knows."""
        self._pipeline = pipeline
        self._task = SenderTask(producer, io)
        self._must_wait = False

    _own_io: AsyncIo | None
    """That nobody else uses."""

    @property
    def delivered_count(self) -> int:
        """Records acknowledged so far."""
        return self._producer.delivered_count

    # -- records -------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Listener | None = None,
    ) -> None:
        """Take a record; waits while the buffer is full.

        The partition is the key's unless given. `on_delivery` is called with the record's metadata
        and its failure, or None, when it has met its end; in order within a partition.
        Failures of earlier records that have neither that nor a future are raised here or at
        `flush` as DeliveryFailed.
        """
        if self._must_wait:
            await self._wait_for_room()
        if self._pipeline is not None:
            record = ProducerRecord(topic, value, key, headers, timestamp_ms, partition)
            due = await self._send_through(self._pipeline, record, on_delivery)
        else:
            try:
                due = self._append(topic, value, key, headers, timestamp_ms, partition, on_delivery)
            except UnknownTopicOrPartition:
                await self._producer.prepare(topic)
                due = self._append(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        if due:
            await self._attend()

    async def submit(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Listener | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Take a record as `send` does; returns what will be its metadata, or raise its failure."""
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()

        def ended(metadata: RecordMetadata, failure: Exception | None) -> None:
            if not future.done():  # else cancelled: nobody waits
                if failure is None:
                    future.set_result(metadata)
                else:
                    future.set_exception(failure)
            if on_delivery is not None:
                on_delivery(metadata, failure)

        await self.send(topic, value, key, headers, timestamp_ms, partition, ended)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Send a record, wait for its end; raises its failure. It lingers like all others."""
        return await (await self.submit(topic, value, key, headers, timestamp_ms, partition))

    async def send_rows(
        self,
        topic: str,
        rows: Iterable[Row[K, V]] | AsyncIterable[Row[K, V]],
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> int:
        """Take many records, each a value or a tuple of key and value; returns how many.

        All have the same headers and time. What a serializer raises comes out of here once all rows
        before that one are taken.
        """
        if isinstance(rows, AsyncIterable):
            return await self._send_each(topic, rows, headers, timestamp_ms, partition)
        if self._pipeline is not None and self._pipeline.is_per_record:
            return await self._send_each(topic, _each(rows), headers, timestamp_ms, partition)
        from raylog.client.producer.rows import RowChunks

        chunks = RowChunks(
            self._producer, self._pipeline, topic, rows, headers, timestamp_ms, partition
        )
        while True:
            if self._must_wait:
                await self._wait_for_room()
            try:
                if not chunks.take():
                    return chunks.count
            except UnknownTopicOrPartition:
                await self._producer.prepare(topic)
                chunks.take()
            await self._attend()

    async def send_table(
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
            await self._producer.prepare(topic)
            batches = TableBatches(self._producer, topic, table, names, partitioner)
        while True:
            if self._must_wait:
                await self._wait_for_room()
            if not batches.take():
                return batches.count
            await self._attend()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all and wait until every record has met its end.

        Raises DeliveryFailed if one failed that has neither future nor callback, RequestTimedOut
        when time is up: then records go on being sent.
        """
        await self._task.flush(timeout_s)

    async def partitions_for(self, topic: str) -> list[int]:
        """A topic's partitions; the broker may create the topic."""
        try:
            return list(self._producer.partitions(topic))
        except UnknownTopicOrPartition:
            await self._producer.prepare(topic)
            return list(self._producer.partitions(topic))

    def statistics(self) -> ProducerStatistics:
        """What was done so far, and how it stands."""
        return self._producer.statistics()

    # -- transactions --------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Take the transactional id over, once, before all else.

        Other producers of the same id are fenced, and what they left open is aborted.
        """
        await self._producer.init_transactions()

    def begin_transaction(self) -> None:
        """Begin a transaction: records and offsets from now on are part of it."""
        self._producer.begin_transaction()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets, the next ones to read, if the transaction is committed.

        Raises AbortRequired, such as when the member is not in the group any more.
        """
        await self._producer.send_offsets_to_transaction(offsets, group)

    async def commit_transaction(self) -> None:
        """Flush and commit. AbortRequired: call `abort_transaction`; ProducerUnusable: close.

        Whatever else is raised leaves the outcome open: call this again.
        """
        await self._task.end_transaction(commit=True)

    async def abort_transaction(self) -> None:
        """Abort the transaction; records that were not sent yet never will be."""
        await self._task.end_transaction(commit=False)

    @property
    def has_open_transaction(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._producer.has_open_transaction

    # -- the end -------------------------------------------------------------------------------

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, or abort the open transaction, then end the connections.

        After `timeout_s`, 0 for at once, what is not acknowledged fails. Raises as `flush`.
        """
        try:
            if timeout_s is None or timeout_s > 0:
                await self._task.finish(timeout_s)
        finally:
            await self._task.stop()
            if self._own_io is not None:
                await self._own_io.finish()
            if self._pipeline is not None:
                self._pipeline.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_left_open = self._producer.has_open_transaction
        await self.close(None if kind is None or is_left_open else 0)

    async def _attend(self) -> None:
        """See to what a record has begun: a batch to be sent, a full buffer."""
        self._task.poke()
        self._must_wait = self._producer.is_full
        self._producer.raise_failures()
        await asyncio.sleep(0)  # one who never waits would keep the sender from its turn

    async def _wait_for_room(self) -> None:
        """Before a record: wait while the buffer is full."""
        if self._producer.is_full:
            await self._task.make_room()
        self._must_wait = False

    async def _send_each(
        self,
        topic: str,
        rows: AsyncIterable[Row[K, V]],
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> int:
        """Take rows one by one."""
        count = 0
        async for row in rows:
            key, value = row if isinstance(row, tuple) else (None, row)
            await self.send(topic, value, key, headers, timestamp_ms, partition)
            count += 1
        return count

    async def _send_through(
        self, pipeline: Pipeline, record: ProducerRecord, listener: Listener | None
    ) -> bool:
        """Take a record by the long way."""
        serialized = pipeline.serialized(record, listener)
        try:
            try:
                return pipeline.append(serialized)
            except UnknownTopicOrPartition:
                await self._producer.prepare(serialized.topic)
                return pipeline.append(serialized)
        except Exception as error:
            pipeline.refused(serialized, error)
            raise


async def _each(rows: Iterable[T]) -> AsyncIterator[T]:
    """The rows, for `async for`."""
    for row in rows:
        yield row
