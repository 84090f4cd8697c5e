"""Faults of transaction coordinators: killed between any two steps, paused, markers delayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from raylog.actors.common_messages import TopicId
from raylog.actors.names import GROUP, REPLICA, TRANSACTION
from raylog.actors.transaction.rules.state import State
from raylog.simulation.agreement import GivenOut
from raylog.simulation.cluster import Cluster
from raylog.simulation.damage import ROLES
from raylog.simulation.faults import WEIGHTS, Faults
from raylog.simulation.link import LINGERS_S, SimLink
from raylog.simulation.world import Resident

_ROLES = (*ROLES, TRANSACTION, TRANSACTION, GROUP)
TRANSACTION_WEIGHTS = {
    **WEIGHTS,
    "kill_coordinator": 4,
    "kill_at_failpoint": 6,
    "pause_coordinator": 2,
    "delay_markers": 4,
    "delay_many_markers": 3,
    "die_of_late_markers": 3,
    "lose_decision": 3,
}
LATE_S = (0.5, 2.0, 7.0)
"""For how long markers are delayed."""
RENEW_S = 0.05
LOST_S = 0.03
"""How long a coordinator that cannot store its decision stays alive."""
LOOK_S = 0.003
"""How often to check whether it is time to deliver a delayed marker."""
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


Marked = tuple[int, TopicId, int]
"""A producer and a partition that gets its marker."""


class Ended(BaseException):
    """Ends the process here: nothing that it was about to do happens."""


class TransactionalFaults(Faults):
    """The faults of other clusters, and faults of coordinators."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        clients: int,
        weights: dict[str, int],
        given_out: GivenOut,
    ) -> None:
        super().__init__(cluster, random, clients, weights, given_out, _ROLES)

    def _by_name(self) -> dict[str, Callable[[], None]]:
        return {
            **super()._by_name(),
            "kill_coordinator": lambda: self._do.kill(self._coordinator()),
            "kill_at_failpoint": self._kill_at_failpoint,
            "pause_coordinator": lambda: self._do.pause(self._coordinator()),
            "delay_markers": self._delay_markers,
            "delay_many_markers": self._delay_many_markers,
            "die_of_late_markers": self._die_of_late_markers,
            "lose_decision": self._lose_decision,
        }

    def heal(self) -> None:
        """End every fault, including failpoints."""
        for resident in self._cluster.of_role(TRANSACTION):
            resident.actor.failpoints.clear()
        super().heal()

    def _coordinator(self) -> Resident | None:
        return self._do.victim(self._random.choice((TRANSACTION, TRANSACTION, GROUP)))

    def _kill_at_failpoint(self) -> None:
        """Kill a coordinator when it reaches a failpoint."""
        victim, name = self._do.victim(TRANSACTION), self._random.choice(FAILPOINTS)
        if victim is None:
            return

        def reached() -> None:
            self._do.tell(f"at {name}:")
            self._do.kill(victim)
            raise Ended

        victim.actor.failpoints.set(name, reached)

    def _delay_markers(self) -> None:
        """Break the links that carry a coordinator's next markers. They arrive late."""
        victim = self._do.victim(TRANSACTION)
        if victim is None:
            return

        def reached() -> None:
            victim.actor.failpoints.clear()
            self._do.tell(f"markers of {victim.machine.name} are late")
            for link in tuple(victim.links):
                if _leads_away(link, victim):
                    link.break_off(lingers=True)

        victim.actor.failpoints.set("markers.sent", reached)

    def _delay_many_markers(self) -> None:
        """Delay half of all markers for some time, so that they meet later transactions."""

        def reached(victim: Resident) -> None:
            if (marked := self._sent_away(victim)) and self._random.random() < 0.5:
                self._meet_the_next(victim, marked)

        self._do.tell("many markers are late")
        self._for_a_while(reached)

    def _die_of_late_markers(self) -> None:
        """Kill coordinators while their markers are in flight. Their successors repeat them."""

        def reached(victim: Resident) -> None:
            if (marked := self._sent_away(victim)) and self._random.random() < 0.3:
                self._do.tell(f"markers of {victim.machine.name} outlive it:")
                self._meet_the_next(victim, marked)
                self._do.kill(victim)
                raise Ended

        self._for_a_while(reached)

    def _for_a_while(self, reached: Callable[[Resident], None]) -> None:
        """Call `reached` for some time whenever any coordinator has sent markers."""
        until_s = self._do.world.loop.time() + self._random.choice(LATE_S)

        def renew() -> None:
            is_over = self._do.is_over or self._do.world.loop.time() > until_s
            for one in self._cluster.of_role(TRANSACTION):
                if is_over:
                    one.actor.failpoints.clear()
                else:
                    one.actor.failpoints.set("markers.sent", partial(reached, one))
            if not is_over:
                self._do.later(RENEW_S, renew)

        renew()

    def _lose_decision(self) -> None:
        """Lose a decision that is not in the log yet. Neither client nor coordinator repeats it."""
        victim = self._serving_coordinator()
        if victim is None:
            return

        def reached() -> None:
            victim.actor.failpoints.clear()
            machine = victim.machine
            self._do.tell(f"a decision is lost on {machine.name}:")
            logs = [one for one in self._cluster.of_role(REPLICA) if one.machine is machine]
            for one in logs:
                self._do.pause(one, 1.0)
            for one in (*logs, victim):
                self._do.later(LOST_S, partial(self._do.kill, one))
            machines = [one.name for one in self._cluster.machines]
            pairs = [(client, one) for client in self._clients for one in machines]
            back = [(one, client) for client, one in pairs]
            self._do.cut(pairs + back, self._random.uniform(1.0, 6.0))

        victim.actor.failpoints.set(f"{State.PREPARE_COMMIT.label}.decided", reached)

    def _serving_coordinator(self) -> Resident | None:
        """A coordinator with transactional ids, if there is one."""
        found = [
            one
            for one in self._cluster.of_role(TRANSACTION)
            if any(host.is_active and host.shard.ids.transactions for host in one.actor._shards)
        ]
        return self._random.choice(found) if found else None

    def _sent_away(self, victim: Resident) -> set[Marked]:
        """The markers in flight from a coordinator to other machines."""
        return {
            (piece.sending.markers.producer_id, piece.topic_id, piece.index)
            for piece in victim.actor._sender._unanswered
            if self._cluster.machine_of(piece.leader) is not victim.machine
        }

    def _meet_the_next(self, victim: Resident, marked: set[Marked]) -> None:
        """Deliver the markers in flight when one of the producers has its next transaction open.

        If none has, they arrive much later. The sender learns that its links are broken.
        """
        before = self._open_among(marked)
        links = [one for one in tuple(victim.links) if _leads_away(one, victim)]
        for link in links:
            link.break_off(lingers=True, late_s=LINGERS_S)
        until_s = self._do.world.loop.time() + LINGERS_S
        moment_s = self._random.choice((0.0, 0.01, 0.05))

        def look() -> None:
            if self._open_among(marked) - before:
                for link in links:
                    self._do.later(moment_s, link.release)
            elif self._do.world.loop.time() < until_s:
                self._do.later(LOOK_S, look)

        look()

    def _open_among(self, marked: set[Marked]) -> set[tuple[int, int]]:
        """The open transactions of these producers and partitions: producer id, first offset."""
        return {
            (producer_id, start)
            for _, replica in self._cluster.replicas()
            for key, partition in replica._partitions.items()
            if partition.machine.is_leader
            for producer_id, *place in marked
            if key == tuple(place)
            and (start := partition.log.producers.transaction_start(producer_id)) >= 0
        }


def _leads_away(link: SimLink, victim: Resident) -> bool:
    return link.source is victim and link.target_machine != victim.machine.name
