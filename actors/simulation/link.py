"""Links between simulated processes: in order, with delays, broken as TCP connections break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from raylog.actors.runtime.base import Buffer, FailureHandler, PeerLost, ReplyHandler
from raylog.actors.runtime.links import ask_over, joined
from raylog.actors.simulation.loop import OUTSIDE
from raylog.actors.simulation.network import Lane
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from raylog.actors.simulation.world import Resident, World

LINGERS_S = 4.0
"""How late what a broken link carries may arrive, at most."""


class SimRequest:
    """A request as the process that answers it sees it."""

    __slots__ = ("_answered", "_failed", "_link", "header", "kind", "payload", "peer")

    def __init__(
        self,
        link: SimLink,
        kind: str,
        header: Any,
        payload: memoryview,
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        self.peer = link.number
        self.kind = kind
        self.header = header
        self.payload = payload
        self._link = link
        self._answered = answered
        self._failed = failed

    def reply(self, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Send the answer; its payload is copied, as a network would."""
        link = self._link
        data = memoryview(bytearray(b"".join(payload)))
        link.world.note("answer", link.number, self.kind)
        link.back.put(lambda: link.finish(self, lambda: self._answered(header, data)))

    def fail(self, failure: KafkaError) -> None:
        """Send an error."""
        self._link.back.put(lambda: self.give_up(failure))

    def give_up(self, failure: Exception) -> None:
        """The requester learns that there will be no answer."""
        self._link.finish(self, lambda: self._failed(failure))


class SimLink:
    """A link from one process, or from outside, to another."""

    unsent_bytes = 0

    def __init__(self, world: World, source: Resident | None, target: Resident) -> None:
        self.world = world
        self.number = next(world.numbers)
        here = world.machine_of(source)
        there = target.machine.name
        self._here = OUTSIDE if source is None else source.process.context
        self._target = target
        self._there = Lane(world.loop, world.network, here, there, target.process.context)
        self.back = Lane(world.loop, world.network, there, here, self._here)
        self._ends = (here, there)
        self._waiting: dict[SimRequest, None] = {}
        self._on_lost: list[Callable[[], None]] = []
        self._open = True
        target.links[self] = None
        self.source = source
        if source is not None:
            source.links[self] = None

    @property
    def target_machine(self) -> str:
        """The name of the machine that it leads to."""
        return self._ends[1]

    @property
    def is_open(self) -> bool:
        """Whether this side does not know it to be broken."""
        return self._open

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Buffer],
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        """Send a request."""
        if not self._open:
            failed(PeerLost("the link is closed"))
            return
        world = self.world
        world.note("request", self.number, kind)
        data = joined([bytearray(b"".join(payload))])
        request = SimRequest(self, kind, header, data, answered, failed)
        self._waiting[request] = None
        if world.network.breaks(*self._ends):
            world.note("break", self.number)
            self.break_off()
            return
        if self._there.is_cut:
            world.loop.call_later(
                world.random.uniform(0.5, 20), self._break_if_cut, context=OUTSIDE
            )
        self._there.put(lambda: self._arrive(request))

    def ask(
        self, kind: str, header: Any = None, payload: Sequence[Buffer] = ()
    ) -> asyncio.Future[Any]:
        """Send a request and await the answer's header."""
        return ask_over(self, kind, header, payload)

    def _arrive(self, request: SimRequest) -> None:
        """In the target's process."""
        try:
            self._target.actor.link_received(request)
        except KafkaError as failure:
            request.fail(failure)

    def finish(self, request: SimRequest, tell: Callable[[], None]) -> None:
        """In the requester's process: the answer, once."""
        if request in self._waiting:
            del self._waiting[request]
            tell()

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the other side is gone."""
        if self._open:
            self._on_lost.append(callback)
        else:
            callback()

    def _break_if_cut(self) -> None:
        if self._open and (self._there.is_cut or self.back.is_cut):
            self.world.note("break", self.number)
            self.break_off()

    def break_off(self, *, lingers: bool = False, late_s: float | None = None) -> None:
        """The connection breaks: each side learns it in its own time.

        With `lingers`, and where the network is like that, what is on its way to the target
        arrives late, though nobody waits for an answer: after `late_s`, if that is given.
        """
        if not self._open:
            return
        loop, random = self.world.loop, self.world.random
        self._detach()
        loop.call_later(0.0001, self._learn, context=self._here)
        known_s = random.uniform(0.0001, 0.5)
        lingering = self.world.network.lingering
        if lingers or (lingering and random.random() < lingering):
            late_s = LINGERS_S * random.random() ** 2 if late_s is None else late_s
            self._there.stall(late_s)
            known_s += late_s
        else:
            self._there.close()
        loop.call_later(known_s, self._part, context=self._target.process.context)

    def release(self) -> None:
        """Have what a broken link still carries arrive now."""
        self._there.release()

    def _detach(self) -> None:
        self._open = False
        self._target.links.pop(self, None)
        if self.source is not None:
            self.source.links.pop(self, None)

    def _learn(self) -> None:
        """In the requester's process: nothing more will come."""
        self.back.close()
        for request in tuple(self._waiting):
            request.give_up(PeerLost("the peer ended, or the way to it"))
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback()

    def _part(self) -> None:
        """In the target's process: the requester is gone."""
        self._there.close()
        self._target.actor.link_lost(self.number)

    def close(self) -> None:
        """End the link from the requester's side."""
        if self._open:
            self._detach()
            self._there.close()
            self._learn()
            context = self._target.process.context
            self.world.loop.call_later(0.0001, self._part, context=context)
