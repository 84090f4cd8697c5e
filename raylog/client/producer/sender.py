"""Sends batches; retries or reports them when answers come.

Produce v3-13: topics have ids from v13 on (KIP-516), errors name the new leader from v10 on
(KIP-951). Batches of a transaction are sent once their partitions were added to it, and given up
if it cannot be committed (transactional.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.client.cluster import TopicPartition
from raylog.client.connection import Pending
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotConnected, NotKafka, RequestTimedOut
from raylog.client.producer.accumulator import Accumulator
from raylog.client.producer.batch import NO_IDENTITY, Batch, ProducerIdentity
from raylog.client.producer.reports import Reports, describe
from raylog.client.refusals import check
from raylog.client.retries import code_of, is_retriable
from raylog.client.routes import Routes
from raylog.client.settings import ProducerSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raylog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from raylog.client.producer.transactional import Transactions

_BY_NAME_LAST = 12
"""Newest Produce version that identifies topics by name instead of id."""
_REQUEST_BYTES = 1024 * 1024
"""Batches of several partitions share a request up to this size."""
_IDLE_LOOK_MS = 50.0
_EPOCH_MAX = 32_767
_UNFIT_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


_NOT_WRITTEN = (
    *_UNFIT_SEQUENCE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.MESSAGE_TOO_LARGE,
)
"""Retriable errors that leaders return before they append a batch.

Other errors may follow the append: a leader that loses its leadership while it waits for followers
answers NOT_LEADER_OR_FOLLOWER."""


@dataclass(slots=True)
class _Sent:
    """A produce request in flight."""

    pending: Pending[ProduceResponse]
    node_id: int
    batches: dict[tuple[str | bytes, int], Batch]
    """By (name or id of the topic, partition), without those given up since."""
    due_ms: float = float("inf")
    """When the first of them expires."""

    def expire(self, now_ms: float, timeout_ms: float) -> list[Batch]:
        """Remove and return the expired batches; their answers will be ignored."""
        if now_ms < self.due_ms:
            return []
        expired = []
        self.due_ms = float("inf")
        for place, batch in list(self.batches.items()):
            due_ms = batch.due_ms(timeout_ms, batch.drained_ms)
            if due_ms <= now_ms:
                expired.append(self.batches.pop(place))
            else:
                self.due_ms = min(self.due_ms, due_ms)
        return expired


class Sender:
    """Sends a producer's batches. Not safe for concurrent tasks."""

    def __init__(
        self,
        core: Core,
        settings: ProducerSettings,
        accumulator: Accumulator,
        reports: Reports,
        transactions: Transactions | None,
    ) -> None:
        self._core = core
        self._settings = settings
        self._accumulator = accumulator
        self._reports = reports
        self._transactions = transactions
        self._sent: list[_Sent] = []
        self._routes = Routes(core)
        self._last_refusal: Exception | None = None
        """The last error that caused a retry, unless a batch was acknowledged since."""
        self._busy_since_ms: dict[int, float] = {}
        """Brokers with ready batches that cannot be sent a request now, and since when."""

    @property
    def refusal(self) -> str | None:
        """Why unacknowledged batches are retried; None if not known."""
        last = self._last_refusal
        return None if last is None else f"the last attempt failed: {describe(last)}"

    def avoided(self) -> list[int]:
        """Return brokers that accepted nothing for `partitioner_availability_timeout_ms`."""
        timeout_ms = self._settings.partitioner_availability_timeout_ms
        if timeout_ms <= 0 or not self._busy_since_ms:
            return []
        oldest_ms = self._core.io.now_ms() - timeout_ms
        busy = tuple(self._busy_since_ms.items())
        return [node_id for node_id, since_ms in busy if since_ms < oldest_ms]

    async def step(self, *, everything: bool) -> None:
        """Process the answers that have arrived, then send what is ready, or everything.

        Batches that have been unacknowledged for `delivery_timeout_ms` are given up only
        afterwards, so that none expires untried just because this was not called for a long time.
        """
        await self._core.io.wait(self._any_done, 0)
        self._routes.has_news = False
        self._collect()
        await self._send_ready(0.0 if everything else self._settings.linger_ms)
        self._expire()
        self._forget_busy()

    async def wait(
        self,
        deadline_ms: float,
        *,
        everything: bool,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until an answer arrives or a batch may be sent."""
        linger_ms = 0.0 if everything else self._settings.linger_ms
        now_ms = self._core.io.now_ms()
        next_ms = self._accumulator.next_ready_ms(linger_ms)
        if next_ms <= now_ms and (self._sent or self._routes.is_waiting):
            next_ms = now_ms + _IDLE_LOOK_MS  # ready batches wait for an answer
        expiry_ms = self._accumulator.next_expiry_ms(self._settings.delivery_timeout_ms)
        in_flight_due_ms = min((sent.due_ms for sent in self._sent), default=float("inf"))
        await self._core.wait_for(
            lambda: self._any_done() or self._routes.has_news or interrupted(),
            min(deadline_ms, next_ms, expiry_ms, in_flight_due_ms),
        )

    def forget(self, topics: Collection[str]) -> None:
        """Forget topics to which nothing was sent for a long time."""
        self._routes.forget(topics)

    def abandon(self, reason: Exception, *, for_good: bool) -> None:
        """Give up all batches; it stays unknown whether those in flight were written."""
        self._sent.clear()
        given_up = self._accumulator.unanswered()
        for batch in given_up:
            self._accumulator.failed(batch)
        given_up += self._accumulator.give_up()
        if for_good:
            given_up += self._accumulator.close()
            self._routes.close()
        if given_up and self._transactions is not None:
            self._transactions.state.batch_failed(reason)
        for batch in given_up:
            self._reports.failed(batch, reason)

    # -- out -----------------------------------------------------------------------------------

    async def _send_ready(self, linger_ms: float) -> None:
        if not await self._may_send(linger_ms):
            return
        now_ms = self._core.io.now_ms()
        ready = self._accumulator.ready(now_ms, linger_ms)
        if self._transactions is not None:
            ready = self._transactions.held(ready)  # others became ready meanwhile
        await self._routes.refresh({key.topic for key in ready})
        for node_id, keys in self._by_leader(ready).items():
            if await self._may_send_to(node_id, keys):
                self._busy_since_ms.pop(node_id, None)
                self._routes.reached(keys)
                await self._send(node_id, self._accumulator.drain(keys, self._request_bytes))
            else:
                self._busy_since_ms.setdefault(node_id, now_ms)

    def _forget_busy(self) -> None:
        """Forget busy brokers without waiting batches: they would be avoided for ever."""
        if self._busy_since_ms and self._settings.partitioner_availability_timeout_ms > 0:
            waited_for = {self._leader_of(key) for key in self._accumulator.waiting_keys()}
            for node_id in self._busy_since_ms.keys() - waited_for:
                del self._busy_since_ms[node_id]

    def _leader_of(self, key: TopicPartition) -> int | None:
        try:
            return self._core.cluster.leader_of(key)
        except KafkaError:
            return None

    async def _may_send_to(self, node_id: int, keys: list[TopicPartition]) -> bool:
        """Whether a broker can be sent a request now; if not, make its partitions wait or fail."""
        in_flight = sum(sent.node_id == node_id for sent in self._sent)
        if in_flight >= self._settings.in_flight_max:
            return False
        try:
            if await self._routes.reach(node_id):
                return True
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                for batch in self._accumulator.drain(keys, self._request_bytes):
                    self._refuse(batch, error)
                return False
            self._last_refusal = error
            for key in keys:
                self._postpone(key)
        else:
            self._accumulator.hold_up(keys)
        return False

    def _postpone(self, key: TopicPartition) -> None:
        """Back off from a partition and refresh its leader, which may have moved."""
        self._routes.mark_stale(key.topic)
        self._accumulator.postpone(key, self._routes.retry_at_ms(key))

    @property
    def _request_bytes(self) -> int:
        return min(_REQUEST_BYTES, self._settings.record_bytes_max)

    async def _may_send(self, linger_ms: float) -> bool:
        """Whether batches may be sent now, after preparing for it; may give up all batches."""
        if self._transactions is None:
            return not self._accumulator.needs_identity or await self._renew_identity()
        if self._transactions.state.gives_up is None:
            ready = self._accumulator.ready(self._core.io.now_ms(), linger_ms)
            if ready:
                await self._transactions.add_partitions(ready)
        reason = self._transactions.state.gives_up
        if reason is None:
            return True
        for batch in self._accumulator.give_up():
            self._reports.failed(batch, reason)
        return False

    def _by_leader(self, keys: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader; back off from those without one."""
        grouped: dict[int, list[TopicPartition]] = {}
        for key in keys:
            try:
                grouped.setdefault(self._core.cluster.leader_of(key), []).append(key)
            except KafkaError as error:
                self._last_refusal = error
                self._postpone(key)
        return grouped

    async def _send(self, node_id: int, batches: list[Batch]) -> None:
        """Send one request; batches that cannot be sent are treated as refused."""
        acks = self._settings.acks
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
                if isinstance(error, NotConnected):
                    batch.attempts -= 1  # it was not sent
                self._refuse(batch, error)
            return
        self._reports.request_count += 1
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
        due_ms = min(map(self._due_ms, batches))
        self._sent.append(_Sent(pending, node_id, expected, due_ms))

    def _request(self, batches: list[Batch]) -> tuple[ProduceRequest, int | None]:
        """Return a request with one batch per partition, and the newest version it may use."""
        settings = self._settings
        is_transactional = self._transactions is not None
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name = batch.key.topic
            if name not in topics:
                topic_id = self._core.cluster.topic(name).topic_id
                topics[name] = TopicProduceData(name=name, topic_id=topic_id)
            records = batch.encode(
                settings.codec, settings.codec_level, is_transactional=is_transactional
            )
            topics[name].partition_data.append(
                PartitionProduceData(index=batch.key.partition, records=records)
            )
        request = ProduceRequest(
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=self._core.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        if self._transactions is not None and self._transactions.protocol.registers:
            return request, self._transactions.protocol.versions[ApiKey.PRODUCE][1]
        is_by_id = all(topic.topic_id != ZERO_UUID for topic in topics.values())
        return request, None if is_by_id else _BY_NAME_LAST

    # -- answers -------------------------------------------------------------------------------

    def _any_done(self) -> bool:
        return any(sent.pending.done for sent in self._sent)

    def _collect(self) -> None:
        """Process all answers that have arrived."""
        for sent in [sent for sent in self._sent if sent.pending.done]:
            self._sent.remove(sent)
            try:
                response = sent.pending.result()
            except ClientError as error:
                self._lose(sent.batches.values(), error)
                continue
            for topic in response.responses:
                name = topic.topic_id if sent.pending.version > _BY_NAME_LAST else topic.name
                for answer in topic.partition_responses:
                    if (name, answer.index) in sent.batches:  # else not asked about
                        self._take(sent.batches.pop((name, answer.index)), answer)
            for batch in sent.batches.values():
                self._lose([batch], NotKafka(f"the broker left {batch.key} unanswered"))

    def _lose(self, batches: Iterable[Batch], error: ClientError) -> None:
        """Handle batches that will not be answered."""
        for batch in batches:
            batch.may_be_written = True
            self._refuse(batch, error)

    def _take(self, batch: Batch, answer: PartitionProduceResponse) -> None:
        """Process the answer for one partition."""
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(batch, answer.base_offset, answer.log_append_time_ms)
            return
        leader = answer.current_leader
        if leader is not None:
            self._core.cluster.moved(batch.key, leader.leader_id, leader.leader_epoch)
        batch.may_be_written |= code not in _NOT_WRITTEN
        self._refuse(batch, error_of(code, answer.error_message or str(batch.key)))

    def _acknowledge(self, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
        self._accumulator.acknowledged(batch)
        self._last_refusal = None
        self._reports.acknowledged(batch, base_offset, append_time_ms)

    def _refuse(self, batch: Batch, error: Exception) -> None:
        """Retry a batch, split it, or give it up."""
        again_ms = self._core.io.now_ms() + self._core.backoff(batch.attempts - 1).next_ms()
        code = code_of(error)
        if self._core.io.now_ms() >= self._due_ms(batch):
            self._fail(batch, error)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._reports.split_count += 1
            self._accumulator.split(batch)
        elif batch.attempts > self._settings.retries:
            self._fail(batch, error)
        elif code in _UNFIT_SEQUENCE:
            self._refuse_sequence(batch, error, again_ms)
        elif is_retriable(error):
            self._routes.mark_stale(batch.key.topic)
            self._accumulator.refused(batch, again_ms)
            self._reports.retry_count += 1
            self._last_refusal = error
        else:
            self._fail(batch, error)

    def _refuse_sequence(self, batch: Batch, error: Exception, again_ms: float) -> None:
        """Handle an unexpected sequence number: an earlier batch may not be settled yet."""
        if self._accumulator.follows_unsettled(batch):
            self._accumulator.refused(batch, again_ms)
        elif self._transactions is None and not batch.is_of_unknown:
            self._accumulator.resequence(batch, again_ms)
        else:
            self._fail(batch, error)  # it may be written, or its transaction allows no new identity
            return
        self._reports.retry_count += 1

    def _fail(self, batch: Batch, error: Exception) -> None:
        self._accumulator.failed(batch)
        self._reports.failed(batch, error)
        if self._transactions is not None:
            self._transactions.state.batch_failed(error)

    def _due_ms(self, batch: Batch) -> float:
        """Return when a batch that was sent expires."""
        return batch.due_ms(self._settings.delivery_timeout_ms, batch.drained_ms)

    def _expire(self) -> None:
        """Give up batches that were not acknowledged in time, in flight or not, as Kafka does."""
        now_ms, timeout_ms = self._core.io.now_ms(), self._settings.delivery_timeout_ms
        expired = self._accumulator.expire(now_ms, timeout_ms)
        for sent in self._sent:
            in_flight = sent.expire(now_ms, timeout_ms)
            for batch in in_flight:
                self._accumulator.failed(batch)
            expired += in_flight
        for batch in expired:
            error = RequestTimedOut(
                f"not acknowledged in {self._settings.delivery_timeout_ms} ms, "
                f"sent {batch.attempts} times{f'; {self.refusal}' if self.refusal else ''}"
            )
            self._reports.failed(batch, error)
            if self._transactions is not None:
                self._transactions.state.batch_failed(error)

    async def _renew_identity(self) -> bool:
        """Take the next epoch or a new producer id; return False if none can be had yet.

        Sequences then restart. Once a batch of the next epoch is written, brokers reject batches of
        the old epoch that were given up but are still in flight (KIP-360).
        """
        current = self._accumulator.identity
        if current != NO_IDENTITY and current.producer_epoch < _EPOCH_MAX:
            self._take_identity(ProducerIdentity(current.producer_id, current.producer_epoch + 1))
            return True

        async def attempt() -> ProducerIdentity:
            response = await self._core.ask(
                await self._core.any_node(),
                InitProducerIdRequest(
                    transactional_id=None,
                    transaction_timeout_ms=self._core.settings.request_timeout_ms,
                ),
                InitProducerIdResponse,
            )
            check(response.error_code, ApiKey.INIT_PRODUCER_ID.name)
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        timeout_ms = min(self._settings.max_block_ms, self._settings.delivery_timeout_ms)
        try:
            identity = await self._core.repeat(attempt, timeout_ms=timeout_ms)
        except (ClientError, KafkaError) as error:
            if not is_retriable(error):
                raise
            self._accumulator.hold_up()
            return False
        self._take_identity(identity)
        return True

    def _take_identity(self, identity: ProducerIdentity) -> None:
        for batch in self._accumulator.renew(identity):
            unknown = ClientError("whether it was written is unknown: an earlier batch had failed")
            self._reports.failed(batch, unknown)
