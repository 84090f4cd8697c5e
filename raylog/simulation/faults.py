"""What is done to clients, beside all that befalls their cluster."""

from __future__ import annotations

from collections.abc import Callable

from raylog.actors.simulation.network import CLIENT
from raylog.actors.simulation.transactions.faults import (
    TRANSACTION_WEIGHTS,
    TransactionalFaults,
)

CLIENT_WEIGHTS = {
    **TRANSACTION_WEIGHTS,
    "jump_clock": 0,  # timeouts of transactions go by it
    "kill_client": 8,
    "pause_client": 5,
    "cut_client": 5,
}


class ClientFaults(TransactionalFaults):
    """All that befalls clusters with transactions, and more for clients."""

    def _by_name(self) -> dict[str, Callable[[], None]]:
        return {
            **super()._by_name(),
            "kill_client": self._kill_client,
            "pause_client": self._pause_client,
            "cut_client": self._cut_client,
        }

    def _kill_client(self) -> None:
        victim = self._do.victim(CLIENT)
        if victim is not None:
            self._do.kill(victim)

    def _pause_client(self) -> None:
        victim = self._do.victim(CLIENT)
        if victim is not None:
            self._do.pause(victim, self._do.seconds())

    def _cut_client(self) -> None:
        """A client is cut off from one broker, or from all."""
        client = self._random.choice(self._clients)
        machines = [one.name for one in self._cluster.machines]
        if self._random.random() < 0.5:
            machines = [self._random.choice(machines)]
        seconds = self._do.seconds()
        self._do.tell(f"{client} is cut off from {', '.join(machines)} for {seconds:.1f} s")
        there = [(client, one) for one in machines]
        self._do.cut(there + [(one, client) for one in machines], seconds)
