"""When a broker that holds the metadata log starts a controller, and under which name.

With one voter: whenever no actor carries the controller's name, which the voter knows. The runtime
restarts a controller that dies, so that is at the very beginning, and after its end for good.

With several voters a controller may be silent while its name is still carried: it hangs, or is cut
off, or its node is gone and the runtime does not know yet. A voter that has had no answer to its
heartbeats for the lease, and then a random while so that not all start at once, starts another
under a name never used before. Which of the two counts the voters decide.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: a deadline for the runtime's answer
import logging
import math
from collections.abc import Callable, Iterable

from raylog.actors.backoff import Backoff
from raylog.actors.broker.controller_port import ControllerPort
from raylog.actors.metadata.voting import lease_ms
from raylog.actors.names import CONTROLLER, controller_name, rival_name
from raylog.actors.runtime.base import (
    ActorGone,
    ActorSpec,
    PeerLost,
    PeerTimeout,
    Place,
    Runtime,
)
from raylog.actors.runtime.ending import end_and_free
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
RIVAL_DELAY_MAX_MS = 1_000
FIND_TIMEOUT_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 5_000


class Succession:
    """Sees to it that there is a controller."""

    def __init__(
        self,
        runtime: Runtime,
        port: ControllerPort,
        *,
        cluster_id: str,
        broker_id: int,
        broker_ids: list[int],
        settings: dict[str, str],
        heartbeat_interval_ms: int,
        voters: Callable[[], Iterable[int]],
        place: Place | None = None,
    ) -> None:
        self._runtime = runtime
        self._port = port
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._broker_ids = broker_ids
        self._settings = settings
        self._share = place if place is not None and place.share is not None else None
        """Where a controller runs: in what is kept free for the broker that starts it. Without a
        share it may run anywhere, for an actor held to a node is not started on another."""
        self._voters = voters
        """Broker ids of the voters as they are known now."""
        self.lease_ms = lease_ms(heartbeat_interval_ms)
        self._asking = False
        self._starting = False
        self._started: set[str] = set()
        """Rivals that this process has started."""
        self._starts = Backoff()
        self._heard_ms = runtime.monotonic_ms()
        """When a controller answered last; before that, when this one began to wait for one."""
        self._due_ms = math.inf
        """When a controller that has not been heard until then is replaced."""

    def heard(self) -> None:
        """The controller has answered a heartbeat."""
        self._heard_ms = self._runtime.monotonic_ms()
        self._give_time()

    @property
    def silent_ms(self) -> float:
        """For how long no controller has answered."""
        return self._runtime.monotonic_ms() - self._heard_ms

    def _give_time(self) -> None:
        """Whoever is the controller has this long to answer before it is replaced."""
        delay_ms = self._runtime.random.uniform(0, RIVAL_DELAY_MAX_MS) if self.is_shared else 0
        self._due_ms = self._runtime.monotonic_ms() + self.lease_ms + delay_ms

    @property
    def answer_within_ms(self) -> int:
        """How long an answer to a heartbeat is waited for."""
        return self.lease_ms if self.is_shared else HEARTBEAT_TIMEOUT_MS

    async def begin(self) -> None:
        """This voter's broker starts: find the controller, or start it."""
        await self._port.locate(self._voters())
        self._give_time()
        if await self._is_gone(self._port.name):
            self._port.turn_to(controller_name(self._cluster_id))
            if await self._is_gone(self._port.name):
                await self._start(self._port.name)

    async def missed(self, *, may_start: bool) -> None:
        """The controller does not answer, or not as one that serves.

        A broker that is no voter, or is ending, only looks for it.
        """
        if self._asking:
            return
        self._asking = True
        try:
            if await self._port.locate(self._voters()):
                self._give_time()
            elif not self.is_shared:
                if may_start and self._may_start_now and await self._is_gone(self._port.name):
                    await self._start(self._port.name)
            elif may_start and self._may_start_now and self._is_due:
                self._starting = True
                self._runtime.start(self._start_rival(), "start a controller")
        finally:
            self._asking = False

    async def replace(self) -> None:
        """End the controller and start another process under its name, near this one.

        The name comes again, so voters take the new one without waiting for the lease. Raises
        PeerLost, PeerTimeout.
        """
        await self._port.locate(self._voters())
        name = self._port.name
        await end_and_free(self._runtime, name)
        await self._start(name)
        self._give_time()

    async def withdraw(self) -> None:
        """This broker ends: so do controllers that it has started and that lead nothing."""
        for name in sorted(self._started - {self._port.name}):
            await self._runtime.end_for_good(name)

    @property
    def _may_start_now(self) -> bool:
        """Not while controllers keep failing to start."""
        return not self._starts.wait_ms(self._runtime.monotonic_ms())

    @property
    def _is_due(self) -> bool:
        """Whether it is time for a rival, none being on its way."""
        return not self._starting and self._runtime.monotonic_ms() >= self._due_ms

    async def _start_rival(self) -> None:
        number = self._runtime.random.getrandbits(32)
        name = rival_name(self._cluster_id, self._broker_id, number)
        self._started.add(name)
        await self._start(name)
        self._starting = False
        self._give_time()

    @property
    def is_shared(self) -> bool:
        """Whether there are several voters."""
        return len(list(self._voters())) > 1

    async def _is_gone(self, name: str) -> bool:
        """Whether no actor carries a name; not if the runtime does not say."""
        try:
            async with asyncio.timeout(FIND_TIMEOUT_MS / 1000 if self.is_shared else None):
                await self._runtime.find(name)
        except ActorGone:
            return True
        except TimeoutError:
            log.info("nobody says whether %s lives", name)
        return False

    async def _start(self, name: str) -> None:
        log.info("starting the controller %s", name)
        args = {
            "cluster_id": self._cluster_id,
            "broker_ids": sorted({*self._broker_ids, *self._voters()}),
            "settings": self._settings,
            "name": name,
        }
        try:
            await self._runtime.spawn(ActorSpec(name, CONTROLLER, args, self._share, restarts=True))
        except ValueError as taken:
            log.info("another broker has started the controller: %s", taken)
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            log.error("%s did not start: %s", name, failure)
            self._starts.lost(self._runtime.monotonic_ms())
