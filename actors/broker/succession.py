"""Decides when a broker that holds the metadata log starts a controller, and under which name.

With one voter, it does so whenever no actor has the controller's name, which that voter knows.
Since the runtime restarts a controller that dies, this happens at the first start and after the
controller has ended for good.

With several voters, a controller may be silent although an actor still has its name: it hangs, is
cut off, or its node is gone and the runtime has not noticed. A voter whose heartbeats were not
answered for the lease plus a random delay, so that not all voters act at once, starts another
controller under a name never used before. The voters decide which of the two wins.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: a deadline for the runtime's answer
import logging
import math
from collections.abc import Callable, Iterable

from raylog.actors.backoff import Backoff
from raylog.actors.broker.controller_handle import ControllerHandle
from raylog.actors.controller.messages import BrokerHeartbeatAnswer
from raylog.actors.metadata.voting import lease_ms
from raylog.actors.names import CONTROLLER, controller_name, rival_name
from raylog.actors.places import Place
from raylog.actors.runtime.base import ActorGone, ActorSpec, PeerLost, PeerTimeout, Runtime
from raylog.actors.runtime.ending import end_and_free
from raylog.wire.errors import BrokerNotAvailable, KafkaError

log = logging.getLogger(__name__)
RIVAL_DELAY_MAX_MS = 1_000
FIND_TIMEOUT_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 5_000


class Succession:
    """Makes sure that there is a controller."""

    def __init__(
        self,
        runtime: Runtime,
        controller: ControllerHandle,
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
        self._controller = controller
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._broker_ids = broker_ids
        self._settings = settings
        self._share = place if place is not None and place.share is not None else None
        """A controller runs in the resource share of the broker that starts it. Without a share it
        may run anywhere, because an actor bound to a node is not started on another."""
        self._voters = voters
        """Returns the broker ids of the voters known now."""
        self.lease_ms = lease_ms(heartbeat_interval_ms)
        self._asking = False
        self._starting = False
        self._started: set[str] = set()
        """Rivals started by this process."""
        self._starts = Backoff()
        self._answered_ms = runtime.monotonic_ms()
        """When a controller last answered; initially, when this broker began to wait for one."""
        self._last_heartbeat: tuple[float, BrokerHeartbeatAnswer] | None = None
        """When the latest answered heartbeat was sent, and its answer."""
        self._due_ms = math.inf
        """When a controller that stays silent will be replaced."""

    def heartbeat_answered(self, sent_ms: float, answer: BrokerHeartbeatAnswer) -> None:
        """Record that the controller has answered a heartbeat."""
        self._answered_ms = self._runtime.monotonic_ms()
        if self._last_heartbeat is None or sent_ms > self._last_heartbeat[0]:
            self._last_heartbeat = sent_ms, answer
        self._give_time()

    @property
    def silent_ms(self) -> float:
        """How long no controller has answered."""
        return self._runtime.monotonic_ms() - self._answered_ms

    def last_heartbeat(self) -> tuple[float, int, int]:
        """Return the latest answered heartbeat: its age, and `offset` and `lease_ms` of the answer.

        The age is in ms, from when it was sent. Raises BrokerNotAvailable before the first.
        """
        if self._last_heartbeat is None:
            raise BrokerNotAvailable("no controller has answered this broker yet")
        sent_ms, answer = self._last_heartbeat
        return self._runtime.monotonic_ms() - sent_ms, answer.offset, answer.lease_ms

    def _give_time(self) -> None:
        """Give the current controller time to answer before it is replaced."""
        delay_ms = self._runtime.random.uniform(0, RIVAL_DELAY_MAX_MS) if self.is_shared else 0
        self._due_ms = self._runtime.monotonic_ms() + self.lease_ms + delay_ms

    @property
    def answer_within_ms(self) -> int:
        """The timeout of a heartbeat."""
        return self.lease_ms if self.is_shared else HEARTBEAT_TIMEOUT_MS

    async def begin(self) -> None:
        """Find the controller when this voter's broker starts, or start one."""
        await self._controller.locate(self._voters())
        self._give_time()
        if await self._is_gone(self._controller.name):
            self._controller.turn_to(controller_name(self._cluster_id))
            if await self._is_gone(self._controller.name):
                await self._start(self._controller.name)

    async def missed(self, *, may_start: bool) -> None:
        """Handle a heartbeat that was not answered, or only by a controller that does not serve.

        A broker that is not a voter, or is shutting down, only looks for the controller.
        """
        if self._asking:
            return
        self._asking = True
        try:
            if await self._controller.locate(self._voters()):
                self._give_time()
            elif not self.is_shared:
                if may_start and self._may_start_now and await self._is_gone(self._controller.name):
                    await self._start(self._controller.name)
            elif may_start and self._may_start_now and self._is_due:
                self._starting = True
                self._runtime.start(self._start_rival(), "start a controller")
        finally:
            self._asking = False

    async def replace(self) -> None:
        """End the controller and start another process under its name, near this broker.

        Since the name is the same, voters accept it without waiting for the lease. Raises PeerLost
        or PeerTimeout.
        """
        await self._controller.locate(self._voters())
        name = self._controller.name
        await end_and_free(self._runtime, name)
        await self._start(name)
        self._give_time()

    async def withdraw(self) -> None:
        """End the controllers that this broker has started and that do not lead."""
        for name in sorted(self._started - {self._controller.name}):
            await self._runtime.end_for_good(name)

    @property
    def _may_start_now(self) -> bool:
        """False during the backoff after failed starts."""
        return not self._starts.wait_ms(self._runtime.monotonic_ms())

    @property
    def _is_due(self) -> bool:
        """Whether a rival is due and none is starting."""
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
        """Whether no actor has this name; False if the runtime does not answer."""
        try:
            async with asyncio.timeout(FIND_TIMEOUT_MS / 1000 if self.is_shared else None):
                await self._runtime.find(name)
        except ActorGone:
            return True
        except TimeoutError:
            log.info("it is unknown whether %s runs", name)
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
