"""The asyncio producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from raylog.client.consumer.membership import GroupMetadata
from raylog.client.producer.accumulator import Headers
from raylog.client.producer.core import Offsets, ProducerCore
from raylog.client.streams import AsyncIo
from raylog.wire.errors import UnknownTopicOrPartition


class AsyncProducer:
    """Sends records; a task of its own sends batches that are full or lingered.

    Several tasks may share it; one of them makes the calls about transactions. Used with
    `async with`: leaving it normally flushes, and aborts a transaction that is still open.
    """

    def __init__(self, producer: ProducerCore, io: AsyncIo) -> None:
        self._producer = producer
        self._io = io
        self._sender: asyncio.Task[None] | None = None
        self._urgent = 0
        """Callers that wait for everything to be sent, whatever its linger time."""
        self._is_poked = False

    @property
    def delivered_count(self) -> int:
        """Records acknowledged so far."""
        return self._producer.delivered_count

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Take a record; waits while the buffer is full.

        The partition is the key's unless given. Failures of earlier records are raised here or
        at `flush` as DeliveryFailed.
        """
        producer = self._producer
        try:
            due = producer.append(topic, value, key, headers, timestamp_ms, partition)
        except UnknownTopicOrPartition:
            await producer.prepare(topic)
            due = producer.append(topic, value, key, headers, timestamp_ms, partition)
        if due:
            self.poke()
            producer.raise_failures()
            await self.make_room()

    async def make_room(self) -> None:
        """Wait until new records may be taken; raises BufferExhausted."""
        producer = self._producer
        await self._sent_until(lambda: not producer.is_full, producer.settings.max_block_ms)

    async def flush(self) -> None:
        """Send all and wait until every record is acknowledged; raises DeliveryFailed."""
        await self._sent_until(lambda: self._producer.is_idle, float("inf"))
        self._producer.raise_failures()

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
        await self._end_transaction(commit=True)

    async def abort_transaction(self) -> None:
        """Abort the transaction; records that were not sent yet never will be."""
        await self._end_transaction(commit=False)

    @property
    def has_open_transaction(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._producer.has_open_transaction

    async def close(self) -> None:
        """Stop sending and end the connections; what is not flushed is lost."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
            await asyncio.wait([sender])
        self._producer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._producer.has_open_transaction:
                await self.abort_transaction()
            elif kind is None:
                await self.flush()
        finally:
            await self.close()

    async def _end_transaction(self, *, commit: bool) -> None:
        """Let the sender deliver what there is, or give it up, then end the transaction."""
        self._producer.prepare_end(commit=commit)
        await self._sent_until(lambda: self._producer.is_idle, float("inf"))
        await self._producer.end_transaction(commit=commit)

    async def _sent_until(self, enough: Callable[[], bool], timeout_ms: float) -> None:
        """Send without lingering until `enough()`; raises BufferExhausted and the sender's end."""
        if enough():
            return
        self._urgent += 1
        try:
            sender = self.poke()
            if not await self._io.wait(lambda: enough() or sender.done(), timeout_ms):
                raise self._producer.exhausted(timeout_ms)
            if sender.done():
                await sender
        finally:
            self._urgent -= 1

    def poke(self) -> asyncio.Task[None]:
        """Let the sender look at what there is to do."""
        self._is_poked = True
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._run(), name="raylog producer")
        self._io.wake()
        return self._sender

    async def _run(self) -> None:
        """Send as there is something to send, until cancelled.

        Whoever begins a batch pokes: this may look next at another time than that needs.
        """
        producer = self._producer
        try:
            while True:
                if producer.is_idle:
                    await self._io.wait(lambda: self._is_poked, float("inf"))
                self._is_poked = False
                everything = self._urgent > 0
                await producer.step(everything=everything)
                self._io.wake()
                if not producer.is_idle:
                    await producer.wait_for_work(lambda: self._is_poked, everything=everything)
        finally:
            self._io.wake()
