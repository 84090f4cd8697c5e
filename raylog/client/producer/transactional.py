"""A transactional producer's requests to coordinators (KIP-98), in both versions of transactions.

| | version 1 | version 2 (KIP-890) |
|---|---|---|
| partitions | AddPartitionsToTxn 0-3 before a first batch | Produce 12 adds them |
| offsets | AddOffsetsToTxn, then TxnOffsetCommit 0-4 | TxnOffsetCommit 5 adds them |
| epoch | raised by InitProducerId, after lost batches | each EndTxn 5 tells the next identity |

Version 2 is spoken where the cluster's feature `transaction.version` is 2 or more; that is looked
at when a transaction begins. Retriable refusals and lost answers are repeated for `max_block_ms`:
all these requests may come twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from raylog.client.cluster import CommittedOffset, TopicPartition, by_topic
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import (
    Coordinators,
    KeyType,
    ask_coordinator,
    coordinator_version,
)
from raylog.client.core import Core, is_retriable
from raylog.client.errors import ClientError, NotSupported
from raylog.client.matching import answers_to
from raylog.client.producer.accumulator import NO_IDENTITY, ProducerIdentity
from raylog.client.producer.transaction_state import TransactionState
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, InvalidProducerIdMapping, KafkaError, error_of
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
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

_FEATURE = "transaction.version"
_ADD_PARTITIONS_LAST = 3
"""Newest AddPartitionsToTxn version for clients."""
_OFFSETS_OF_VERSION_1_LAST = 4
_END_OF_VERSION_1_LAST = 4
_RAISES_EPOCH_SINCE = 3
"""InitProducerId version that lets a producer go on with its id (KIP-360)."""


class Transactions:
    """One producer's transactions. `add_partitions` apart, nothing is on its way during a call."""

    def __init__(
        self,
        core: Core,
        transactional_id: str,
        *,
        timeout_ms: int,
        max_block_ms: int,
        renew: Callable[[ProducerIdentity], object],
    ) -> None:
        """`renew` gives later batches an identity, with sequences from 0."""
        self.transactional_id = transactional_id
        self.state = TransactionState()
        self.is_version_2 = False
        self._core = core
        self._timeout_ms = timeout_ms
        self._max_block_ms = max_block_ms
        self._renew = renew
        self._identity = NO_IDENTITY
        self._own = Coordinators(core, KeyType.TRANSACTION)
        self._groups = Coordinators(core)

    async def initialize(self) -> None:
        """Take the transactional id over: fences its other producers, ends what they left open."""
        self.state.begin_initializing()
        await self._init_producer_id(NO_IDENTITY)
        self.state.initialized()

    def begin(self) -> None:
        """Begin a transaction, of the version that the cluster has now."""
        self.state.begin()
        self.is_version_2 = self._core.feature_level(_FEATURE) >= 2

    async def add_partitions(self, keys: Iterable[TopicPartition]) -> None:
        """Have the open transaction hold partitions before they are written to.

        Where it fails the state says what is left.
        """
        if self.is_version_2:
            self.state.is_started = True
            return
        new = sorted(set(keys) - self.state.partitions)
        if new and await self._added(self._add_partitions(new)):
            self.state.partitions.update(new)

    def held(self, keys: list[TopicPartition]) -> list[TopicPartition]:
        """Those partitions that may be written to: `add_partitions` has seen to it."""
        if self.is_version_2:
            return keys if self.state.is_started else []
        return [key for key in keys if key in self.state.partitions]

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction; raises AbortRequired, ProducerUnusable."""
        self.state.require_open("send_offsets_to_transaction")
        if not offsets:
            return
        if self.is_version_2:
            self.state.is_started = True
        elif not await self._added(self._add_offsets(group.group_id)):
            self.state.check()
        await self._added(self._commit_offsets(offsets, group))
        self.state.check()

    async def end(self, *, commit: bool, is_worn: bool) -> None:
        """End the transaction, after `begin_end` and once no record of it is on its way.

        `is_worn` says that batches were lost, so that sequences must start anew. Raises
        AbortRequired, ProducerUnusable, or what went wrong for `max_block_ms`: then call again.
        """
        self.state.check()
        if isinstance(self.state.error, InvalidProducerIdMapping):
            await self._init_producer_id(self._identity)  # nothing is known that could be ended
        elif self.state.is_started:
            response = await self._end(commit=commit)
            if response.producer_id >= 0:
                self._take(ProducerIdentity(response.producer_id, response.producer_epoch))
            elif is_worn:
                await self._init_producer_id(self._identity)
        self.state.ended()

    # -- requests ------------------------------------------------------------------------------

    async def _init_producer_id(self, current: ProducerIdentity) -> None:
        """Get an identity; with a current one, the next epoch unless somebody else has it."""
        if current != NO_IDENTITY:
            await self._require_epochs()
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
        )
        response = await self._decided(
            self._ask(self._own, self.transactional_id, request, InitProducerIdResponse, _code)
        )
        self._take(ProducerIdentity(response.producer_id, response.producer_epoch))

    async def _require_epochs(self) -> None:
        """Raise unless a producer can raise its epoch; without it, nobody else would be noticed."""
        version = await coordinator_version(
            self._core, self._own, self.transactional_id, ApiKey.INIT_PRODUCER_ID
        )
        if version < _RAISES_EPOCH_SINCE:
            self.state.ruined(NotSupported("brokers before Kafka 2.5 cannot raise an epoch"))
            self.state.check()

    async def _end(self, *, commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=commit,
        )
        at_most = None if self.is_version_2 else _END_OF_VERSION_1_LAST
        return await self._decided(
            self._ask(
                self._own, self.transactional_id, request, EndTxnResponse, _code, at_most=at_most
            )
        )

    async def _add_partitions(self, keys: list[TopicPartition]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[key.partition for key in of_topic])
                for topic, of_topic in by_topic(keys).items()
            ],
        )

        def refusal(response: AddPartitionsToTxnResponse) -> KafkaError | None:
            told = (
                (TopicPartition(topic.name, result.partition_index), result.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            )
            return _worst((code, str(key)) for key, code in answers_to(keys, told).items())

        await self._ask(
            self._own,
            self.transactional_id,
            request,
            AddPartitionsToTxnResponse,
            refusal,
            at_most=_ADD_PARTITIONS_LAST,
        )

    async def _add_offsets(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            group_id=group_id,
        )
        await self._ask(self._own, self.transactional_id, request, AddOffsetsToTxnResponse, _code)

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMetadata
    ) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[_offset(key, offsets[key]) for key in keys]
                )
                for topic, keys in by_topic(offsets).items()
            ],
        )

        def refusal(response: TxnOffsetCommitResponse) -> KafkaError | None:
            told = (
                (TopicPartition(topic.name, one.partition_index), one.error_code)
                for topic in response.topics
                for one in topic.partitions
            )
            return _worst(
                (code, f"{key} of group {group.group_id!r}")
                for key, code in answers_to(offsets, told).items()
            )

        await self._ask(
            self._groups,
            group.group_id,
            request,
            TxnOffsetCommitResponse,
            refusal,
            at_most=None if self.is_version_2 else _OFFSETS_OF_VERSION_1_LAST,
        )

    async def _ask(
        self,
        coordinators: Coordinators,
        key: str,
        request: object,
        expected: type[R],
        refusal: Callable[[R], KafkaError | None],
        *,
        at_most: int | None = None,
    ) -> R:
        return await ask_coordinator(
            self._core,
            coordinators,
            key,
            request,
            expected,
            refusal,
            at_most=at_most,
            timeout_ms=self._max_block_ms,
        )

    # -- outcomes ------------------------------------------------------------------------------

    async def _decided(self, asked: Awaitable[R]) -> R:
        """The answer to what begins or ends transactions; a refusal for good changes the state."""
        try:
            return await asked
        except KafkaError as error:
            if not is_retriable(error):
                self.state.refused(error)
                self.state.check()
            raise

    async def _added(self, asked: Awaitable[None]) -> bool:
        """Whether something became part of the transaction; the state says what is left if not."""
        try:
            await asked
        except KafkaError as error:
            if is_retriable(error):
                self.state.broken(error)
            else:
                self.state.refused(error)
            return False
        except ClientError as error:
            self.state.is_started = True  # it may have been added
            self.state.batch_failed(error)
            return False
        except BaseException:  # the caller's task was cancelled
            self.state.is_started = True
            self.state.batch_failed(ClientError("a call was cancelled: what it added is unknown"))
            raise
        self.state.is_started = True
        return True

    def _take(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            self._identity = identity
            self._renew(identity)


def _code(
    response: InitProducerIdResponse | EndTxnResponse | AddOffsetsToTxnResponse,
) -> KafkaError | None:
    """The error of an answer that has one code."""
    return _worst([(response.error_code, type(response).__name__.removesuffix("Response"))])


def _worst(outcomes: Iterable[tuple[int, str]]) -> KafkaError | None:
    """Of (code, what about): an error that no repeat cures, else any, else None.

    What was left undone because of others says nothing itself.
    """
    errors = [error_of(code, what) for code, what in outcomes if code != ErrorCode.NONE]
    return min(
        errors,
        key=lambda error: (error.code == ErrorCode.OPERATION_NOT_ATTEMPTED, is_retriable(error)),
        default=None,
    )


def _offset(key: TopicPartition, offset: CommittedOffset | int) -> TxnOffsetCommitRequestPartition:
    if isinstance(offset, int):
        offset = CommittedOffset(offset)
    return TxnOffsetCommitRequestPartition(
        partition_index=key.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
