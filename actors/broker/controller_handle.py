"""A broker's calls to the controller, repeated until it answers, in order.

Voters know which controller it is: each remembers the candidate that it promised its latest epoch
to. The broker asks them when the controller does not answer or says that it does not serve.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: a deadline for an answer over a link
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from raylog.actors.controller.messages import (
    HEARTBEAT,
    AllocateProducerIds,
    AlterPartitions,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    IsrOutcome,
    ProducerIdBlock,
)
from raylog.actors.message import taken
from raylog.actors.metadata.voting import VoterState
from raylog.actors.names import broker_name, controller_name
from raylog.actors.remote import Broker, Controller, Method, T, Ts, call
from raylog.actors.runtime.base import ActorGone, Link, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import CoordinatorNotAvailable, KafkaError, NotController, StaleBrokerEpoch

A = TypeVar("A")
log = logging.getLogger(__name__)
RETRY_MS = (10, 500)
"""Shortest and longest wait before a call is repeated, in ms."""
LOCATE_TIMEOUT_MS = 1_000
CALL_TIMEOUT_MS = 5_000


class ControllerHandle:
    """Calls the controller by name; `ensure` finds or starts one when it does not answer.

    Every request is safe to repeat (`controller.messages`), so a lost answer does no harm.
    """

    def __init__(
        self, runtime: Runtime, cluster_id: str, ensure: Callable[[], Awaitable[None]]
    ) -> None:
        self.name = controller_name(cluster_id)
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._ensure = ensure
        self.silence = ""
        """How the last attempt of a repeated call failed; empty once it is answered."""
        self._reports: deque[tuple[Method[Any, object], Any]] = deque()
        self._reporting = False
        self._link: Link | None = None
        self._located = (0, "")
        """The highest promised epoch that voters have reported, and the candidate that has it."""
        self._won_epoch = 0
        """The highest epoch that a controller has written under: it won the election for it."""
        self._calls: dict[asyncio.Future[Any], None] = {}
        """Unanswered calls, in order."""

    async def call(self, method: Method[*Ts, T], *args: *Ts, timeout_ms: int) -> T:
        """Call once; raises PeerLost, PeerTimeout, or a KafkaError of the controller.

        Also raises PeerLost if another controller is found meanwhile, because the answer of the one
        that was called may never come, or not count.
        """
        asking = call(self._runtime, self.name, method, *args, timeout_ms=timeout_ms)
        return await self._unless_replaced(str(method), asking)

    async def _unless_replaced(self, method: str, asking: Coroutine[Any, Any, T]) -> T:
        calling = asyncio.ensure_future(asking)
        self._calls[calling] = None
        try:
            return await calling
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                calling.cancel()
                raise
            raise PeerLost(f"another controller has come before {method} was answered") from None
        finally:
            del self._calls[calling]

    async def alter_partitions(self, request: AlterPartitions) -> list[IsrOutcome]:
        """Return the outcome of each ISR change; raises what `call` raises."""
        return await self.call(Controller.alter_partitions, request, timeout_ms=CALL_TIMEOUT_MS)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Get producer ids; raises CoordinatorNotAvailable if the controller is silent."""
        asked = AllocateProducerIds(broker_id, broker_epoch)
        try:
            return await self.call(
                Controller.allocate_producer_ids, asked, timeout_ms=CALL_TIMEOUT_MS
            )
        except (ActorGone, PeerLost, PeerTimeout) as failure:
            raise CoordinatorNotAvailable(f"the controller is silent: {failure}") from failure

    async def locate(self, voters: Iterable[int]) -> bool:
        """Ask voters, by broker id, who the controller is; True if it has changed.

        It is the candidate to which a majority has promised its latest epoch, whatever other voters
        have promised since to a candidate that has not won. Without a majority it may be the one
        with the highest promised epoch, and among those the one that most voters named. Voters that
        do not know it yet learn its name when it writes to them.
        """
        asked = [
            asyncio.ensure_future(
                call(
                    self._runtime,
                    broker_name(self._cluster_id, voter),
                    Broker.voter_state,
                    timeout_ms=LOCATE_TIMEOUT_MS,
                )
            )
            for voter in voters
        ]
        promises: Counter[tuple[int, str]] = Counter()
        majority: tuple[int, str] | None = None
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    state: VoterState = await answer
                except (PeerLost, PeerTimeout, KafkaError) as silent:
                    log.debug("a voter does not answer who the controller is: %s", silent)
                    continue
                promise = (state.promised_epoch, state.controller)
                promises[promise] += 1
                if 2 * promises[promise] > len(asked):
                    majority = promise
                    break  # further answers would change nothing
        finally:
            for one in asked:
                one.cancel()
        if majority is not None:
            return majority[0] >= self._won_epoch and self._turn_to_located(majority)
        if not promises:
            return False
        found = max(promises, key=lambda one: (one[0], promises[one], one[1]))
        if found[0] < self._located[0] or found[0] <= self._won_epoch or found == self._located:
            return False
        return self._turn_to_located(found)

    def written_by(self, epoch: int, name: str) -> bool:
        """Record that a controller wrote to the local voter; True if the controller has changed."""
        if epoch <= self._won_epoch or epoch < self._located[0]:
            return False
        self._won_epoch = epoch
        return self._turn_to_located((epoch, name))

    def _turn_to_located(self, found: tuple[int, str]) -> bool:
        if not found[1]:
            return False
        self._located = found
        return self.turn_to(found[1])

    def turn_to(self, name: str) -> bool:
        """Use this controller from now on; False if it is the current one."""
        if name == self.name:
            return False
        log.info("the controller is %s now", name)
        self.name = name
        self.close()
        self._link = None
        for calling in tuple(self._calls):
            calling.cancel()
        return True

    async def heartbeat(self, request: BrokerHeartbeat, timeout_ms: int) -> BrokerHeartbeatAnswer:
        """Send one heartbeat over a link: it is all that an idle broker sends, so it must be cheap.

        Raises what `call` raises, and ActorGone.
        """
        return await self._unless_replaced(HEARTBEAT, self._heartbeat(request, timeout_ms))

    async def _heartbeat(self, request: BrokerHeartbeat, timeout_ms: int) -> BrokerHeartbeatAnswer:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                link = await self._open_link()
                if link is not None:
                    return taken(BrokerHeartbeatAnswer, await link.ask(HEARTBEAT, list(request)))
        except TimeoutError as late:
            raise PeerTimeout(f"the controller did not answer within {timeout_ms} ms") from late
        return await call(
            self._runtime, self.name, Controller.heartbeat, request, timeout_ms=timeout_ms
        )

    async def _open_link(self) -> Link | None:
        """Open a link to the controller; None if it cannot be reached by link."""
        if self._link is None or not self._link.is_open:
            self._link = None
            controller = await self._runtime.find(self.name)
            try:
                self._link = await self._runtime.connect(controller)
            except PeerLost as unreachable:
                log.debug("no link to the controller: %s", unreachable)
        return self._link

    def close(self) -> None:
        """Close the link."""
        if self._link is not None:
            self._link.close()

    async def insist(self, method: Method[*Ts, T], *args: *Ts, timeout_ms: int) -> T:
        """Call until the controller answers; raises only errors that are not retriable."""
        wait_ms = RETRY_MS[0]
        while True:
            try:
                answer = await self.call(method, *args, timeout_ms=timeout_ms)
            except (PeerLost, PeerTimeout, ActorGone) as failure:
                log.info("%s by the controller: %s", method, failure)
                self.silence = str(failure)
                await self._ensure()
            except NotController as deposed:
                log.debug("%s by the controller: %s", method, deposed)
                self.silence = str(deposed)
                await self._ensure()
            except KafkaError as refused:
                if not refused.code.retriable:
                    raise
                log.debug("%s by the controller: %s", method, refused)
                self.silence = str(refused)
            else:
                self.silence = ""
                return answer
            await self._runtime.sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 2, RETRY_MS[1])

    def report(self, method: Method[A, object], argument: A, timeout_ms: int) -> None:
        """Queue a report after all earlier ones; there is no result.

        A report under an old broker epoch is dropped, because a new registration repeats its
        content.
        """
        self._reports.append((method, argument))
        if not self._reporting:
            self._reporting = True
            self._runtime.start(self._deliver(timeout_ms), "report to the controller")

    async def _deliver(self, timeout_ms: int) -> None:
        while self._reports:
            method, argument = self._reports.popleft()
            try:
                await self.insist(method, argument, timeout_ms=timeout_ms)
            except StaleBrokerEpoch as stale:
                log.info("%s is dropped: %s", method, stale)
        self._reporting = False
