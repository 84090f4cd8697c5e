"""What is done to coordinators: killed between any two steps, paused, their markers late."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raylog.actors.names import GROUP, TRANSACTION
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.damage import ROLES
from raylog.actors.simulation.faults import WEIGHTS, Faults
from raylog.actors.simulation.world import Resident
from raylog.actors.transaction.state import State

_ROLES = (*ROLES, TRANSACTION, TRANSACTION, GROUP)
TRANSACTION_WEIGHTS = {
    **WEIGHTS,
    "kill_coordinator": 4,
    "kill_at_failpoint": 6,
    "pause_coordinator": 2,
    "delay_markers": 4,
}
_STORED = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
)
FAILPOINTS = (
    *(f"{state.label}.{when}" for state in _STORED for when in ("decided", "durable")),
    "CoordinatorEpoch.decided",
    "CoordinatorEpoch.durable",
    "loading",
    "loaded",
    "markers.sending",
    "markers.sent",
    "markers.answered",
    "markers.written",
)


class Ended(BaseException):
    """The process ends here: nothing that it was about to do happens."""


class TransactionalFaults(Faults):
    """All that befalls other clusters, and more for coordinators."""

    def __init__(
        self, cluster: Cluster, random: Random, clients: int, weights: dict[str, int]
    ) -> None:
        super().__init__(cluster, random, clients, weights, _ROLES)

    def _by_name(self) -> dict[str, Callable[[], None]]:
        return {
            **super()._by_name(),
            "kill_coordinator": self._kill_coordinator,
            "kill_at_failpoint": self._kill_at_failpoint,
            "pause_coordinator": self._pause_coordinator,
            "delay_markers": self._delay_markers,
        }

    def heal(self) -> None:
        """Let coordinators live, too."""
        for resident in self._cluster.of_role(TRANSACTION):
            resident.actor.failpoints.clear()
        super().heal()

    def _coordinator(self) -> Resident | None:
        return self._do.victim(self._random.choice((TRANSACTION, TRANSACTION, GROUP)))

    def _kill_coordinator(self) -> None:
        victim = self._coordinator()
        if victim is not None:
            self._do.kill(victim)

    def _pause_coordinator(self) -> None:
        victim = self._coordinator()
        if victim is not None:
            self._do.pause(victim, self._do.seconds())

    def _kill_at_failpoint(self) -> None:
        """The next time that a coordinator comes to a place it ends there."""
        victim, name = self._do.victim(TRANSACTION), self._random.choice(FAILPOINTS)
        if victim is None:
            return

        def reached() -> None:
            self._do.tell(f"at {name}:")
            self._do.kill(victim)
            raise Ended

        victim.actor.failpoints.set(name, reached)

    def _delay_markers(self) -> None:
        """The next markers of a coordinator seem lost with their links, and arrive late."""
        victim = self._do.victim(TRANSACTION)
        if victim is None:
            return

        def reached() -> None:
            victim.actor.failpoints.clear()
            self._do.tell(f"markers of {victim.machine.name} are late")
            for link in tuple(victim.links):
                if link.source is victim and link.target_machine != victim.machine.name:
                    link.break_off(lingers=True)

        victim.actor.failpoints.set("markers.sent", reached)
