"""The requests of a transaction, one attempt each: what comes back is an event of the machine.

A coordinator that moved is looked for again by the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.client.accumulator import ProducerIdentity
from raylog.client.cluster import TopicPartition
from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.core import Core
from raylog.client.errors import ClientError, ConnectionLost, NotSupported
from raylog.client.groups import CommittedOffset, GroupAdmin
from raylog.client.offsets import by_topic
from raylog.client.transactions import TransactionAdmin
from raylog.raydp_jobs.commit import (
    AddOffsets,
    AnswerLost,
    CommitOffsets,
    Compare,
    Compared,
    Effect,
    End,
    Ended,
    Event,
    Identified,
    OffsetsAdded,
    OffsetsCommitted,
    OffsetsRead,
    ReadOffsets,
    Refused,
    TakeIdentity,
)
from raylog.raydp_jobs.protocol import Protocol
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from raylog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

R = TypeVar("R")

REQUEST_TIMEOUT_MS = 30_000.0
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


@dataclass(slots=True)
class Transactions:
    """Requests about one transactional id and the group that holds its offsets."""

    core: Core
    protocol: Protocol
    transactional_id: str
    group_id: str
    marked: TopicPartition
    """Carries the mark: every transaction commits an offset of it."""
    _coordinators: dict[KeyType, Coordinators] = field(default_factory=dict)

    async def carry_out(
        self, effect: Effect, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Event:
        """Carry out an effect that is a request; `offsets` are what CommitOffsets says."""
        try:
            return await self._request(effect, offsets)
        except NotSupported:
            raise
        except KafkaError as refusal:
            if refusal.code in _MOVED:
                self._coordinators.clear()
            return Refused(refusal.code, refusal.message)
        except ClientError as loss:
            self._coordinators.clear()
            return AnswerLost(f"{type(effect).__name__}: {loss}")

    async def settle(self, effect: TakeIdentity | ReadOffsets) -> Event:
        """Carry out a request until it succeeds, outside of any batch; raises what stays."""

        async def attempt() -> Event:
            match event := await self.carry_out(effect, {}):
                case Refused(code, reason):
                    raise error_of(code, reason)
                case AnswerLost(reason):
                    raise ConnectionLost(reason)
                case _:
                    return event

        return await self.core.repeat(attempt)

    async def _request(
        self, effect: Effect, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Event:
        match effect:
            case TakeIdentity(timeout_ms):
                return Identified(await self._take_identity(timeout_ms))
            case ReadOffsets():
                return OffsetsRead(await self._read_offsets())
            case Compare(identity, partitions):
                return Compared(await self._last_sequences(identity, partitions))
            case AddOffsets(identity):
                await self._add_offsets(identity)
                return OffsetsAdded()
            case CommitOffsets(identity):
                await self._commit_offsets(identity, offsets)
                return OffsetsCommitted()
            case End(identity):
                return Ended(await self._end(identity))
            case _:
                raise AssertionError(f"{type(effect).__name__} is no request")

    async def add_partition(self, identity: ProducerIdentity, key: TopicPartition) -> None:
        """AddPartitionsToTxn, repeated while it is refused for now (version 1 alone)."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=key.topic, partitions=[key.partition])
            ],
        )

        async def attempt() -> None:
            try:
                response = await self._ask(KeyType.TRANSACTION, request, AddPartitionsToTxnResponse)
                for topic in response.results_by_topic_v3_and_below:
                    for answer in topic.results_by_partition:
                        _check(answer.partition_error_code, f"AddPartitionsToTxn of {key}")
            except (KafkaError, ClientError):
                self._coordinators.clear()
                raise

        await self.core.repeat(attempt)

    async def _take_identity(self, timeout_ms: int) -> ProducerIdentity:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = await self._ask(KeyType.TRANSACTION, request, InitProducerIdResponse)
        _check(response.error_code, self.transactional_id)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def _read_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """All offsets, once no transaction is about to change them.

        Who asks for all is told nothing of partitions that only have pending offsets; so the
        partition that is in every transaction is asked for by name first.
        """
        groups = GroupAdmin(self.core)
        await groups.group_offsets(self.group_id, [self.marked], require_stable=True)
        return await groups.group_offsets(self.group_id, require_stable=True)

    async def _last_sequences(
        self, identity: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """What the leaders hold of this identity."""
        await self.core.refresh({key.topic for key in partitions})  # followers answer, too
        told = await TransactionAdmin(self.core).describe_producers(partitions)
        return {
            key: one.last_sequence
            for key, producers in told.items()
            for one in producers
            if (one.producer_id, one.producer_epoch) == identity
        }

    async def _add_offsets(self, identity: ProducerIdentity) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=self.group_id,
        )
        response = await self._ask(KeyType.TRANSACTION, request, AddOffsetsToTxnResponse)
        _check(response.error_code, f"group {self.group_id!r}")

    async def _commit_offsets(
        self, identity: ProducerIdentity, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[_offset(key, offsets[key]) for key in keys]
                )
                for topic, keys in by_topic(offsets).items()
            ],
        )
        response = await self._ask(KeyType.GROUP, request, TxnOffsetCommitResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                _check(partition.error_code, f"{topic.name}-{partition.partition_index}")

    async def _end(self, identity: ProducerIdentity) -> ProducerIdentity:
        """Commit; version 1 answers no identity, and the next batch takes one."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=True,
        )
        response = await self._ask(KeyType.TRANSACTION, request, EndTxnResponse)
        _check(response.error_code, self.transactional_id)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def _ask(self, kind: KeyType, request: object, expected: type[R]) -> R:
        """Ask a coordinator in the sink's version."""
        coordinators = self._coordinators.setdefault(kind, Coordinators(self.core, kind))
        key = self.group_id if kind is KeyType.GROUP else self.transactional_id
        node_id = (await coordinators.find([key]))[key]
        return await self.protocol.ask(self.core, node_id, request, expected, REQUEST_TIMEOUT_MS)


def _offset(key: TopicPartition, offset: CommittedOffset) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=key.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _check(code: int, text: str) -> None:
    if code != ErrorCode.NONE:
        raise error_of(code, text)
