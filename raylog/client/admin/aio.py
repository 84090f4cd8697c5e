"""The asyncio admin client of one cluster. For one event loop."""

from __future__ import annotations

import weakref

from raylog.client.admin.operations import AllOperations
from raylog.client.closing import AsyncClosing, OfOneProcess
from raylog.client.consumer.aio import AsyncConsumer
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.core import Core
from raylog.client.interception import Chain
from raylog.client.producer.aio import AsyncProducer
from raylog.client.producer.core import OnDelivery, ProducerCore
from raylog.client.setting_parsing import Config, settings_of
from raylog.client.settings import ClientSettings, ProducerSettings
from raylog.client.streams import AsyncIo


class AsyncAdmin(OfOneProcess, AsyncClosing, AllOperations):
    """Manages a cluster's topics, settings, groups, transactions, ACLs, quotas, users and brokers.

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
        super().__init__(self._new_core())

    def producer(
        self, settings: ProducerSettings | None = None, on_delivery: OnDelivery | None = None
    ) -> AsyncProducer[bytes, bytes]:
        """Create a producer. `on_delivery` is called when a batch is acknowledged or has failed."""
        producer = ProducerCore(self._new_core(), settings or ProducerSettings(), on_delivery)
        return AsyncProducer.over(producer, self._io)

    def consumer(self, settings: ConsumerSettings | None = None) -> AsyncConsumer[bytes, bytes]:
        """Create a consumer with the same connection settings; close it before the admin."""
        own = settings or ConsumerSettings()
        chain = Chain(own.interceptors)
        core = ConsumerCore(self._io, self._settings, own, interceptors=chain)
        consumer = AsyncConsumer.over(core)
        self._consumers.add(consumer)
        return consumer

    async def close(self) -> None:
        """Close all connections. Flush producers and close consumers first."""
        for consumer in tuple(self._consumers):
            await consumer.core.abandon()
        for core in self._cores:
            core.close_for_good()
        await self._io.finish()

    def _new_core(self) -> Core:
        """Create separate connections, so that a waiting fetch does not delay other requests."""
        core = Core(self._io, self._settings)
        self._cores.append(core)
        return core


AsyncClient = AsyncAdmin
"""Name of `AsyncAdmin` in version 0.1."""
