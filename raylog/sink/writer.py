"""One task's side of a transaction: the only writer of its partition.

Batches arrive encoded, except for their producer, and are sent in the order of their sequence
numbers, from 0. The first is sent alone; after that at most five are in flight, so that the leader
recognizes any that is resent. After a retriable error or a lost connection, all unanswered batches
are resent unchanged. A task holds no other batches in memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from raylog.client.cluster import TopicPartition
from raylog.client.connection import Pending
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotConnected
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.producer.reports import describe
from raylog.client.retries import is_retriable
from raylog.client.transactions import Protocol
from raylog.sink.commit import TaskReport
from raylog.wire.api import ApiKey
from raylog.wire.compression import Codec
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raylog.wire.records import read_header, with_producer

IN_FLIGHT_MAX = 5
"""Brokers remember this many batches of a producer and partition."""
_SEQUENCE_MASK = 0x7FFFFFFF
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_ROWS_FAULT = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Errors that would recur for the same rows."""


class WriteRefused(Exception):
    """The partition's leader does not accept the rows under this identity."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message, is_final)
        self.message = message
        self.is_final = is_final
        """Whether the same rows would be refused again."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a task writes."""

    codec: Codec = Codec.NONE
    codec_level: int | None = None
    batch_bytes: int = 256 * 1024
    """Limit of a batch of several rows, estimated before compression."""
    delivery_timeout_ms: int = 120_000
    """How long one batch is retried."""


@dataclass(slots=True, eq=False)
class _Unanswered:
    """A batch in flight, or waiting to be resent."""

    encoded: bytes
    pending: Pending[ProduceResponse] | None
    """None: it could not be sent."""


@dataclass(slots=True)
class PartitionWriter:
    """Writes records to one partition, under an identity shared with the writers of others."""

    core: Core
    protocol: Protocol
    transactional_id: str
    identity: ProducerIdentity
    partition: TopicPartition
    settings: WriterSettings = field(default_factory=WriterSettings)
    count: int = 0
    """Records accepted so far."""
    _unanswered: deque[_Unanswered] = field(default_factory=deque)
    _is_known: bool = False
    """Whether the first batch is written. A leader without state of the producer accepts any batch
    as its first (version 1), so no other batch is sent before."""

    async def write(self, block: bytes) -> None:
        """Set a batch's producer and send it once there is room. Raises WriteRefused."""
        while len(self._unanswered) >= (IN_FLIGHT_MAX if self._is_known else 1):
            await self._settle()
        encoded = with_producer(
            block,
            self.identity.producer_id,
            self.identity.producer_epoch,
            self.count & _SEQUENCE_MASK,
        )
        self.count += read_header(encoded).record_count
        self._unanswered.append(_Unanswered(encoded, await self._submit(encoded)))

    async def finish(self) -> TaskReport:
        """Wait until everything is written. Raises WriteRefused."""
        while self._unanswered:
            await self._settle()
        last_sequence = (self.count - 1) & _SEQUENCE_MASK if self.count else -1
        return TaskReport(self.partition, self.count, last_sequence)

    async def _submit(self, encoded: bytes) -> Pending[ProduceResponse] | None:
        """Send one batch to the known leader; None if that fails with a retriable error."""
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=self.core.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=self.partition.topic,
                    partition_data=[
                        PartitionProduceData(index=self.partition.partition, records=encoded)
                    ],
                )
            ],
        )
        try:
            (leader,) = await self.core.by_leader([self.partition])
            at_least, at_most = self.protocol.versions[ApiKey.PRODUCE]
            return await self.core.submit(
                leader, request, ProduceResponse, at_most=at_most, at_least=at_least
            )
        except (KafkaError, ClientError) as error:
            if not is_retriable(error):
                raise WriteRefused(str(error)) from error
            return None

    async def _settle(self) -> None:
        """Wait until the first unanswered batch is written."""
        deadline_ms = self.core.io.now_ms() + self.settings.delivery_timeout_ms
        backoff = self.core.backoff()
        while True:
            refusal = await self._outcome(self._unanswered[0])
            if refusal is None:
                self._unanswered.popleft()
                self._is_known = True
                return
            if not is_retriable(refusal):
                self._give_up(refusal)
            pause_ms = backoff.next_ms()
            if self.core.io.now_ms() + pause_ms >= deadline_ms:
                raise WriteRefused(
                    f"not written in {self.settings.delivery_timeout_ms} ms: {describe(refusal)}"
                )
            await self.core.io.pause(pause_ms)
            await self._send_again()

    async def _outcome(self, batch: _Unanswered) -> Exception | None:
        """Return a batch's error; None: it is written."""
        if batch.pending is None:
            return NotConnected("the partition's leader could not be reached")
        try:
            response = await self.core.answer(batch.pending)
        except ClientError as error:
            return error
        (answer,) = response.responses[0].partition_responses
        if answer.error_code in _WRITTEN:
            return None
        text = answer.error_message or ""
        for record in answer.record_errors:
            text += f"; record {record.batch_index}: {record.batch_index_error_message}"
        return error_of(answer.error_code, text)

    async def _send_again(self) -> None:
        """Refresh the leader and resend all unanswered batches in order."""
        for batch in self._unanswered:
            if batch.pending is not None:
                await self._outcome(batch)  # otherwise an old copy could overtake the first batch
        try:
            await self.core.refresh([self.partition.topic])
        except (KafkaError, ClientError) as error:
            if not is_retriable(error):
                raise WriteRefused(str(error)) from error
        for batch in self._unanswered:
            batch.pending = await self._submit(batch.encoded)

    def _give_up(self, refusal: Exception) -> None:
        is_final = isinstance(refusal, KafkaError) and refusal.code in _ROWS_FAULT
        raise WriteRefused(describe(refusal), is_final=is_final) from refusal
