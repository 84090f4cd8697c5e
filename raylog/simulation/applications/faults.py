"""Faults of clients, in addition to those of their cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raylog.actors.names import BROKER
from raylog.simulation.network import CLIENT
from raylog.simulation.transactions.faults import (
    TRANSACTION_WEIGHTS,
    TransactionalFaults,
)

CLIENT_WEIGHTS = {
    **TRANSACTION_WEIGHTS,
    "jump_clock": 0,  # transaction timeouts use it
    "kill_client": 8,
    "pause_client": 5,
    "cut_client": 5,
    "hang_broker": 3,
}
HANGS_S = 4.0
"""A broker hangs for at least two sessions: others lead its partitions by then."""
LOST_S = 1.5


class ClientFaults(TransactionalFaults):
    """The faults of clusters with transactions, and faults of clients."""

    def _by_name(self) -> dict[str, Callable[[], None]]:
        return {
            **super()._by_name(),
            "kill_client": lambda: self._do.kill(self._do.victim(CLIENT)),
            "pause_client": lambda: self._do.pause(self._do.victim(CLIENT)),
            "cut_client": self._cut_client,
            "hang_broker": self._hang_broker,
        }

    def _hang_broker(self) -> None:
        """Hang a broker, and let clients lose its machine when others lead its partitions.

        Some find the new coordinators then, some the old ones, which its gateways still name.
        """
        broker = self._do.victim(BROKER)
        if broker is not None:
            seconds = HANGS_S + self._do.seconds()
            self._do.pause(broker, seconds)
            lost = partial(self._do.isolate, broker.machine, list(self._clients), LOST_S)
            self._do.later(self._random.uniform(LOST_S, seconds), lost)

    def _cut_client(self) -> None:
        """Cut a client off from one broker or from all."""
        client = self._random.choice(self._clients)
        machines = [one.name for one in self._cluster.machines]
        if self._random.random() < 0.5:
            machines = [self._random.choice(machines)]
        seconds = self._do.seconds()
        self._do.tell(f"{client} is cut off from {', '.join(machines)} for {seconds:.1f} s")
        there = [(client, one) for one in machines]
        self._do.cut(there + [(one, client) for one in machines], seconds)
