"""Faults of group coordinators."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raylog.actors.names import GROUP
from raylog.simulation.agreement import GivenOut
from raylog.simulation.cluster import Cluster
from raylog.simulation.damage import ROLES
from raylog.simulation.faults import WEIGHTS, Faults

GROUP_WEIGHTS = {**WEIGHTS, "kill_coordinator": 5, "pause_coordinator": 3}


class GroupFaults(Faults):
    """The faults of other clusters, and faults of group coordinators."""

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
            "pause_coordinator": lambda: self._do.pause(self._do.victim(GROUP)),
        }

    def kill_coordinator(self) -> None:
        """Kill a coordinator or the leader of its log, so that shards are loaded again."""
        self._do.kill(self._do.victim(GROUP))
