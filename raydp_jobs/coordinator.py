"""The requests of a transaction, one attempt each: what comes back is an event of the machine.

A coordinator that moved is looked for again by the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.client.admin.groups import CommittedOffset, GroupAdmin
from raylog.client.admin.transactions import TransactionAdmin
from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.core import Core
from raylog.client.errors import ClientError, ConnectionLost, NotSupported
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.raydp_jobs.batches import UNKNOWN_CLUSTER
from raylog.raydp_jobs.commit import (
    AddOffsets,
    AnswerLost,
    CheckRegistration,
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
    ReadState,
    Refused,
    Register,
    Registered,
    RegistrationChecked,
    StateRead,
    StateWritten,
    TakeIdentity,
    TaskReport,
    WriteState,
)
from raylog.raydp_jobs.continuity import state_of
from raylog.raydp_jobs.marks import GroupMarks, group_marks
from raylog.raydp_jobs.protocol import Protocol
from raylog.raydp_jobs.sink_state import SinkState
from raylog.raydp_jobs.state_topic import StateTopic
from raylog.raydp_jobs.writer import PartitionWriter, WriteRefused, WriterSettings
from raylog.wire.api import ApiKey
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
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
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
_OFFSETS_AT_ONCE = 1_000
"""Coordinators write those of one request as one batch, which `max.message.bytes` bounds."""
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


@dataclass(slots=True)
class Transactions:
    """Requests about one transactional id, its state, and the group that holds its offsets."""

    core: Core
    protocol: Protocol
    transactional_id: str
    group_id: str
    states: StateTopic
    topics: Sequence[str]
    """The sink's. Their first partitions may carry marks of version 1."""
    writer: WriterSettings = field(default_factory=WriterSettings)
    """How the state is written."""
    _coordinators: dict[KeyType, Coordinators] = field(default_factory=dict)

    async def carry_out(
        self, effect: Effect, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Event:
        """Carry out an effect that is a request; `offsets` are what CommitOffsets says.

        Raises BatchFailed for a state topic that cannot be used, or read.
        """
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

    async def settle(
        self, effect: Effect, offsets: Mapping[TopicPartition, CommittedOffset] | None = None
    ) -> Event:
        """Carry out a request until it succeeds, outside of any batch; raises what stays."""

        async def attempt() -> Event:
            match event := await self.carry_out(effect, offsets or {}):
                case Refused(code, reason):
                    raise error_of(code, reason)
                case AnswerLost(reason):
                    raise ConnectionLost(reason)
                case _:
                    return event

        return await self.core.repeat(attempt)

    async def cluster_id(self) -> str:
        """Of the cluster that the sink writes to."""
        if self.core.cluster.cluster_id is None:
            await self.core.repeat(lambda: self.core.refresh([]))
        return self.core.cluster.cluster_id or UNKNOWN_CLUSTER

    async def _request(
        self, effect: Effect, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Event:
        match effect:
            case CheckRegistration():
                return RegistrationChecked(await self._is_new())
            case Register():
                _, produce_version = self.protocol.versions[ApiKey.PRODUCE]
                await self.states.register(produce_version)
                return Registered()
            case TakeIdentity(timeout_ms):
                return Identified(await self._take_identity(timeout_ms))
            case ReadState():
                return StateRead(await self._read_state())
            case Compare(identity, partitions):
                return Compared(await self._last_sequences(identity, partitions))
            case WriteState(identity, state):
                return StateWritten(await self._write_state(identity, state))
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

    async def _is_new(self) -> bool:
        """Whether neither the state topic nor the coordinator knows the sink."""
        await self.states.prepare()
        if await self.states.is_known():
            return False
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        response = await self._ask(KeyType.TRANSACTION, request, DescribeTransactionsResponse)
        (told,) = response.transaction_states
        if told.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return True
        _check(told.error_code, self.transactional_id)
        return False

    async def _read_state(self) -> SinkState:
        """The sink's state once no transaction is about to change it; raises StateLost.

        The marks are read first: what another driver commits meanwhile is then missing in them, and
        not in the state, as if that were lost.
        """
        marks = await self.read_marks()
        state, is_registered = await self.states.read()
        return state_of(state, is_registered=is_registered, marks=marks, topics=self.topics)

    async def read_marks(self) -> GroupMarks:
        """The marks in the group's offsets, once no transaction is about to change them.

        Who asks for all is told nothing of partitions that only have pending offsets; so those
        that may carry a mark are asked for by name first.
        """
        groups = GroupAdmin(self.core)
        marked = [TopicPartition(topic, 0) for topic in self.topics]
        await groups.group_offsets(self.group_id, marked, require_stable=True)
        return group_marks(await groups.group_offsets(self.group_id, require_stable=True))

    async def _write_state(self, identity: ProducerIdentity, state: SinkState) -> TaskReport:
        """Write the state in the transaction; no other writer has its partition."""
        key = await self.states.partition()
        if self.protocol.registers:
            await add_partition(
                self.core, self.protocol, self.transactional_id, identity, key, self._coordinators
            )
        writer = PartitionWriter(
            self.core, self.protocol, self.transactional_id, identity, key, self.writer
        )
        try:
            for batch in self.states.batches(state):
                await writer.write(batch)
            return await writer.finish()
        except WriteRefused as refusal:
            return TaskReport(key, 0, -1, refusal.message, is_final=refusal.is_final)

    async def _take_identity(self, timeout_ms: int) -> ProducerIdentity:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = await self._ask(KeyType.TRANSACTION, request, InitProducerIdResponse)
        _check(response.error_code, self.transactional_id)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

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
        keys = list(offsets)
        for first in range(0, len(keys), _OFFSETS_AT_ONCE):
            some = by_topic(keys[first : first + _OFFSETS_AT_ONCE])
            request = TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=self.group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=topic, partitions=[_offset(key, offsets[key]) for key in of_topic]
                    )
                    for topic, of_topic in some.items()
                ],
            )
            response = await self._ask(KeyType.GROUP, request, TxnOffsetCommitResponse)
            for answered in response.topics:
                for partition in answered.partitions:
                    told = f"{answered.name}-{partition.partition_index}"
                    _check(partition.error_code, told)

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
        key = self.group_id if kind is KeyType.GROUP else self.transactional_id
        return await _ask(
            self.core, self.protocol, self._coordinators, (kind, key), request, expected
        )


async def _ask(
    core: Core,
    protocol: Protocol,
    known: dict[KeyType, Coordinators],
    coordinated: tuple[KeyType, str],
    request: object,
    expected: type[R],
) -> R:
    kind, key = coordinated
    coordinators = known.setdefault(kind, Coordinators(core, kind))
    node_id = (await coordinators.find([key]))[key]
    return await protocol.ask(core, node_id, request, expected, REQUEST_TIMEOUT_MS)


async def add_partition(
    core: Core,
    protocol: Protocol,
    transactional_id: str,
    identity: ProducerIdentity,
    key: TopicPartition,
    known: dict[KeyType, Coordinators] | None = None,
) -> None:
    """AddPartitionsToTxn, repeated while it is refused for now (version 1 alone)."""
    coordinators = {} if known is None else known
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=key.topic, partitions=[key.partition])],
    )
    coordinated = (KeyType.TRANSACTION, transactional_id)

    async def attempt() -> None:
        try:
            response = await _ask(
                core, protocol, coordinators, coordinated, request, AddPartitionsToTxnResponse
            )
            for topic in response.results_by_topic_v3_and_below:
                for answer in topic.results_by_partition:
                    _check(answer.partition_error_code, f"AddPartitionsToTxn of {key}")
        except (KafkaError, ClientError):
            coordinators.clear()
            raise

    await core.repeat(attempt)


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
