"""The transactions of a producer (KIP-98), in both versions of the protocol.

A transaction uses version 2 if the cluster's feature `transaction.version` is 2 or more when it
begins. Requests are retried for `max_block_ms`; `raylog.client.transactions` sends them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from raylog.client.cluster import CommittedOffset, TopicPartition
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import coordinator_version
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotSupported
from raylog.client.producer.accumulator import NO_IDENTITY, ProducerIdentity
from raylog.client.producer.transaction_state import TransactionState
from raylog.client.retries import is_retriable
from raylog.client.transactions import FEATURE, FIRST, Protocol, TransactionRequests, protocol_for
from raylog.wire.api import ApiKey
from raylog.wire.errors import InvalidProducerIdMapping, KafkaError

R = TypeVar("R")

_RAISES_EPOCH_SINCE = 3
"""First InitProducerId version with which a producer can keep its id (KIP-360)."""


class Transactions:
    """One producer's transactions. No batch may be in flight during `initialize` and `end`."""

    def __init__(
        self,
        core: Core,
        transactional_id: str,
        *,
        timeout_ms: int,
        max_block_ms: int,
        renew: Callable[[ProducerIdentity], object],
    ) -> None:
        """`renew` sets the identity of later batches, and restarts their sequences at 0."""
        self.transactional_id = transactional_id
        self.state = TransactionState()
        self._requests = TransactionRequests(core, FIRST, transactional_id, max_block_ms)
        self._timeout_ms = timeout_ms
        self._renew = renew
        self._identity = NO_IDENTITY

    @property
    def protocol(self) -> Protocol:
        """The versions of requests in the open transaction."""
        return self._requests.protocol

    async def initialize(self) -> None:
        """Take over the transactional id: fence its other producers and end their transaction."""
        self.state.begin_initializing()
        await self._init_producer_id(NO_IDENTITY)
        self.state.initialized()

    def begin(self) -> None:
        """Begin a transaction, in the version that the cluster currently has."""
        self.state.begin()
        self._requests.protocol = protocol_for(self._requests.core.feature_level(FEATURE))

    async def add_partitions(self, keys: Iterable[TopicPartition]) -> None:
        """Add partitions to the open transaction before they are written to.

        After a failure, the state says what can still be done.
        """
        if not self.protocol.registers:
            self.state.is_started = True
            return
        new = sorted(set(keys) - self.state.partitions)
        if new and await self._added(self._requests.add_partitions(self._identity, new)):
            self.state.partitions.update(new)

    def held(self, keys: list[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that `add_partitions` has made writable."""
        if not self.protocol.registers:
            return keys if self.state.is_started else []
        return [key for key in keys if key in self.state.partitions]

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction; raises AbortRequired, ProducerUnusable."""
        self.state.require_open("send_offsets_to_transaction")
        if not offsets:
            return
        requests, identity = self._requests, self._identity
        if not self.protocol.registers:
            self.state.is_started = True
        elif not await self._added(requests.add_offsets(identity, group.group_id)):
            self.state.check()
        await self._added(requests.commit_offsets(identity, offsets, group))
        self.state.check()

    async def end(self, *, commit: bool, is_worn: bool) -> None:
        """End the transaction, after `begin_end` and once none of its records is in flight.

        `is_worn`: batches were lost, so sequences must restart. Raises AbortRequired,
        ProducerUnusable, or the last error within `max_block_ms`: then call again.
        """
        self.state.check()
        if isinstance(self.state.error, InvalidProducerIdMapping):
            await self._init_producer_id(self._identity)  # brokers have no transaction to end
        elif self.state.is_started:
            following = await self._decided(self._requests.end(self._identity, commit=commit))
            if following.producer_id >= 0:
                self._take(following)
            elif is_worn:
                await self._init_producer_id(self._identity)
        self.state.ended()

    # -- identity ------------------------------------------------------------------------------

    async def _init_producer_id(self, current: ProducerIdentity) -> None:
        """Get an identity; with `current`, its next epoch, unless another producer took over."""
        if current != NO_IDENTITY:
            await self._require_epochs()
        asked = self._requests.init_producer_id(self._timeout_ms, current)
        self._take(await self._decided(asked))

    async def _require_epochs(self) -> None:
        """Raise unless producers can raise their epoch; else a takeover would go unnoticed."""
        requests = self._requests
        version = await coordinator_version(
            requests.core, requests.own, self.transactional_id, ApiKey.INIT_PRODUCER_ID
        )
        if version < _RAISES_EPOCH_SINCE:
            self.state.ruined(NotSupported("brokers before Kafka 2.5 cannot raise an epoch"))
            self.state.check()

    # -- outcomes ------------------------------------------------------------------------------

    async def _decided(self, asked: Awaitable[R]) -> R:
        """Await a request that starts or ends a transaction; a final error changes the state."""
        try:
            return await asked
        except KafkaError as error:
            if not is_retriable(error):
                self.state.refused(error)
                self.state.check()
            raise

    async def _added(self, asked: Awaitable[None]) -> bool:
        """Await a request that adds to the transaction; on failure set the state, return False."""
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
