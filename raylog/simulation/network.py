"""The network between simulated machines: latency, temporary partitions, lost calls and answers.

Messages within one machine take microseconds and are never lost. A link keeps the order of its
messages. A cut delays them until it ends or the link breaks, as with TCP. The question or the
answer of a call may be lost, and the question may arrive twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from raylog.simulation.loop import OUTSIDE, SimLoop

Direction = tuple[str, str]
"""From machine, to machine."""


CLIENT = "client"
"""The prefix of clients' machines. Clients use connections, so their requests never arrive
twice."""


class Fate(Enum):
    """What happens to the question or the answer of a call."""

    ARRIVES = 1
    LOST = 2
    TWICE = 3
    LATE = 4
    """The caller is told that it is lost, and it arrives later."""


@dataclass(slots=True)
class Weather:
    """How bad the network is: probabilities per message."""

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
        """Probability that data on a link arrives although the link broke."""
        self._loop = loop
        self._random = random
        self._ways: dict[Direction, _Way] = {}

    def _way(self, source: str, target: str) -> _Way:
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = _Way(self._random.uniform(0.0001, 0.002))
        return way

    def delay_s(self, source: str, target: str) -> float:
        """The latency of the next message."""
        if source == target:
            return 0.00002 + self._random.random() * 0.0001
        way = self._way(source, target)
        return way.base_s * way.slow * (0.5 + self._random.random())

    def is_cut(self, source: str, target: str) -> bool:
        """Whether a direction is blocked."""
        return source != target and self._way(source, target).cut

    def cut(self, source: str, target: str) -> None:
        """Block one direction."""
        self._way(source, target).cut = True

    def slow_down(self, source: str, target: str, factor: float) -> None:
        """Multiply the latency of a direction by a factor."""
        self._way(source, target).slow = factor

    def mend(self, source: str, target: str) -> None:
        """Unblock a direction and deliver the delayed messages."""
        way = self._way(source, target)
        way.cut, way.slow = False, 1.0
        held, way.held = way.held, []
        for go_on in held:
            go_on()

    def heal(self) -> None:
        """Unblock all directions."""
        self.weather = Weather()
        for source, target in tuple(self._ways):
            self.mend(source, target)

    def fate(self, source: str, target: str) -> Fate:
        """What happens to the next call's message."""
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
        """Deliver one message, later if the direction is blocked.

        Messages may overtake each other.
        """
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
        """Deliver a message now, in the receiver's context."""
        if context is OUTSIDE:
            deliver()
        else:
            self._loop.run_in(context, deliver)

    def hold(self, source: str, target: str, go_on: Callable[[], None]) -> None:
        """Call `go_on` when the direction is unblocked."""
        self._way(source, target).held.append(go_on)


class Lane:
    """One direction of a link.

    Messages arrive in order, and none while the direction is blocked.
    """

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
        """The context of the receiver."""
        self._last_s = 0.0
        self._stalled_s = 0.0
        """Nothing arrives before this time."""
        self._due: deque[Callable[[], None]] = deque()

    @property
    def is_cut(self) -> bool:
        """Whether the direction is blocked."""
        return self._network.is_cut(self._source, self._target)

    def put(self, deliver: Callable[[], None]) -> None:
        """Call `deliver` after the latency, but not before what was put earlier."""
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
        """Let nothing arrive for some seconds."""
        self._stalled_s = self._loop.time() + seconds

    def release(self) -> None:
        """Deliver now what was stalled."""
        self._stalled_s = 0.0
        for _ in range(len(self._due)):
            self._next()

    def close(self) -> None:
        """Drop everything that has not arrived."""
        self._due.clear()
