"""Looking at transactions, and ending those that nobody else will (KIP-664, KIP-994).

A transaction *hangs* when its records are in a partition and no coordinator knows that it has to
write a marker there: committed readers stop in front of it for ever. Changes are not repeated once
they were sent.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from raylog.client.admin.brokers import ask_broker
from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.coordinators import Coordinators, KeyType, ask_coordinator
from raylog.client.core import Core
from raylog.client.matching import answers_to, named
from raylog.client.offsets import Answers, ask_leaders
from raylog.wire.errors import ErrorCode, KafkaError, TransactionalIdNotFound, error_of
from raylog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from raylog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NEVER = -1
"""The start of a transaction that is not open."""
_PARTITIONS_AT_ONCE = 500
_FENCING_TIMEOUT_MS = 1
"""For a producer that will write nothing."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id, and the transaction that is open, if one is."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """Unix time; NEVER: none is open."""
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition remembers, idempotent or transactional."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1: none."""
    last_timestamp_ms: int
    """Of its last records or marker; Unix time, -1: unknown."""
    coordinator_epoch: int
    """Of its last marker; -1: it never had one."""
    start_offset: int
    """Where its open transaction starts; NEVER: none is open."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in a partition for which no coordinator will write a marker."""

    key: TopicPartition
    producer: ActiveProducer


class TransactionAdmin:
    """The operations; each is one call of the blocking client."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list_transactions(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """Transactional ids of all brokers, sorted. An empty filter matches all."""
        found: list[TransactionListing] = []
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids)
        )
        for broker_id in await self._brokers():
            found += await self._core.repeat(partial(self._transactions_on, broker_id, request))
        return sorted(found, key=lambda one: one.transactional_id)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """One transactional id; raises TransactionalIdNotFound."""
        for broker_id in await self._brokers():
            found = await self._core.repeat(
                partial(self._transaction_on, broker_id, transactional_id)
            )
            if found is not None:
                return found
        raise TransactionalIdNotFound(f"nobody coordinates {transactional_id!r}")

    async def describe_producers(
        self, keys: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Producers of partitions, as their leaders know them, or one broker with replicas."""
        keys = sorted(keys)
        if broker_id is None:
            return await ask_leaders(
                self._core,
                keys,
                _describe_producers,
                DescribeProducersResponse,
                _active_producers,
            )
        request = _describe_producers(keys)
        response = await ask_broker(self._core, broker_id, request, DescribeProducersResponse)
        found = {}
        for key, answer in answers_to(keys, _active_producers(response)).items():
            if isinstance(answer, KafkaError):
                raise answer
            found[key] = answer
        return found

    async def find_hanging_transactions(
        self,
        keys: Iterable[TopicPartition],
        *,
        max_timeout_ms: int,
        broker_id: int | None = None,
    ) -> list[HangingTransaction]:
        """Open transactions, silent for longer than any may be, without a coordinator to end them.

        That is so where no transactional id has the producer, or its transaction does not hold the
        partition.
        """
        keys = sorted(keys)
        silent: list[HangingTransaction] = []
        for first in range(0, len(keys), _PARTITIONS_AT_ONCE):
            some = keys[first : first + _PARTITIONS_AT_ONCE]
            found = await self.describe_producers(some, broker_id=broker_id)
            oldest_ms = time.time() * 1_000 - max_timeout_ms
            silent += [
                HangingTransaction(key, producer)
                for key, producers in sorted(found.items())
                for producer in producers
                if producer.start_offset != NEVER and producer.last_timestamp_ms < oldest_ms
            ]
        if not silent:
            return []
        held = await self._held_by({one.producer.producer_id for one in silent})
        return [one for one in silent if one.key not in held.get(one.producer.producer_id, ())]

    async def abort_in_partition(
        self, key: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Have a partition's leader end a producer's transaction there, whoever coordinates it.

        An older epoch than the producer's or its last coordinator's raises InvalidProducerEpoch
        or TransactionCoordinatorFenced.
        """
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=max(0, coordinator_epoch),
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=key.topic, partition_indexes=[key.partition])],
        )
        (node_id,) = await self._core.look(lambda: self._core.by_leader([key]))
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await self._core.ask(node_id, request, WriteTxnMarkersResponse)
        told = (
            (TopicPartition(topic.name, answer.partition_index), answer.error_code)
            for result in response.markers
            for topic in result.topics
            for answer in topic.partitions
        )
        code = answers_to([key], told)[key]
        if code != ErrorCode.NONE:
            raise error_of(code, f"{key} at producer {producer_id}")

    async def fence_transactional_id(self, transactional_id: str) -> None:
        """Fence the producers of a transactional id, and wait for its transaction to be aborted.

        That may be one that was prepared for somebody else's commit (KIP-939).
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
        )

        def refusal(response: InitProducerIdResponse) -> KafkaError | None:
            if response.error_code == ErrorCode.NONE:
                return None
            return error_of(response.error_code, f"transactional id {transactional_id!r}")

        coordinators = Coordinators(self._core, KeyType.TRANSACTION)
        await ask_coordinator(
            self._core, coordinators, transactional_id, request, InitProducerIdResponse, refusal
        )

    async def _held_by(self, producer_ids: Collection[int]) -> dict[int, list[TopicPartition]]:
        """Producer id to the partitions of its transaction, of those that coordinators know."""
        held = {}
        for listed in await self.list_transactions(producer_ids=producer_ids):
            try:
                described = await self.describe_transaction(listed.transactional_id)
            except TransactionalIdNotFound:
                continue  # forgotten since
            held[listed.producer_id] = described.partitions
        return held

    async def _transactions_on(
        self, broker_id: int, request: ListTransactionsRequest
    ) -> list[TransactionListing]:
        """What one broker coordinates."""
        response = await self._core.ask(broker_id, request, ListTransactionsResponse)
        if response.error_code != ErrorCode.NONE:
            raise error_of(response.error_code, f"broker {broker_id}")
        return [
            TransactionListing(
                one.transactional_id, one.producer_id, one.transaction_state, broker_id
            )
            for one in response.transaction_states
        ]

    async def _transaction_on(
        self, broker_id: int, transactional_id: str
    ) -> TransactionDescription | None:
        """What a broker says of a transactional id; None if another one coordinates it."""
        told = (await transactions_on(self._core, broker_id, [transactional_id]))[transactional_id]
        if not isinstance(told, KafkaError):
            return told
        if told.code == ErrorCode.NOT_COORDINATOR:
            return None
        raise told

    async def _brokers(self) -> list[int]:
        await self._core.repeat(lambda: self._core.refresh([]))
        return sorted(self._core.cluster.nodes)


async def transactions_on(
    core: Core, broker_id: int, transactional_ids: Sequence[str]
) -> dict[str, TransactionDescription | KafkaError]:
    """What one broker says of each transactional id."""
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    response = await ask_broker(core, broker_id, request, DescribeTransactionsResponse)
    told = (
        (one.transactional_id, _described(broker_id, one)) for one in response.transaction_states
    )
    return answers_to(transactional_ids, told, named("transactional id"))


def _described(broker_id: int, told: TransactionState) -> TransactionDescription | KafkaError:
    if told.error_code != ErrorCode.NONE:
        return error_of(told.error_code, f"transactional id {told.transactional_id!r}")
    return TransactionDescription(
        told.transactional_id,
        broker_id,
        told.transaction_state,
        told.producer_id,
        told.producer_epoch,
        told.transaction_timeout_ms,
        told.transaction_start_time_ms,
        [
            TopicPartition(topic.topic, partition)
            for topic in told.topics
            for partition in topic.partitions
        ],
    )


def _describe_producers(keys: Sequence[TopicPartition]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic, partition_indexes=[key.partition for key in of_topic])
            for topic, of_topic in by_topic(keys).items()
        ]
    )


def _active_producers(response: DescribeProducersResponse) -> Answers[list[ActiveProducer]]:
    for topic in response.topics:
        for answer in topic.partitions:
            key = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code != ErrorCode.NONE:
                yield key, error_of(answer.error_code, answer.error_message or str(key))
            else:
                yield key, [_producer(state) for state in answer.active_producers]


def _producer(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )
