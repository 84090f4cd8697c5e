"""Primitives of faults: whom to hit, for how long, and how to undo it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, REPLICA
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.simulation.cluster import Cluster
from raylog.simulation.loop import OUTSIDE
from raylog.simulation.network import Direction
from raylog.simulation.world import Machine, Resident

ROLES = (REPLICA, REPLICA, REPLICA, BROKER, CONTROLLER, GATEWAY)

SHUTDOWN_MS = 5_000
"""A broker that shuts down is killed after this time."""


class Damage:
    """Applies single faults to a cluster, tells the timeline, and undoes them after their time."""

    def __init__(self, cluster: Cluster, random: Random, roles: tuple[str, ...] = ROLES) -> None:
        self._roles = roles
        self.cluster = cluster
        self.world = cluster.world
        self.random = random
        self.is_over = False
        """Set when faults are over. Scheduled actions are then skipped."""

    def tell(self, text: str) -> None:
        """Add to the timeline."""
        self.world.tell(text)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Run `do` after a while."""
        self.world.loop.call_later(seconds, do, context=OUTSIDE)

    # ---- targets and durations -----------------------------------------------------------

    def machine(self) -> Machine:
        """A random machine."""
        return self.random.choice(self.cluster.machines)

    def others(self, machine: Machine) -> list[str]:
        """The names of all machines but one."""
        return [one.name for one in self.cluster.machines if one is not machine]

    def pair(self) -> Direction:
        """A random direction between two machines."""
        one, other = self.random.sample(self.cluster.machines, 2)
        return one.name, other.name

    def victim(self, *roles: str) -> Resident | None:
        """A random living actor of these roles. Of all roles, a replica is the most likely."""
        found = self.cluster.of_role(*(roles or (self.random.choice(self._roles),)))
        return self.random.choice(found) if found else None

    def on(self, machine: Machine, role: str) -> Resident | None:
        """The actor of a role on a machine."""
        return next((one for one in self.cluster.of_role(role) if one.machine is machine), None)

    def seconds(self) -> float:
        """A random duration of a fault."""
        return self.random.choice((1.0, 4.0, 12.0)) * self.random.random() + 0.3

    # ---- single faults -------------------------------------------------------------------

    def kill(self, victim: Resident | None) -> None:
        """Kill a process, if there is one."""
        if self.is_over or victim is None:
            return
        self.tell(f"kill {_short(victim)}")
        self.world.kill(victim.ref.name)

    def restart_cleanly(self, broker: Resident) -> None:
        """Shut a broker down as an operator does. It then restarts."""
        if self.is_over:
            return
        self.tell(f"{_short(broker)} shuts down")
        self.cluster.runtime.start(self._restart_cleanly(broker), "restart cleanly")

    async def _restart_cleanly(self, broker: Resident) -> None:
        try:
            await self.cluster.runtime.call(broker.ref, "shutdown", timeout_ms=SHUTDOWN_MS)
        except (PeerLost, PeerTimeout) as failure:
            self.world.note("not shut down", type(failure).__name__)
        if broker.process.alive:
            self.world.kill(broker.ref.name)

    def pause(self, victim: Resident | None, seconds: float | None = None) -> None:
        """Pause a process, as SIGSTOP does, for a random time if none is given."""
        if victim is None:
            return
        seconds = self.seconds() if seconds is None else seconds
        if not (victim.process.paused or self.is_over):
            self.tell(f"pause {_short(victim)} for {seconds:.1f} s")
            self.world.pause(victim, seconds)

    def cut(self, pairs: list[Direction], seconds: float) -> None:
        """Block some directions."""
        if self.is_over:
            return
        network = self.world.network
        for source, target in pairs:
            network.cut(source, target)

        def mend() -> None:
            for source, target in pairs:
                network.mend(source, target)

        self.later(seconds, mend)

    def isolate(self, machine: Machine, others: list[str], seconds: float) -> None:
        """Block both directions between a machine and others."""
        pairs = [(machine.name, other) for other in others]
        self.cut(pairs + [(other, one) for one, other in pairs], seconds)

    def slow(self, pairs: list[Direction], factor: float, seconds: float) -> None:
        """Increase the latency of some directions."""
        if self.is_over:
            return
        network = self.world.network
        for source, target in pairs:
            network.slow_down(source, target, factor)

        def mend() -> None:
            for source, target in pairs:
                network.slow_down(source, target, 1.0)

        self.later(seconds, mend)


def _short(resident: Resident) -> str:
    return f"{resident.ref.name.partition('/')[2]} on {resident.machine.name}"
