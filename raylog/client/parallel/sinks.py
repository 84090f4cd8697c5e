"""The producer of results and letters, over `AsyncProducer`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import AbortRequired, ClientError, DeliveryFailed, ProducerUnusable
from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.ports import NotDelivered, Offsets
from raylog.client.producer.aio import AsyncProducer
from raylog.wire.errors import KafkaError

_AGAIN_S = 0.2


class ProducerSink:
    """Produces with one producer, in transactions if it has a transactional id."""

    def __init__(
        self,
        make: Callable[[], AsyncProducer[bytes, bytes]],
        *,
        transactional: bool,
        before_again: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`make` is called in the event loop; `before_again` before records are sent again."""
        self._make = make
        self._is_transactional = transactional
        self._before_again = before_again
        self._producer: AsyncProducer[bytes, bytes] | None = None

    async def start(self) -> None:
        """Make the producer and take its transactional id over."""
        self._producer = self._make()
        if self._is_transactional:
            await self._producer.init_transactions()

    async def send(self, records: Sequence[ProducerRecord]) -> None:
        """Produce, and wait for all acknowledgements; raises NotDelivered."""
        producer = self._started()
        try:
            await _send_all(producer, records)
            await producer.flush()
        except ProducerUnusable:
            raise
        except (ClientError, KafkaError) as error:
            await self._look_after(error)
            raise NotDelivered(str(error)) from error

    async def transact(
        self, records: Sequence[ProducerRecord], offsets: Offsets, group: GroupMetadata
    ) -> None:
        """Produce and commit offsets in one transaction; NotDelivered: it was aborted."""
        producer = self._started()
        producer.begin_transaction()
        try:
            await _send_all(producer, records)
            if offsets:
                await producer.send_offsets_to_transaction(offsets, group)
            await _until_known(producer.commit_transaction)
        except ProducerUnusable:
            raise
        except (ClientError, KafkaError) as error:
            if producer.has_open_transaction:
                await _until_known(producer.abort_transaction)
            await self._look_after(error)
            raise NotDelivered(str(error.__cause__ or error)) from error

    async def close(self) -> None:
        """End the connections; what is open is aborted."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            if producer.has_open_transaction:
                await producer.abort_transaction()
        finally:
            await producer.close()

    def _started(self) -> AsyncProducer[bytes, bytes]:
        assert self._producer is not None, "start() comes first"
        return self._producer

    async def _look_after(self, error: Exception) -> None:
        """Mend what made a delivery fail, if it was a topic that is gone."""
        if self._before_again is not None and not isinstance(error, AbortRequired):
            await self._before_again()


async def _send_all(
    producer: AsyncProducer[bytes, bytes], records: Sequence[ProducerRecord]
) -> None:
    for one in records:
        key, value = one.key, one.value
        assert key is None or isinstance(key, bytes), "results are serialized by now"
        assert value is None or isinstance(value, bytes), "results are serialized by now"
        await producer.send(
            one.topic, value, key, list(one.headers), one.timestamp_ms, one.partition
        )


async def _until_known(act: Callable[[], Awaitable[None]]) -> None:
    """Commit or abort; what leaves the outcome open is asked again."""
    while True:
        try:
            await act()
        except (AbortRequired, ProducerUnusable, DeliveryFailed):
            raise
        except (ClientError, KafkaError):
            await asyncio.sleep(_AGAIN_S)
        else:
            return
