"""Producer ids for idempotent producers, from blocks that the Controller allocates (KIP-730)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from raylog.actors.controller.messages import AllocateProducerIds
from raylog.actors.gateway.controller_client import ControllerClient
from raylog.actors.remote import Controller
from raylog.actors.runtime.base import Runtime
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import CoordinatorLoadInProgress, KafkaError

if TYPE_CHECKING:
    from raylog.actors.gateway.cluster import ClusterView

log = logging.getLogger(__name__)
BLOCK_TIMEOUT_MS = 10_000


class ProducerIds:
    """One gateway's block of producer ids; what is left of it is lost when the process ends."""

    def __init__(
        self, runtime: Runtime, cluster: ClusterView, controller: ControllerClient
    ) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._controller = controller
        self._next = 0
        self._end = 0
        self._fetching = False
        self._waiting: list[Callable[[], None]] = []

    async def take(self) -> int:
        """Return a unique producer id.

        Raises CoordinatorLoadInProgress, which producers retry, if there is none in time.
        """
        deadline = self._runtime.monotonic_ms() + BLOCK_TIMEOUT_MS
        while self._next == self._end:
            left = deadline - self._runtime.monotonic_ms()
            if left <= 0:
                raise CoordinatorLoadInProgress("the controller has given no producer ids yet")
            await until(self._runtime, self._changes, lambda: self._next < self._end, left)
        self._next += 1
        return self._next - 1

    def _changes(self, look: Callable[[], None]) -> Callable[[], None]:
        self._waiting.append(look)
        if not self._fetching:
            self._fetching = True
            self._runtime.start(self._fetch(), "fetch producer ids")
        return lambda: self._waiting.remove(look)

    async def _fetch(self) -> None:
        while self._waiting and self._next == self._end:
            await self._fetch_block()
        self._fetching = False

    async def _fetch_block(self) -> None:
        broker = self._cluster.image.brokers.get(self._cluster.broker_id)
        epoch = -1 if broker is None else broker.broker_epoch
        try:
            block = await self._controller.ask(
                Controller.allocate_producer_ids,
                AllocateProducerIds(self._cluster.broker_id, epoch),
                timeout_ms=BLOCK_TIMEOUT_MS,
            )
        except KafkaError as refused:
            log.warning("no producer ids from the controller: %s", refused)
            await self._runtime.sleep(0.1)
            return
        self._next = block.first
        self._end = block.first + block.count
        for look in tuple(self._waiting):
            look()
