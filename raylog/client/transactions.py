"""Looking at transactions: those that coordinators know (KIP-664, KIP-994)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.wire.errors import ErrorCode, TransactionalIdNotFound, error_of
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from raylog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

NEVER = -1
"""The start of a transaction that is not open."""


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


class TransactionAdmin:
    """The operations; each is one call of the blocking client."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list_transactions(self, *, states: Collection[str] = ()) -> list[TransactionListing]:
        """Transactional ids of all brokers by name; an empty filter lets all pass."""
        found = []
        for broker_id in await self._brokers():
            request = ListTransactionsRequest(state_filters=list(states))
            response = await self._core.ask(broker_id, request, ListTransactionsResponse)
            if response.error_code != ErrorCode.NONE:
                raise error_of(response.error_code, f"broker {broker_id}")
            found += [
                TransactionListing(
                    one.transactional_id, one.producer_id, one.transaction_state, broker_id
                )
                for one in response.transaction_states
            ]
        return sorted(found, key=lambda one: one.transactional_id)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """One transactional id; raises TransactionalIdNotFound."""
        for broker_id in await self._brokers():
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response = await self._core.ask(broker_id, request, DescribeTransactionsResponse)
            (told,) = response.transaction_states
            if told.error_code == ErrorCode.NOT_COORDINATOR:
                continue
            if told.error_code != ErrorCode.NONE:
                raise error_of(told.error_code, f"transactional id {transactional_id!r}")
            return TransactionDescription(
                transactional_id,
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
        raise TransactionalIdNotFound(f"nobody coordinates {transactional_id!r}")

    async def _brokers(self) -> list[int]:
        await self._core.repeat(lambda: self._core.refresh([]))
        return sorted(self._core.cluster.nodes)
