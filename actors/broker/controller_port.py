"""The way to the controller: calls that are repeated until it answers, in order.

The voters know who it is: each remembers whom it has promised its latest epoch. They are asked when
the controller is silent or says that it does not serve.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: a deadline for an answer over a link
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from raylog.actors.controller.api import (
    HEARTBEAT,
    AllocateProducerIds,
    AlterPartitions,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    IsrOutcome,
    ProducerIdBlock,
)
from raylog.actors.metadata.voting import VoterState
from raylog.actors.names import broker_name, controller_name
from raylog.actors.plain import taken
from raylog.actors.runtime.base import ActorGone, Link, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import CoordinatorNotAvailable, KafkaError, NotController, StaleBrokerEpoch

T = TypeVar("T")
log = logging.getLogger(__name__)
RETRY_MS = (10, 500)
"""First and longest wait before a call is repeated."""
LOCATE_TIMEOUT_MS = 1_000
CALL_TIMEOUT_MS = 5_000


class ControllerPort:
    """Calls the controller by name; `ensure` has it found, or started, when it does not answer.

    Every request is safe to repeat (`controller.api`), so a lost answer is no matter.
    """

    def __init__(
        self, runtime: Runtime, cluster_id: str, ensure: Callable[[], Awaitable[None]]
    ) -> None:
        self.name = controller_name(cluster_id)
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._ensure = ensure
        self.silence = ""
        """What a call came to last that is repeated; empty if it was answered."""
        self._reports: deque[tuple[str, Any]] = deque()
        self._reporting = False
        self._link: Link | None = None
        self._located = (0, "")
        """The highest epoch that a voter was seen to have promised, and to whom."""
        self._won_epoch = 0
        """The highest that a controller has written under: it has won it, whoever else asked."""
        self._calls: dict[asyncio.Future[Any], None] = {}
        """Those not answered yet, in order."""

    async def call(self, method: str, *args: Any, timeout_ms: int) -> Any:
        """One call; raises PeerLost or PeerTimeout, or a KafkaError of the controller's.

        PeerLost also when another controller is found meanwhile: the answer of the one that was
        asked may never come, or not count.
        """
        asking = self._runtime.call(self.name, method, *args, timeout_ms=timeout_ms)
        return await self._unless_replaced(method, asking)

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

    async def alter_partitions(self, asked: AlterPartitions) -> list[IsrOutcome]:
        """What became of each change of in-sync replicas; raises what `call` raises."""
        outcomes: list[IsrOutcome] = await self.call(
            "alter_partitions", asked, timeout_ms=CALL_TIMEOUT_MS
        )
        return outcomes

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids; raises CoordinatorNotAvailable if the controller is silent."""
        asked = AllocateProducerIds(broker_id, broker_epoch)
        try:
            block: ProducerIdBlock = await self.call(
                "allocate_producer_ids", asked, timeout_ms=CALL_TIMEOUT_MS
            )
        except (ActorGone, PeerLost, PeerTimeout) as failure:
            raise CoordinatorNotAvailable(f"the controller is silent: {failure}") from failure
        return block

    async def locate(self, voters: Iterable[int]) -> bool:
        """Ask voters, by broker id, who the controller is; whether it is another than before.

        Whom a majority has promised its latest epoch is it, whatever the others have promised since
        to somebody who has not won. Without a majority it may be who was promised the highest
        epoch, by more voters than any other. The others learn its name when it writes to them.
        """
        asked = [
            asyncio.ensure_future(
                self._runtime.call(
                    broker_name(self._cluster_id, voter),
                    "voter_state",
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
                    log.debug("a voter does not say who the controller is: %s", silent)
                    continue
                told = (state.promised_epoch, state.controller)
                promises[told] += 1
                if 2 * promises[told] > len(asked):
                    majority = told
                    break  # the others would change nothing
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
        """A controller has written to the voter here; whether it is another than before."""
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
        """Call this controller from now on; False if it is the one already."""
        if name == self.name:
            return False
        log.info("the controller is %s now", name)
        self.name = name
        self.close()
        self._link = None
        for calling in tuple(self._calls):
            calling.cancel()
        return True

    async def heartbeat(self, asked: BrokerHeartbeat, timeout_ms: int) -> BrokerHeartbeatAnswer:
        """One heartbeat, over a link: an idle broker's only steady traffic should cost little.

        Raises as `call` does, and ActorGone.
        """
        return await self._unless_replaced(HEARTBEAT, self._heartbeat(asked, timeout_ms))

    async def _heartbeat(self, asked: BrokerHeartbeat, timeout_ms: int) -> BrokerHeartbeatAnswer:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                link = await self._open_link()
                if link is not None:
                    return taken(BrokerHeartbeatAnswer, await link.ask(HEARTBEAT, list(asked)))
        except TimeoutError as late:
            raise PeerTimeout(f"the controller did not answer within {timeout_ms} ms") from late
        answer: BrokerHeartbeatAnswer = await self._runtime.call(
            self.name, HEARTBEAT, asked, timeout_ms=timeout_ms
        )
        return answer

    async def _open_link(self) -> Link | None:
        """A link to the controller; None where it cannot be reached by one."""
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

    async def insist(self, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call until it is answered; raises only what the controller refuses for good."""
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

    def report(self, method: str, argument: Any, timeout_ms: int) -> None:
        """Tell the controller, after everything reported before; nothing comes back.

        A report under an old broker epoch is dropped: registering anew repeats what it said.
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
