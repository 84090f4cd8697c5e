"""What lies between simulated machines: delays, cuts that heal, calls and answers that get lost.

Messages within one machine take microseconds and are never lost. A link keeps the order of its
messages; a cut holds them back until it heals or the link breaks, as TCP would. A call's question
or answer may be lost; the question may come twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from raylog.actors.simulation.loop import OUTSIDE, SimLoop

Direction = tuple[str, str]
"""From machine, to machine."""


CLIENT = "client"
"""Machines so named hold clients, whose requests come over connections: never twice."""


class Fate(Enum):
    """What becomes of a call's question or answer."""

    ARRIVES = 1
    LOST = 2
    TWICE = 3
    LATE = 4
    """The caller is told that it is lost, and it comes."""


@dataclass(slots=True)
class Weather:
    """How bad the network is; probabilities of one message."""

    lost: float = 0.0
    twice: float = 0.0
    broken: float = 0.0
    """That a link breaks on a request."""
    late: float = 0.0


@dataclass(slots=True)
class _Way:
    """One direction between two machines."""

    base_s: float
    slow: float = 1.0
    cut: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)


class Network:
    """All directions between all machines."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.weather = Weather()
        self.lingering = 0.0
        """How often what a link still carries when it breaks arrives yet; a probability."""
        self._loop = loop
        self._random = random
        self._ways: dict[Direction, _Way] = {}

    def _way(self, source: str, target: str) -> _Way:
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = _Way(self._random.uniform(0.0001, 0.002))
        return way

    def delay_s(self, source: str, target: str) -> float:
        """How long the next message takes."""
        if source == target:
            return 0.00002 + self._random.random() * 0.0001
        way = self._way(source, target)
        return way.base_s * way.slow * (0.5 + self._random.random())

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing comes through now."""
        return source != target and self._way(source, target).cut

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in one direction."""
        self._way(source, target).cut = True

    def slow_down(self, source: str, target: str, factor: float) -> None:
        """Have messages take longer."""
        self._way(source, target).slow = factor

    def mend(self, source: str, target: str) -> None:
        """Let messages through again, held back ones first."""
        way = self._way(source, target)
        way.cut, way.slow = False, 1.0
        held, way.held = way.held, []
        for go_on in held:
            go_on()

    def heal(self) -> None:
        """Let everything through everywhere."""
        self.weather = Weather()
        for source, target in tuple(self._ways):
            self.mend(source, target)

    def fate(self, source: str, target: str) -> Fate:
        """What becomes of the next call's message."""
        if source == target:
            return Fate.ARRIVES
        weather = self.weather
        if self._way(source, target).cut and self._random.random() < 0.7:
            return Fate.LOST
        if weather.lost or weather.twice or weather.late:
            drawn = self._random.random() - weather.lost
            if drawn < 0:
                return Fate.LOST
            if drawn < weather.twice + weather.late and not source.startswith(CLIENT):
                return Fate.TWICE if drawn < weather.twice else Fate.LATE
        return Fate.ARRIVES

    def breaks(self, source: str, target: str) -> bool:
        """Whether a link breaks now."""
        broken = self.weather.broken
        return source != target and broken > 0 and self._random.random() < broken

    def send(
        self, source: str, target: str, deliver: Callable[[], None], context: Context = OUTSIDE
    ) -> None:
        """Have one message arrive, later if the way is cut; messages may overtake each other."""
        delay_s = self.delay_s(source, target)
        if source == target:
            self._loop.call_later(delay_s, deliver, context=context)
        else:
            self._loop.call_later(
                delay_s, self._arrive, source, target, deliver, context, context=OUTSIDE
            )

    def _arrive(
        self, source: str, target: str, deliver: Callable[[], None], context: Context
    ) -> None:
        way = self._way(source, target)
        if way.cut:
            way.held.append(lambda: self.send(source, target, deliver, context))
        else:
            self.hand_over(deliver, context)

    def hand_over(self, deliver: Callable[[], None], context: Context) -> None:
        """Have a message arrive now, in the context of who gets it."""
        if context is OUTSIDE:
            deliver()
        else:
            self._loop.run_in(context, deliver)

    def hold(self, source: str, target: str, go_on: Callable[[], None]) -> None:
        """Have `go_on` run when the way is mended."""
        self._way(source, target).held.append(go_on)


class Lane:
    """One direction of a link: messages arrive in order, and none while the way is cut."""

    __slots__ = (
        "_context",
        "_due",
        "_last_s",
        "_loop",
        "_network",
        "_source",
        "_stalled_s",
        "_target",
    )

    def __init__(
        self, loop: SimLoop, network: Network, source: str, target: str, context: Context
    ) -> None:
        self._loop = loop
        self._network = network
        self._source = source
        self._target = target
        self._context = context
        """Whose callback the arrival is."""
        self._last_s = 0.0
        self._stalled_s = 0.0
        """Nothing arrives before."""
        self._due: deque[Callable[[], None]] = deque()

    @property
    def is_cut(self) -> bool:
        """Whether nothing comes through now."""
        return self._network.is_cut(self._source, self._target)

    def put(self, deliver: Callable[[], None]) -> None:
        """Have `deliver` run after a delay, not before what was put earlier."""
        delay_s = self._network.delay_s(self._source, self._target)
        self._last_s = max(self._last_s, self._loop.time() + delay_s)
        self._due.append(deliver)
        self._loop.call_at(self._last_s, self._next, context=OUTSIDE)

    def _next(self) -> None:
        if self._network.is_cut(self._source, self._target):
            self._network.hold(self._source, self._target, self._next)
        elif self._loop.time() < self._stalled_s:
            self._loop.call_at(self._stalled_s, self._next, context=OUTSIDE)
        elif self._due:
            self._network.hand_over(self._due.popleft(), self._context)

    def stall(self, seconds: float) -> None:
        """Let nothing arrive for a while."""
        self._stalled_s = self._loop.time() + seconds

    def release(self) -> None:
        """Let arrive now what was stalled."""
        self._stalled_s = 0.0
        for _ in range(len(self._due)):
            self._next()

    def close(self) -> None:
        """Nothing more arrives."""
        self._due.clear()
