"""A sink's requests, one attempt each: each outcome is an event of the machine.

If a coordinator has moved, the next attempt looks it up again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from raylog.client.admin.groups import CommittedOffset, GroupAdmin
from raylog.client.admin.transactions import TransactionAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.core import Core
from raylog.client.errors import ClientError, ConnectionLost, NotSupported
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.refusals import refusal
from raylog.client.transactions import FEATURE, Protocol, TransactionRequests, protocol_for
from raylog.sink.batches import UNKNOWN_CLUSTER
from raylog.sink.commit import (
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
from raylog.sink.continuity import state_of
from raylog.sink.marks import GroupMarks, group_marks
from raylog.sink.state import SinkState
from raylog.sink.state_topic import StateTopic
from raylog.sink.writer import PartitionWriter, WriteRefused, WriterSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError, TransactionalIdNotFound, error_of
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

_OFFSETS_AT_ONCE = 1_000
"""A coordinator writes a request's offsets as one batch, limited by `max.message.bytes`."""
_LEADER_EPOCHS_SINCE = 2


@dataclass(slots=True)
class SinkRequests:
    """The requests of one sink: for its transactional id, its state and its group's offsets."""

    core: Core
    protocol: Protocol
    transactional_id: str
    group_id: str
    states: StateTopic
    topics: Sequence[str]
    """The sink's topics. Their first partitions may have marks of version 1."""
    writer: WriterSettings = field(default_factory=WriterSettings)
    """How the state is written."""
    transaction: TransactionRequests = field(init=False)

    def __post_init__(self) -> None:
        self.transaction = TransactionRequests(
            self.core, self.protocol, self.transactional_id, timeout_ms=0
        )

    async def carry_out(
        self, effect: Effect, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Event:
        """Send the request of an effect; `offsets` are for CommitOffsets.

        Raises BatchFailed if the state topic cannot be used or read.
        """
        try:
            return await self._request(effect, offsets)
        except NotSupported:
            raise
        except KafkaError as error:
            return Refused(error.code, error.message)
        except ClientError as loss:
            return AnswerLost(f"{type(effect).__name__}: {loss}")

    async def settle(
        self, effect: Effect, offsets: Mapping[TopicPartition, CommittedOffset] | None = None
    ) -> Event:
        """Repeat a request until it succeeds, outside of any batch; raise the last failure."""

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
        """Return the id of the cluster that the sink writes to."""
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
                return Identified(await self.transaction.init_producer_id(timeout_ms))
            case ReadState():
                return StateRead(await self._read_state())
            case Compare(identity, partitions):
                return Compared(await self._last_sequences(identity, partitions))
            case WriteState(identity, state):
                return StateWritten(await self._write_state(identity, state))
            case AddOffsets(identity):
                await self.transaction.add_offsets(identity, self.group_id)
                return OffsetsAdded()
            case CommitOffsets(identity):
                await self._commit_offsets(identity, offsets)
                return OffsetsCommitted()
            case End(identity):
                return Ended(await self.transaction.end(identity, commit=True))
            case _:
                raise AssertionError(f"{type(effect).__name__} is no request")

    async def _is_new(self) -> bool:
        """Return whether neither the state topic nor the coordinator has the sink."""
        await self.states.prepare()
        if await self.states.is_known():
            return False
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        try:
            await self.transaction.ask(request, DescribeTransactionsResponse, _described)
        except TransactionalIdNotFound:
            return True
        return False

    async def _read_state(self) -> SinkState:
        """Return the sink's state once no transaction can change it; raise StateLost.

        Marks are read first. Otherwise, if another driver committed in between, the marks could
        show a batch that the state read earlier lacks, which would look like a lost state.
        """
        marks = await self.read_marks()
        state, is_registered = await self.states.read()
        return state_of(state, is_registered=is_registered, marks=marks, topics=self.topics)

    async def read_marks(self) -> GroupMarks:
        """Return the marks in the group's offsets, once no transaction can change them.

        A request for all offsets omits partitions that only have pending ones, so partitions that
        may have a mark are requested by name first.
        """
        groups = GroupAdmin(self.core)
        marked = [TopicPartition(topic, 0) for topic in self.topics]
        await groups.group_offsets(self.group_id, marked, require_stable=True)
        return group_marks(await groups.group_offsets(self.group_id, require_stable=True))

    async def _write_state(self, identity: ProducerIdentity, state: SinkState) -> TaskReport:
        """Write the state in the transaction; no other writer has its partition."""
        key = await self.states.partition()
        if self.protocol.registers:
            await self.transaction.add_partitions(identity, [key])
        writer = PartitionWriter(
            self.core, self.protocol, self.transactional_id, identity, key, self.writer
        )
        try:
            for batch in self.states.batches(state):
                await writer.write(batch)
            return await writer.finish()
        except WriteRefused as refusal:
            return TaskReport(key, 0, -1, refusal.message, is_final=refusal.is_final)

    async def _last_sequences(
        self, identity: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return this identity's last sequence by partition, from the leaders."""
        await self.core.refresh({key.topic for key in partitions})  # followers would answer, too
        producers_by_partition = await TransactionAdmin(self.core).describe_producers(partitions)
        return {
            key: one.last_sequence
            for key, producers in producers_by_partition.items()
            for one in producers
            if (one.producer_id, one.producer_epoch) == identity
        }

    async def _commit_offsets(
        self, identity: ProducerIdentity, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        group = GroupMetadata(self.group_id)
        keys = list(offsets)
        for first in range(0, len(keys), _OFFSETS_AT_ONCE):
            some = {key: offsets[key] for key in keys[first : first + _OFFSETS_AT_ONCE]}
            await self.transaction.commit_offsets(identity, some, group)


async def choose_protocol(core: Core) -> Protocol:
    """Return the transaction protocol of the cluster's finalized features; any broker has them.

    A sink's offsets have leader epochs, which TxnOffsetCommit supports from version 2 on.
    """
    await core.repeat(lambda: core.refresh([]))
    protocol = protocol_for(core.feature_level(FEATURE))
    first, last = protocol.versions[ApiKey.TXN_OFFSET_COMMIT]
    bounds = {ApiKey.TXN_OFFSET_COMMIT: (max(first, _LEADER_EPOCHS_SINCE), last)}
    return replace(protocol, versions={**protocol.versions, **bounds})


def _described(response: DescribeTransactionsResponse) -> KafkaError | None:
    (state,) = response.transaction_states
    return refusal(state.error_code, state.transactional_id)
