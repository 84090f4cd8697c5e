"""What is done to the coordinators of groups."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raylog.actors.names import GROUP
from raylog.actors.simulation.agreement import GivenOut
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.damage import ROLES
from raylog.actors.simulation.faults import WEIGHTS, Faults

GROUP_WEIGHTS = {**WEIGHTS, "kill_coordinator": 5, "pause_coordinator": 3}


class GroupFaults(Faults):
    """All that befalls other clusters, and more for coordinators of groups."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        clients: int,
        weights: dict[str, int],
        given_out: GivenOut,
    ) -> None:
        super().__init__(cluster, random, clients, weights, given_out, (*ROLES, GROUP, GROUP))

    def _by_name(self) -> dict[str, Callable[[], None]]:
        return {
            **super()._by_name(),
            "kill_coordinator": self.kill_coordinator,
            "pause_coordinator": self._pause_coordinator,
        }

    def kill_coordinator(self) -> None:
        """End a coordinator, or who leads its log: shards are read again."""
        victim = self._do.victim(GROUP)
        if victim is not None:
            self._do.kill(victim)

    def _pause_coordinator(self) -> None:
        victim = self._do.victim(GROUP)
        if victim is not None:
            self._do.pause(victim, self._do.seconds())
