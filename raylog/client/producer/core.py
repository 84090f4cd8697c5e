"""Sending records: batches to requests, answers to repeats or reports.

Produce v3-13: topics go by id from v13 on (KIP-516), refusals name the new leader from v10 on
(KIP-951). `step` never waits for answers to batches, so that one coroutine serves a caller that
sends as it goes (blocking) as well as a background task (asyncio). Batches of a transaction leave
once it holds their partitions, and are given up when it cannot be committed (transactional.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.client.connection import Pending
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.core import Core, is_retriable
from raylog.client.errors import (
    BufferExhausted,
    ClientError,
    DeliveryFailed,
    InvalidSetting,
    RequestTimedOut,
)
from raylog.client.producer.accumulator import (
    COLLECTED,
    Accumulator,
    Appended,
    Batch,
    Delivery,
    Headers,
    ProducerIdentity,
)
from raylog.client.producer.partitioner import next_sticky, partition_of_key
from raylog.client.producer.transactional import PRODUCE_OF_VERSION_1_LAST, Transactions
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

log = logging.getLogger(__name__)
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
Offsets = Mapping[TopicPartition, CommittedOffset | int]
"""Next offsets to read, to be committed."""
_partition_of_short_key = lru_cache(maxsize=16_384)(partition_of_key)


@dataclass(slots=True, eq=False)
class _Sent:
    """A produce request on its way."""

    pending: Pending[ProduceResponse]
    node_id: int
    batches: dict[tuple[str | bytes, int], Batch]
    """By (name or id of the topic, partition)."""


class ProducerCore:
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
            record_bytes_max=settings.record_bytes_max,
            buffer_bytes=settings.buffer_bytes,
            idempotent=settings.is_idempotent,
            now_ms=core.io.now_ms,
        )
        self._transactions: Transactions | None = None
        if settings.transactional_id is not None:
            self._transactions = Transactions(
                core,
                settings.transactional_id,
                timeout_ms=settings.transaction_timeout_ms,
                max_block_ms=settings.max_block_ms,
                renew=self._accumulator.renew,
            )
        self._sent: list[_Sent] = []
        self._sticky: dict[str, int] = {}
        self._last_sticky: dict[str, int] = {}
        self._stale: set[str] = set()
        self._last_refusal: Exception | None = None
        """Why a batch is sent again, unless something was acknowledged since."""
        self._failures = threading.Lock()
        """Guards the two below: they are taken by other threads than the sender's."""
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

        Whoever steps must then look again when it has to be next: a batch may have begun.

        Raises UnknownTopicOrPartition while the topic's metadata is not here (see `prepare`), and
        in a transactional producer what `begin_transaction` or `abort_transaction` must cure.
        """
        if self._transactions is not None:
            self._transactions.state.require_open("send")
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        if partition is None:
            partition = self._choose(topic, key)
        record = Record(0, timestamp_ms, key, value, list(headers) if headers else _NO_HEADERS)
        try:
            outcome = self._accumulator.append((topic, partition), record)
        except KeyError:
            opened = TopicPartition(topic, partition)
            self._core.cluster.partition(opened)
            self._accumulator.open(opened)
            outcome = self._accumulator.append(opened, record)
        if outcome is COLLECTED:
            return False
        if outcome is Appended.FULL and key is None:
            self._sticky.pop(topic, None)
        return True

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
                raise self.exhausted(self.settings.max_block_ms)
            await self.step(everything=True)
            await self._wait(deadline_ms, everything=True)

    def exhausted(self, timeout_ms: float) -> BufferExhausted:
        """The failure of a caller that has waited so long for room."""
        return BufferExhausted(
            f"{self._accumulator.held_bytes} bytes are unacknowledged for {timeout_ms:.0f} ms: "
            f"{self.refusal or 'is a broker down?'}"
        )

    @property
    def refusal(self) -> str | None:
        """Why what is unacknowledged is sent again; None if that is not known."""
        last = self._last_refusal
        return None if last is None else f"the last attempt failed: {_describe(last)}"

    # -- out -----------------------------------------------------------------------------------

    async def step(self, *, everything: bool = False) -> None:
        """Take the answers that are here, then send what is ready (or all there is).

        What cannot be sent for `delivery_timeout_ms` is given up. That it is tried before keeps
        records from being lost because nobody called this, however long.
        """
        await self._core.io.wait(self._any_done, 0)
        self._collect()
        await self._send_ready(0.0 if everything else self.settings.linger_ms)
        self._expire()

    async def _send_ready(self, linger_ms: float) -> None:
        if not await self._may_send(linger_ms):
            return
        await self._refresh_stale()
        ready = self._accumulator.ready(self._core.io.now_ms(), linger_ms)
        if self._transactions is not None:
            ready = self._transactions.held(ready)  # others came while the last were added
        for node_id, keys in self._by_leader(ready).items():
            if self._in_flight_at(node_id) < self.settings.in_flight_max:
                await self._send(node_id, self._accumulator.drain(keys, _REQUEST_BYTES))

    async def flush(self) -> None:
        """Send all and wait for every record's end; raises DeliveryFailed if one failed."""
        await self._finish_all()
        self.raise_failures()

    async def _finish_all(self) -> None:
        while not self._accumulator.is_empty:
            await self.step(everything=True)
            if not self._accumulator.is_empty:
                await self._wait(float("inf"), everything=True)

    def raise_failures(self) -> None:
        """Raise DeliveryFailed if batches failed since this was last asked.

        In a transaction that is AbortRequired, or ProducerUnusable.
        """
        with self._failures:
            first, count = self._first_failure, self._failed_count
            self._first_failure, self._failed_count = None, 0
        if self._transactions is not None:
            self._transactions.state.check()
        elif first is not None:
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

    # -- transactions --------------------------------------------------------------------------

    @property
    def has_open_transaction(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self._transactions is not None and self._transactions.state.can_abort

    async def init_transactions(self) -> None:
        """Take the transactional id over, once, before all else."""
        await self._transactional().initialize()

    def begin_transaction(self) -> None:
        """Begin a transaction; records of before and of other transactions are all delivered."""
        self._transactional().begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets if the transaction is committed, and not otherwise."""
        await self._transactional().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Deliver all records, then commit."""
        self.prepare_end(commit=True)
        await self._finish_all()
        await self.end_transaction(commit=True)

    async def abort_transaction(self) -> None:
        """Give up what was not sent, wait for the answers to what was, then abort."""
        self.prepare_end(commit=False)
        await self._finish_all()
        await self.end_transaction(commit=False)

    def prepare_end(self, *, commit: bool) -> None:
        """Take no more records; whoever steps this producer makes it idle next."""
        self._transactional().state.begin_end(commit=commit)

    async def end_transaction(self, *, commit: bool) -> None:
        """End the transaction of a producer that is idle."""
        assert self.is_idle, "records of a transaction are on their way"
        with self._failures:
            self._first_failure, self._failed_count = None, 0
        is_worn = self._accumulator.needs_identity
        await self._transactional().end(commit=commit, is_worn=is_worn)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise InvalidSetting("expected a producer with a transactional_id, found one without")
        return self._transactions

    # -- inside --------------------------------------------------------------------------------

    async def _may_send(self, linger_ms: float) -> bool:
        """Whether batches may leave now; gets ready for it, or gives them up."""
        if self._transactions is None:
            if self._accumulator.needs_identity:
                return not self._accumulator.in_flight and await self._renew_identity()
            return True
        if self._transactions.state.gives_up is None:
            ready = self._accumulator.ready(self._core.io.now_ms(), linger_ms)
            if ready:
                await self._transactions.add_partitions(ready)
        reason = self._transactions.state.gives_up
        if reason is None:
            return True
        for batch in self._accumulator.give_up():
            self._report(batch, -1, reason)
        return False

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
            request, at_most = self._request(batches)
            pending = await self._core.submit(
                node_id,
                request,
                ProduceResponse,
                at_most=at_most,
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

    def _request(self, batches: list[Batch]) -> tuple[ProduceRequest, int | None]:
        """One request of one batch a partition, and the newest version that it can have."""
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
            transactional_id=self.settings.transactional_id,
            acks=self.settings.acks,
            timeout_ms=self._core.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        if self._transactions is not None and not self._transactions.is_version_2:
            return request, PRODUCE_OF_VERSION_1_LAST
        is_by_id = all(topic.topic_id != ZERO_UUID for topic in topics.values())
        return request, None if is_by_id else _BY_NAME_LAST

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
                is_transactional=self._transactions is not None,
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
        self._last_refusal = None
        self.delivered_count += len(batch.records)
        self._report(batch, base_offset, None)

    def _refuse(self, batch: Batch, error: Exception) -> None:
        """Send a batch again, or give it up."""
        now_ms = self._core.io.now_ms()
        again_ms = now_ms + self._backoff_ms(batch)
        if self._is_overdue(batch) or batch.attempts > self.settings.retries:
            self._fail(batch, error)
        elif isinstance(error, KafkaError) and error.code in _UNFIT_SEQUENCE:
            if self._accumulator.follows_unsettled(batch):
                self._accumulator.refused(batch, again_ms)
            elif self._transactions is None:
                self._accumulator.resequence(batch, again_ms)
            else:
                self._fail(batch, error)  # within a transaction there is no other identity
        elif is_retriable(error):
            self._stale.add(batch.key.topic)
            self._accumulator.refused(batch, again_ms)
            self._last_refusal = error
        else:
            self._fail(batch, error)

    def _fail(self, batch: Batch, error: Exception) -> None:
        self._accumulator.failed(batch)
        self._report(batch, -1, error)
        if self._transactions is not None:
            self._transactions.state.batch_failed(error)

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
                f"sent {batch.attempts} times{f'; {self.refusal}' if self.refusal else ''}"
            )
            self._report(batch, -1, error)
            if self._transactions is not None:
                self._transactions.state.batch_failed(error)

    async def _renew_identity(self) -> bool:
        """Ask for a producer id; sequences start anew. False if none is to be had for now."""

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

        timeout_ms = min(self.settings.max_block_ms, self.settings.delivery_timeout_ms)
        try:
            identity = await self._core.repeat(attempt, timeout_ms=timeout_ms)
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                raise
            self._accumulator.hold_up()
            return False
        for batch in self._accumulator.renew(identity):
            unknown = ClientError("whether it was written is unknown: an earlier batch had failed")
            self._report(batch, -1, unknown)
        return True

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
            with self._failures:
                self._failed_count += len(batch.records)
                self._first_failure = self._first_failure or delivery
        if self._on_delivery is not None:
            try:
                self._on_delivery(delivery)
            except Exception:  # of the caller's; the other batches go on, as in Kafka's producer
                log.exception("on_delivery failed for %s", batch.key)


_UNFIT_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


def _describe(error: Exception) -> str:
    """An error for a person: Kafka's name where it has one."""
    name = error.code.name if isinstance(error, KafkaError) else type(error).__name__
    return f"{name}: {error}" if str(error) else name
