"""The producer of results and letters, based on `AsyncProducer`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import (
    AbortRequired,
    ClientError,
    DeliveryFailed,
    ProducerUnusable,
    RecordTooLarge,
)
from raylog.client.interceptors import ProducerRecord, RecordMetadata
from raylog.client.parallel.interfaces import NotDelivered, Offsets
from raylog.client.producer.aio import AsyncProducer
from raylog.wire.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicException,
    KafkaError,
    MessageTooLarge,
    PolicyViolation,
    RecordListTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)

log = logging.getLogger(__name__)
_AGAIN_S = 0.2
_REFUSALS = (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicException,
    MessageTooLarge,
    OverflowError,
    PolicyViolation,
    RecordListTooLarge,
    RecordTooLarge,
    TopicAuthorizationFailed,
    TypeError,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
    ValueError,
)
"""Errors that the record or its topic causes, so that a retry would fail again.

A topic may be unknown for a moment, but by then the producer has looked for it for its full
timeout.
"""


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
        """Create the producer and take over its transactional id."""
        self._producer = self._make()
        if self._is_transactional:
            await self._producer.init_transactions()

    async def send(self, records: Sequence[ProducerRecord]) -> None:
        """Produce and wait for all acknowledgements; raise NotDelivered. May run concurrently."""
        failures = await _Sending(self._started(), records).sent()
        if failures:
            await self._look_after(failures.values())
            raise _not_delivered(failures)

    async def transact(
        self, records: Sequence[ProducerRecord], offsets: Offsets, group: GroupMetadata
    ) -> None:
        """Produce and commit offsets in one transaction; raise NotDelivered if it was aborted."""
        producer = self._started()
        producer.begin_transaction()
        sending = _Sending(producer, records)
        try:
            await sending.begin()
            if offsets:
                await producer.send_offsets_to_transaction(offsets, group)
            await _until_known(producer.commit_transaction)
        except ProducerUnusable:
            raise
        except (ClientError, KafkaError) as error:
            if producer.has_open_transaction:
                await _until_known(producer.abort_transaction)
            failures = await sending.ended()
            await self._look_after(failures.values())
            raise _not_delivered(failures, error.__cause__ or error) from error

    async def close(self) -> None:
        """Close the connections; abort an open transaction."""
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

    async def _look_after(self, failures: Iterable[Exception]) -> None:
        """Recreate topics if a delivery failed because one is gone."""
        if self._before_again is None:
            return
        if any(isinstance(failure, UnknownTopicOrPartition) for failure in failures):
            try:
                await self._before_again()
            except (ClientError, KafkaError) as error:
                log.warning("missing topics could not be looked at: %s", error)


class _Sending:
    """Records in flight, each with its own outcome."""

    def __init__(
        self, producer: AsyncProducer[bytes, bytes], records: Sequence[ProducerRecord]
    ) -> None:
        self._producer = producer
        self._records = records
        self._futures: dict[int, asyncio.Future[RecordMetadata]] = {}
        self._failures: dict[int, Exception] = {}
        """Failures of records that the producer did not accept."""

    async def sent(self) -> dict[int, Exception]:
        """Send all records; return the failures by position."""
        at = 0
        while at < len(self._records):
            try:
                await self.begin(at)
            except (ClientError, KafkaError):
                at = max(self._failures) + 1
            else:
                break
        return await self.ended()

    async def begin(self, first: int = 0) -> None:
        """Hand the records to the producer; raise the first error of one that it refuses."""
        for at, one in enumerate(self._records[first:], first):
            key, value = one.key, one.value
            assert key is None or isinstance(key, bytes), "results are serialized by now"
            assert value is None or isinstance(value, bytes), "results are serialized by now"
            try:
                self._futures[at] = await self._producer.submit(
                    one.topic, value, key, list(one.headers), one.timestamp_ms, one.partition
                )
            except (ClientError, KafkaError) as error:
                self._failures[at] = error
                raise
            except (TypeError, ValueError, OverflowError) as error:
                self._failures[at] = error  # headers of a wrong type, a timestamp out of range
                raise NotDelivered(f"a result that is no record: {error}") from error

    async def ended(self) -> dict[int, Exception]:
        """Wait for all accepted records; return the failures by position."""
        ends = await asyncio.gather(*self._futures.values(), return_exceptions=True)
        for at, end in zip(self._futures, ends, strict=True):
            if isinstance(end, Exception):
                self._failures[at] = end
        return dict(sorted(self._failures.items()))


def _not_delivered(
    failures: Mapping[int, Exception], reason: BaseException | None = None
) -> NotDelivered:
    refused = {at: why for at, why in failures.items() if isinstance(why, _REFUSALS)}
    cause = next(iter(refused.values()), None) or reason or next(iter(failures.values()))
    name = cause.code.name if isinstance(cause, KafkaError) else type(cause).__name__
    return NotDelivered(f"{name}: {cause}", refused)


async def _until_known(act: Callable[[], Awaitable[None]]) -> None:
    """Commit or abort; repeat while the outcome is unknown."""
    while True:
        try:
            await act()
        except (AbortRequired, ProducerUnusable, DeliveryFailed):
            raise
        except (ClientError, KafkaError):
            await asyncio.sleep(_AGAIN_S)
        else:
            return
