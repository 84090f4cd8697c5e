"""Describe transactions, and end those that no coordinator will end (KIP-664, KIP-994).

A transaction *hangs* if a partition holds its records and no coordinator knows that it must write a
marker there: consumers with read_committed wait at its first record for ever. Changes are not
retried once they were sent.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from raylog.client.admin.base import Operations
from raylog.client.admin.brokers import ask_broker
from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.core import Core
from raylog.client.matching import answers_to, named
from raylog.client.offsets import Answers, ask_leaders
from raylog.client.refusals import check, refusal, value
from raylog.client.transactions import FIRST, TransactionRequests
from raylog.wire.errors import (
    KafkaError,
    NotCoordinator,
    TransactionalIdNotFound,
)
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
"""The start of a transaction if none is open."""
_PARTITIONS_AT_ONCE = 500
_FENCING_TIMEOUT_MS = 1
"""Transaction timeout of a producer that will not write."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id, as listed by its coordinator."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id, and its open transaction if there is one."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """Unix time in ms; NEVER if none is open."""
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer known to a partition, idempotent or transactional."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 if none."""
    last_timestamp_ms: int
    """Time of its last records or marker as Unix time in ms; -1 if unknown."""
    coordinator_epoch: int
    """Coordinator epoch of its last marker; -1 if there was none."""
    start_offset: int
    """First offset of its open transaction; NEVER if none is open."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in a partition for which no coordinator will write a marker."""

    key: TopicPartition
    producer: ActiveProducer


class TransactionAdmin(Operations):
    """The operations; the blocking and the asyncio client offer each as one call."""

    async def list_transactions(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """Return transactional ids of all brokers, sorted. An empty filter matches all."""
        found: list[TransactionListing] = []
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids)
        )
        for broker_id in await self._brokers():
            found += await self._core.repeat(partial(self._transactions_on, broker_id, request))
        return sorted(found, key=lambda one: one.transactional_id)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return one transactional id; raises TransactionalIdNotFound."""
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
        """Return the producers of partitions, as known to their leaders or to one broker."""
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
        answers = answers_to(keys, _active_producers(response))
        return {key: value(answer) for key, answer in answers.items()}

    async def find_hanging_transactions(
        self,
        keys: Iterable[TopicPartition],
        *,
        max_timeout_ms: int,
        broker_id: int | None = None,
    ) -> list[HangingTransaction]:
        """Return open transactions, silent for more than `max_timeout_ms`, that nobody will end.

        That is the case if no transactional id has the producer, or if its transaction does not
        include the partition.
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
        """Make a partition's leader abort a producer's transaction there, without its coordinator.

        Raises InvalidProducerEpoch or TransactionCoordinatorFenced for an epoch older than that of
        the producer or of its last coordinator.
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
        answers = (
            (TopicPartition(topic.name, answer.partition_index), answer.error_code)
            for result in response.markers
            for topic in result.topics
            for answer in topic.partitions
        )
        check(answers_to([key], answers)[key], f"{key} at producer {producer_id}")

    async def fence_transactional_id(self, transactional_id: str) -> None:
        """Fence the producers of a transactional id, and wait until its transaction is aborted.

        This also aborts a transaction that was prepared for an external commit (KIP-939).
        """
        requests = TransactionRequests(self._core, FIRST, transactional_id)
        await requests.init_producer_id(_FENCING_TIMEOUT_MS)

    async def _held_by(self, producer_ids: Collection[int]) -> dict[int, list[TopicPartition]]:
        """Return the partitions of transactions that coordinators know, by producer id."""
        held = {}
        for listed in await self.list_transactions(producer_ids=producer_ids):
            try:
                described = await self.describe_transaction(listed.transactional_id)
            except TransactionalIdNotFound:
                continue  # removed in the meantime
            held[listed.producer_id] = described.partitions
        return held

    async def _transactions_on(
        self, broker_id: int, request: ListTransactionsRequest
    ) -> list[TransactionListing]:
        """Return the transactional ids that one broker coordinates."""
        response = await self._core.ask(broker_id, request, ListTransactionsResponse)
        check(response.error_code, f"broker {broker_id}")
        return [
            TransactionListing(
                one.transactional_id, one.producer_id, one.transaction_state, broker_id
            )
            for one in response.transaction_states
        ]

    async def _transaction_on(
        self, broker_id: int, transactional_id: str
    ) -> TransactionDescription | None:
        """Return a broker's description of an id; None if another broker coordinates it."""
        answer = (await transactions_on(self._core, broker_id, [transactional_id]))[
            transactional_id
        ]
        return None if isinstance(answer, NotCoordinator) else value(answer)

    async def _brokers(self) -> list[int]:
        await self._core.repeat(lambda: self._core.refresh([]))
        return sorted(self._core.cluster.nodes)


async def transactions_on(
    core: Core, broker_id: int, transactional_ids: Sequence[str]
) -> dict[str, TransactionDescription | KafkaError]:
    """Return one broker's answer about each transactional id."""
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    response = await ask_broker(core, broker_id, request, DescribeTransactionsResponse)
    answers = (
        (one.transactional_id, _described(broker_id, one)) for one in response.transaction_states
    )
    return answers_to(transactional_ids, answers, named("transactional id"))


def _described(broker_id: int, state: TransactionState) -> TransactionDescription | KafkaError:
    error = refusal(state.error_code, f"transactional id {state.transactional_id!r}")
    return error or TransactionDescription(
        state.transactional_id,
        broker_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        [
            TopicPartition(topic.topic, partition)
            for topic in state.topics
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
            found = [_producer(state) for state in answer.active_producers]
            yield key, refusal(answer.error_code, answer.error_message or key) or found


def _producer(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )
