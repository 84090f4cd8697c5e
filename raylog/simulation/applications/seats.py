"""Client processes: each seat runs one application after another, which may be killed.

An application runs on its seat's machine in a process of its own, as an actor does. If the process
is killed, its code stops and its connections break. If it is paused, it stops for a while and then
continues as a zombie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from raylog.actors.runtime.base import ActorSpec, LinkRequest, PeerLost
from raylog.client.errors import ClientError
from raylog.simulation.applications.io import Sent, SimIo
from raylog.simulation.cluster import Cluster
from raylog.simulation.loop import OUTSIDE
from raylog.simulation.network import CLIENT
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.world import ActorClass, Machine
from raylog.wire.errors import KafkaError

LIVES_S = (0.5, 3.0, 10.0, 60.0)
"""Upper bounds of the time after which applications leave by themselves."""
EXPECTED = (ClientError, KafkaError)
"""What calls of a client may raise. Anything else is a bug and ends the process."""

_UNDERSTOOD = (*EXPECTED, PeerLost, TimeoutError, asyncio.CancelledError)
"""Allowed causes of such an exception."""


class Application(Protocol):
    """What a seat runs."""

    async def run(self) -> None:
        """Work until the life is over."""


@dataclass(slots=True)
class Life:
    """The lifetime of one application on its seat."""

    label: str
    seat: Seat
    runtime: SimRuntime
    random: Random
    leaves_s: float
    """Virtual time at which it leaves by itself."""

    def io(self, sent: Sent | None = None) -> SimIo:
        """The I/O of its client."""
        return SimIo(self.seat.cluster, self.runtime, self.label, sent)

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self.runtime.monotonic_ms() / 1_000

    @property
    def is_over(self) -> bool:
        """Whether the application should close its client and return."""
        if self.seat.stopping:
            return True
        return not self.seat.is_calm and self.now_s >= self.leaves_s

    def tell(self, text: str) -> None:
        """Add to the timeline."""
        self.seat.cluster.world.tell(f"{self.label} {text}")


class ClientProcess:
    """The actor that runs one application."""

    def __init__(
        self,
        runtime: SimRuntime,
        begin: Callable[[SimRuntime], Application],
        end: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._begin = begin
        self._end = end

    async def start(self) -> None:
        """Start the application."""
        self._runtime.start(self._run(), "application")

    async def _run(self) -> None:
        await self._begin(self._runtime).run()
        self._end()

    async def stop(self) -> None:
        """Do nothing: client processes are never asked to stop."""

    def link_received(self, request: LinkRequest) -> None:
        """Do nothing: client processes serve no links."""

    def link_lost(self, peer: int) -> None:
        """Do nothing: client processes serve no links."""


class Seat:
    """Runs one application after another, all of one kind."""

    def __init__(
        self, cluster: Cluster, number: int, label: str, make: Callable[[Life], Application]
    ) -> None:
        self.cluster = cluster
        self.label = label
        self.lives = 0
        self.is_calm = False
        """Whether applications stay until they are told to stop."""
        self.stopping = False
        self.stopped = False
        self._make = make
        self._machine = Machine(f"{CLIENT}-{number}", cluster.world.outside.disk)
        self._random = Random(f"{cluster.world.random.random()} {label}")  # noqa: S311 - must repeat

    async def run(self) -> None:
        """Run applications until told to stop."""
        while not self.stopping:
            await self._live()
            if not self.stopping:
                await self.cluster.runtime.sleep(self._random.choice((0.05, 0.3, 2.0)))
        self.stopped = True

    async def _live(self) -> None:
        world = self.cluster.world
        self.lives += 1
        name = f"clients/{self.label}/{self.lives}"
        over: asyncio.Future[None] = world.loop.create_future()
        args = {
            "begin": self._begin,
            "end": lambda: world.loop.call_soon(world.dismiss, name, context=OUTSIDE),
        }
        ref = await world.begin(ActorSpec(name, CLIENT, args), self._machine)
        self.cluster.runtime.watch(ref, lambda _: over.set_result(None))
        await over

    def _begin(self, runtime: SimRuntime) -> Application:
        random = Random(f"{runtime.random.random()} {self.lives}")  # noqa: S311 - must repeat
        now_s = self.cluster.world.loop.time()
        leaves_s = now_s + random.choice(LIVES_S) * random.random()
        return self._make(Life(f"{self.label}.{self.lives}", self, runtime, random, leaves_s))


def check_sound(failure: Exception) -> None:
    """Assert that a client's failure is not caused by a bug of the client."""
    cause = failure.__cause__
    while isinstance(cause, _UNDERSTOOD):
        cause = cause.__cause__
    assert cause is None, f"the client broke: {cause!r}"


def role_class(of_cluster: Callable[[str], ActorClass]) -> Callable[[str], ActorClass]:
    """Extend a cluster's role classes by the class of client processes."""
    return lambda role: ClientProcess if role == CLIENT else of_cluster(role)
