"""The asyncio admin of one cluster. For one event loop."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Self

from raylog.client.admin.acls import AclAdmin
from raylog.client.admin.features import FeatureAdmin
from raylog.client.admin.groups import GroupAdmin
from raylog.client.admin.quotas import QuotaAdmin
from raylog.client.admin.replicas import ReplicaAdmin
from raylog.client.admin.tokens import TokenAdmin
from raylog.client.admin.topics import TopicAdmin
from raylog.client.admin.transactions import TransactionAdmin
from raylog.client.admin.users import UserAdmin
from raylog.client.closing import OfOneProcess
from raylog.client.config import Config, settings_of
from raylog.client.consumer.aio import AsyncConsumer
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.core import Core
from raylog.client.interception import Chain
from raylog.client.producer.aio import AsyncProducer
from raylog.client.producer.core import OnDelivery, ProducerCore
from raylog.client.settings import ClientSettings, ProducerSettings
from raylog.client.streams import AsyncIo


class AsyncAdmin(
    OfOneProcess,
    TopicAdmin,
    GroupAdmin,
    ReplicaAdmin,
    TransactionAdmin,
    AclAdmin,
    QuotaAdmin,
    UserAdmin,
    TokenAdmin,
    FeatureAdmin,
):
    """Manages topics, settings, groups, transactions, ACLs, quotas, users and brokers of a cluster.

    `async with AsyncAdmin("localhost:9092") as admin: ...`; settings have Kafka's names, in a
    mapping or as keyword arguments.
    """

    def __init__(
        self, config: Config = None, client: ClientSettings | None = None, /, **settings: object
    ) -> None:
        """`client` replaces all other settings."""
        self._io = AsyncIo()
        self._settings = settings_of(config, client, settings)
        self._cores: list[Core] = []
        self._consumers: weakref.WeakSet[AsyncConsumer[bytes, bytes]] = weakref.WeakSet()
        core = self._new_core()
        TopicAdmin.__init__(self, core)
        GroupAdmin.__init__(self, core)
        ReplicaAdmin.__init__(self, core)
        TransactionAdmin.__init__(self, core)
        AclAdmin.__init__(self, core)
        QuotaAdmin.__init__(self, core)
        UserAdmin.__init__(self, core)
        TokenAdmin.__init__(self, core)
        FeatureAdmin.__init__(self, core)

    def producer(
        self, settings: ProducerSettings | None = None, on_delivery: OnDelivery | None = None
    ) -> AsyncProducer[bytes, bytes]:
        """A producer. `on_delivery` is called when a batch is acknowledged or has failed."""
        producer = ProducerCore(self._new_core(), settings or ProducerSettings(), on_delivery)
        return AsyncProducer.over(producer, self._io)

    def consumer(self, settings: ConsumerSettings | None = None) -> AsyncConsumer[bytes, bytes]:
        """A consumer with the same connection settings; close it before the admin."""
        own = settings or ConsumerSettings()
        chain = Chain(own.interceptors)
        core = ConsumerCore(self._io, self._settings, own, interceptors=chain)
        consumer = AsyncConsumer.over(core)
        self._consumers.add(consumer)
        return consumer

    async def close(self) -> None:
        """Close all connections. Flush producers and close consumers before."""
        for consumer in tuple(self._consumers):
            await consumer.core.abandon()
        for core in self._cores:
            core.close_for_good()
        await self._io.finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _new_core(self) -> Core:
        """Connections of their own: a fetch that waits must not hold up what comes behind it."""
        core = Core(self._io, self._settings)
        self._cores.append(core)
        return core


AsyncClient = AsyncAdmin
"""The name in 0.1."""
