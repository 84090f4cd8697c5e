"""The blocking producer."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from raylog.client.background import BackgroundLoop
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.producer.accumulator import Headers
from raylog.client.producer.aio import AsyncProducer
from raylog.client.producer.core import Offsets, ProducerCore
from raylog.client.streams import AsyncIo
from raylog.wire.errors import UnknownTopicOrPartition


class BlockingProducer:
    """Sends records; batches leave when they are full or have lingered, everything at `flush`.

    The client's thread sends them, and calls `on_delivery`. Several threads may share a producer;
    one of them makes the calls about transactions. Used with `with`: leaving it normally flushes,
    and aborts a transaction that is still open.
    """

    def __init__(self, producer: ProducerCore, background: BackgroundLoop, io: AsyncIo) -> None:
        self._producer = producer
        self._background = background
        self._sender = AsyncProducer(producer, io)
        self._is_poking = False

    @property
    def delivered_count(self) -> int:
        """Records acknowledged so far."""
        return self._producer.delivered_count

    @property
    def refusal(self) -> str | None:
        """Why what is unacknowledged is sent again; None if that is not known."""
        return self._producer.refusal

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Take a record; blocks while the buffer is full.

        The partition is the key's unless given. Failures of earlier records are raised here or
        at `flush` as DeliveryFailed.
        """
        producer = self._producer
        if self._background.unusable is not None:
            self._background.check()
        try:
            due = producer.append(topic, value, key, headers, timestamp_ms, partition)
        except UnknownTopicOrPartition:
            self._background.call(producer.prepare(topic))
            due = producer.append(topic, value, key, headers, timestamp_ms, partition)
        if due:
            if not self._is_poking:
                self._is_poking = True
                self._background.post(self._poke)
            producer.raise_failures()
            if producer.is_full:
                self._background.call(self._sender.make_room())

    def flush(self) -> None:
        """Send all and wait until every record is acknowledged; raises DeliveryFailed."""
        self._background.call(self._sender.flush())

    def init_transactions(self) -> None:
        """Take the transactional id over, once, before all else.

        Other producers of the same id are fenced, and what they left open is aborted.
        """
        self._background.call(self._sender.init_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction: records and offsets from now on are part of it."""
        self._background.check()
        self._sender.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets, the next ones to read, if the transaction is committed.

        Raises AbortRequired, such as when the member is not in the group any more.
        """
        self._background.call(self._sender.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Flush and commit. AbortRequired: call `abort_transaction`; ProducerUnusable: close.

        Whatever else is raised leaves the outcome open: call this again.
        """
        self._background.call(self._sender.commit_transaction())

    def abort_transaction(self) -> None:
        """Abort the transaction; records that were not sent yet never will be."""
        self._background.call(self._sender.abort_transaction())

    def close(self) -> None:
        """Stop sending and end the connections; what is not flushed is lost.

        Harmless where they have ended, or are the parent process'.
        """
        if self._background.unusable is None:
            self._background.call(self._sender.close())
            self._background.at_end.discard(self._producer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._sender.has_open_transaction:
                self.abort_transaction()
            elif kind is None:
                self.flush()
        finally:
            self.close()

    def _poke(self) -> None:
        """In the thread; who appends from now on pokes again."""
        self._is_poking = False
        self._sender.poke()
