"""Sending records: batches to requests, answers to repeats or reports.

Produce v3-13: topics go by id from v13 on (KIP-516), refusals name the new leader from v10 on
(KIP-951). `step` never waits for answers, so that one coroutine serves a caller that sends as it
goes (blocking) as well as a background task (asyncio).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from raylog.client.accumulator import Accumulator, Batch, Delivery, Headers, ProducerIdentity
from raylog.client.cluster import TopicPartition
from raylog.client.connection import Pending
from raylog.client.core import Core, is_retriable
from raylog.client.errors import BufferExhausted, ClientError, DeliveryFailed, RequestTimedOut
from raylog.client.partitioner import next_sticky, partition_of_key
from raylog.client.settings import ProducerSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition, error_of
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raylog.wire.records import Record, encode_batch
from raylog.wire.uuids import ZERO_UUID

_BY_NAME_LAST = 12
"""Newest Produce version that names topics instead of giving their ids."""
_CACHED_KEY_BYTES = 64
_REQUEST_BYTES = 1024 * 1024
"""Batches of several partitions share a request up to that size."""
_IDLE_LOOK_MS = 50.0
_NO_HEADERS: list[tuple[str, bytes | None]] = []
"""Shared by records without any and never changed: one list a record costs a quarter of `append`,
most of it in the garbage collector."""

OnDelivery = Callable[[Delivery], None]
_partition_of_short_key = lru_cache(maxsize=16_384)(partition_of_key)


@dataclass(slots=True, eq=False)
class _Sent:
    """A produce request on its way."""

    pending: Pending[ProduceResponse]
    node_id: int
    batches: dict[tuple[str | bytes, int], Batch]
    """By (name or id of the topic, partition)."""


class Producer:
    """One producer over a client's core. Not for several tasks at once, `append` apart."""

    def __init__(
        self, core: Core, settings: ProducerSettings, on_delivery: OnDelivery | None = None
    ) -> None:
        self.settings = settings
        self.delivered_count = 0
        """Records acknowledged so far."""
        self._core = core
        self._on_delivery = on_delivery
        self._accumulator = Accumulator(
            batch_bytes=settings.batch_bytes,
            buffer_bytes=settings.buffer_bytes,
            idempotent=settings.idempotent,
            now_ms=core.io.now_ms,
        )
        self._sent: list[_Sent] = []
        self._sticky: dict[str, int] = {}
        self._last_sticky: dict[str, int] = {}
        self._stale: set[str] = set()
        self._failed_count = 0
        self._first_failure: Delivery | None = None

    # -- records in ----------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> bool:
        """Take a record; returns whether there is something to do (`step`, `make_room`).

        Raises UnknownTopicOrPartition while the topic's metadata is not here (see `prepare`).
        """
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        if partition is None:
            partition = self._choose(topic, key)
        record = Record(0, timestamp_ms, key, value, list(headers) if headers else _NO_HEADERS)
        try:
            due = self._accumulator.append((topic, partition), record)
        except KeyError:
            opened = TopicPartition(topic, partition)
            self._core.cluster.partition(opened)
            self._accumulator.open(opened)
            due = self._accumulator.append(opened, record)
        if due and key is None:
            self._sticky.pop(topic, None)
        return due

    @property
    def is_full(self) -> bool:
        """Whether new records should wait (see `make_room`)."""
        return self._accumulator.is_full

    async def prepare(self, topic: str) -> None:
        """Learn a topic's partitions; the broker may create it."""

        async def attempt() -> None:
            await self._core.refresh([topic], create=True)
            if not self._core.cluster.topic(topic).partitions:
                raise UnknownTopicOrPartition(f"topic {topic!r} has no partitions yet")

        await self._core.repeat(attempt, timeout_ms=self.settings.max_block_ms)

    async def make_room(self) -> None:
        """Send and wait until new records may be taken; raises BufferExhausted."""
        deadline_ms = self._core.io.now_ms() + self.settings.max_block_ms
        while self.is_full:
            if self._core.io.now_ms() >= deadline_ms:
                raise BufferExhausted(
                    f"{self._accumulator.held_bytes} bytes are unacknowledged for "
                    f"{self.settings.max_block_ms} ms: is a broker down?"
                )
            await self.step(everything=True)
            await self._wait(deadline_ms, everything=True)

    # -- out -----------------------------------------------------------------------------------

    async def step(self, *, everything: bool = False) -> None:
        """Take the answers that are here, then send what is ready (or all there is)."""
        await self._core.io.wait(self._any_done, 0)
        self._collect()
        self._expire()
        if self._accumulator.needs_identity:
            if self._accumulator.in_flight:
                return
            await self._renew_identity()
        await self._refresh_stale()
        linger_ms = 0.0 if everything else self.settings.linger_ms
        ready = self._accumulator.ready(self._core.io.now_ms(), linger_ms)
        for node_id, keys in self._by_leader(ready).items():
            if self._in_flight_at(node_id) < self.settings.in_flight_max:
                await self._send(node_id, self._accumulator.drain(keys, _REQUEST_BYTES))

    async def flush(self) -> None:
        """Send all and wait for every record's end; raises DeliveryFailed if one failed."""
        while not self._accumulator.is_empty:
            await self.step(everything=True)
            if not self._accumulator.is_empty:
                await self._wait(float("inf"), everything=True)
        self.raise_failures()

    def raise_failures(self) -> None:
        """Raise DeliveryFailed if batches failed since this was last asked."""
        first, count = self._first_failure, self._failed_count
        self._first_failure, self._failed_count = None, 0
        if first is not None:
            assert first.failure is not None
            raise DeliveryFailed(
                f"{count} records were not delivered; the first to "
                f"{first.topic}-{first.partition}: {_describe(first.failure)}"
            ) from first.failure

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held or in flight."""
        return self._accumulator.is_empty

    async def wait_for_work(self, interrupted: Callable[[], bool], *, everything: bool) -> None:
        """Wait for an answer, for a batch that may be sent, or until `interrupted()`."""
        await self._wait(float("inf"), everything=everything, interrupted=interrupted)

    def close(self) -> None:
        """End the producer's connections; what is not flushed is lost."""
        self._core.close()

    # -- inside --------------------------------------------------------------------------------

    def _choose(self, topic: str, key: bytes | None) -> int:
        """The partition of a record that names none."""
        if key is not None:
            count = len(self._core.cluster.topic(topic).partitions)
            if len(key) <= _CACHED_KEY_BYTES:
                return _partition_of_short_key(key, count)
            return partition_of_key(key, count)
        chosen = self._sticky.get(topic)
        if chosen is None:
            partitions = self._core.cluster.topic(topic).partitions
            led = [index for index, view in partitions.items() if view.leader >= 0]
            chosen = next_sticky(self._last_sticky.get(topic, -1), led or list(partitions))
            self._sticky[topic] = self._last_sticky[topic] = chosen
        return chosen

    def _by_leader(self, keys: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader; those without one are looked up again."""
        grouped: dict[int, list[TopicPartition]] = {}
        for key in keys:
            try:
                grouped.setdefault(self._core.cluster.leader_of(key), []).append(key)
            except KafkaError:
                self._stale.add(key.topic)
                backoff_ms = self._core.settings.retry_backoff_ms
                self._accumulator.postpone(key, self._core.io.now_ms() + backoff_ms)
        return grouped

    def _in_flight_at(self, node_id: int) -> int:
        return sum(sent.node_id == node_id for sent in self._sent)

    async def _send(self, node_id: int, batches: list[Batch]) -> None:
        """Send one request; what cannot be sent counts as refused."""
        acks = self.settings.acks
        try:
            request, by_id = self._request(batches)
            pending = await self._core.submit(
                node_id,
                request,
                ProduceResponse,
                at_most=None if by_id else _BY_NAME_LAST,
                answered=acks != 0,
            )
        except (ClientError, KafkaError) as error:
            for batch in batches:
                self._refuse(batch, error)
            return
        if acks == 0:
            for batch in batches:
                self._acknowledge(batch, -1)
            return
        expected = {}
        ids = {topic.name: topic.topic_id for topic in request.topic_data}
        for batch in batches:
            name = batch.key.topic
            expected[
                ids[name] if pending.version > _BY_NAME_LAST else name, batch.key.partition
            ] = batch
        self._sent.append(_Sent(pending, node_id, expected))

    def _request(self, batches: list[Batch]) -> tuple[ProduceRequest, bool]:
        """One request of one batch a partition, and whether all topics' ids are known."""
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name = batch.key.topic
            if name not in topics:
                topic_id = self._core.cluster.topic(name).topic_id
                topics[name] = TopicProduceData(name=name, topic_id=topic_id)
            topics[name].partition_data.append(
                PartitionProduceData(index=batch.key.partition, records=self._encoded(batch))
            )
        request = ProduceRequest(
            acks=self.settings.acks,
            timeout_ms=self._core.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        return request, all(topic.topic_id != ZERO_UUID for topic in topics.values())

    def _encoded(self, batch: Batch) -> bytes:
        """The batch's bytes; a repeat sends the very same."""
        if batch.encoded is None:
            batch.encoded = encode_batch(
                batch.records,
                codec=self.settings.codec,
                level=self.settings.codec_level,
                producer_id=batch.identity.producer_id,
                producer_epoch=batch.identity.producer_epoch,
                base_sequence=batch.sequence,
            )
        return batch.encoded

    def _any_done(self) -> bool:
        return any(sent.pending.done for sent in self._sent)

    async def _wait(
        self,
        deadline_ms: float,
        *,
        everything: bool,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until an answer is here or a batch may be sent."""
        linger_ms = 0.0 if everything else self.settings.linger_ms
        now_ms = self._core.io.now_ms()
        next_ms = self._accumulator.next_ready_ms(linger_ms)
        if self._sent and next_ms <= now_ms:
            next_ms = now_ms + _IDLE_LOOK_MS  # what is ready waits for an answer
        await self._core.wait_for(
            lambda: self._any_done() or interrupted(), min(deadline_ms, next_ms)
        )

    def _collect(self) -> None:
        """Take all answers that are here."""
        for sent in [sent for sent in self._sent if sent.pending.done]:
            self._sent.remove(sent)
            try:
                response = sent.pending.result()
            except ClientError as error:
                for batch in sent.batches.values():
                    self._refuse(batch, error)
                continue
            for topic in response.responses:
                name = topic.topic_id if sent.pending.version > _BY_NAME_LAST else topic.name
                for answer in topic.partition_responses:
                    self._take(sent.batches.pop((name, answer.index)), answer)
            for batch in sent.batches.values():
                self._refuse(batch, ClientError(f"the broker left {batch.key} unanswered"))

    def _take(self, batch: Batch, answer: PartitionProduceResponse) -> None:
        """Take one partition's answer."""
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(batch, answer.base_offset)
            return
        leader = answer.current_leader
        if leader is not None:
            self._core.cluster.moved(batch.key, leader.leader_id, leader.leader_epoch)
        self._refuse(batch, error_of(code, answer.error_message or str(batch.key)))

    def _acknowledge(self, batch: Batch, base_offset: int) -> None:
        self._accumulator.acknowledged(batch)
        self.delivered_count += len(batch.records)
        self._report(batch, base_offset, None)

    def _refuse(self, batch: Batch, error: Exception) -> None:
        """Send a batch again, or give it up."""
        now_ms = self._core.io.now_ms()
        again_ms = now_ms + self._backoff_ms(batch)
        overdue = self._is_overdue(batch)
        if isinstance(error, KafkaError) and error.code in _UNFIT_SEQUENCE and not overdue:
            if self._accumulator.follows_unsettled(batch):
                self._accumulator.refused(batch, again_ms)
            else:
                self._accumulator.resequence(batch, again_ms)
        elif is_retriable(error) and not overdue:
            self._stale.add(batch.key.topic)
            self._accumulator.refused(batch, again_ms)
        else:
            self._accumulator.failed(batch)
            self._report(batch, -1, error)

    def _backoff_ms(self, batch: Batch) -> float:
        """Pause before a repeat; doubles with each."""
        settings = self._core.settings
        doubled = settings.retry_backoff_ms * 2 ** min(batch.attempts - 1, 16)
        return float(min(doubled, settings.retry_backoff_max_ms))

    def _is_overdue(self, batch: Batch) -> bool:
        age_ms = self._core.io.now_ms() - batch.created_ms
        return age_ms >= self.settings.delivery_timeout_ms

    def _expire(self) -> None:
        """Give up what could not be sent in time."""
        for batch in self._accumulator.expire(self._is_overdue):
            error = RequestTimedOut(
                f"not acknowledged in {self.settings.delivery_timeout_ms} ms, "
                f"sent {batch.attempts} times"
            )
            self._report(batch, -1, error)

    async def _renew_identity(self) -> None:
        """Ask for a producer id; sequences start anew."""

        async def attempt() -> ProducerIdentity:
            response = await self._core.ask(
                await self._core.any_node(),
                InitProducerIdRequest(
                    transactional_id=None,
                    transaction_timeout_ms=self._core.settings.request_timeout_ms,
                ),
                InitProducerIdResponse,
            )
            if response.error_code != ErrorCode.NONE:
                raise error_of(response.error_code, ApiKey.INIT_PRODUCER_ID.name)
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        identity = await self._core.repeat(attempt, timeout_ms=self.settings.max_block_ms)
        for batch in self._accumulator.renew(identity):
            error = ClientError("whether it was written is unknown: an earlier batch had failed")
            self._report(batch, -1, error)

    async def _refresh_stale(self) -> None:
        """Look up topics whose leaders may have moved; a failure is tried again next time."""
        if not self._stale:
            return
        try:
            await self._core.refresh(self._stale)
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                raise
        else:
            self._stale.clear()

    def _report(self, batch: Batch, base_offset: int, failure: Exception | None) -> None:
        """Tell the end of a batch."""
        delivery = Delivery(*batch.key, base_offset, len(batch.records), failure)
        if failure is not None:
            self._failed_count += len(batch.records)
            self._first_failure = self._first_failure or delivery
        if self._on_delivery is not None:
            self._on_delivery(delivery)


_UNFIT_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


def _describe(error: Exception) -> str:
    """An error for a person: Kafka's name where it has one."""
    name = error.code.name if isinstance(error, KafkaError) else type(error).__name__
    return f"{name}: {error}" if str(error) else name
