"""Links between simulated processes: in order, with latency, and broken as TCP connections are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from raylog.actors.runtime.base import Buffer, FailureHandler, PeerLost, ReplyHandler
from raylog.actors.runtime.links import LocalRequest, ask_over, joined
from raylog.simulation.loop import OUTSIDE
from raylog.simulation.network import Lane
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from raylog.simulation.world import Resident, World

LINGERS_S = 4.0
"""The longest delay with which data of a broken link may still arrive."""


class SimRequest(LocalRequest["SimLink"]):
    """A request between two simulated processes."""

    __slots__ = ()

    def reply(self, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Send the answer. Its payload is copied, as a network would do."""
        link = self._link
        data = memoryview(bytearray(b"".join(payload)))
        link.world.note("answer", link.number, self.kind)
        link.back.put(lambda: link.finish(self, lambda: self._answered(header, data)))

    def fail(self, failure: KafkaError) -> None:
        """Send an error."""
        self._link.back.put(lambda: self.give_up(failure))

    def give_up(self, failure: Exception) -> None:
        """Tell the requester that there will be no answer."""
        self._link.finish(self, lambda: self._failed(failure))


class SimLink:
    """A link from one process, or from outside, to another process."""

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
        """The name of the target's machine."""
        return self._ends[1]

    @property
    def is_open(self) -> bool:
        """Whether this side does not know that the link is broken."""
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

    ask = ask_over

    def _arrive(self, request: SimRequest) -> None:
        """Deliver a request in the target's process."""
        try:
            self._target.actor.link_received(request)
        except KafkaError as failure:
            request.fail(failure)

    def finish(self, request: SimRequest, tell: Callable[[], None]) -> None:
        """Deliver the answer in the requester's process, once."""
        if request in self._waiting:
            del self._waiting[request]
            tell()

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the other side is gone."""
        if self._open:
            self._on_lost.append(callback)
        else:
            callback()

    def _break_if_cut(self) -> None:
        if self._open and (self._there.is_cut or self.back.is_cut):
            self.world.note("break", self.number)
            self.break_off()

    def break_off(self, *, lingers: bool = False, late_s: float | None = None) -> None:
        """Break the connection. Each side learns it in its own time.

        With `lingers`, and if the network allows it, requests on their way still arrive, after
        `late_s` seconds if given. Nobody waits for their answers.
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
        """Deliver now what a broken link still carries."""
        self._there.release()

    def _detach(self) -> None:
        self._open = False
        self._target.links.pop(self, None)
        if self.source is not None:
            self.source.links.pop(self, None)

    def _learn(self) -> None:
        """Tell the requester's process that the link is lost."""
        self.back.close()
        for request in tuple(self._waiting):
            request.give_up(PeerLost("the peer ended, or the way to it"))
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback()

    def _part(self) -> None:
        """Tell the target's process that the requester is gone."""
        self._there.close()
        self._target.actor.link_lost(self.number)

    def close(self) -> None:
        """Close the link from the requester's side."""
        if self._open:
            self._detach()
            self._there.close()
            self._learn()
            context = self._target.process.context
            self.world.loop.call_later(0.0001, self._part, context=context)
