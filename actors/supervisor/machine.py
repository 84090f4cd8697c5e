"""What the supervisor decides: which brokers are to be started, and what stands in the way.

| a wanted broker                                | what is done                                    |
|------------------------------------------------|-------------------------------------------------|
| has an actor, in whatever state                | nothing: Ray restarts it where its labels are   |
| has none, and one live node carries its labels | it is started there                             |
| has none, and no live node carries them        | it waits, and that is told                      |
| has none, and several nodes carry them         | it is not started, and that is told             |
| did not start                                  | it is started again, ever more slowly           |

Brokers that are not wanted are left alone: who makes them unwanted ends them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from raylog.actors.backoff import Backoff
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import NodeEntry
from raylog.actors.supervisor.desired import DesiredCluster

NODES_NAMED = 3


class SupervisorMachine:
    """Compares desired with actual; knows who is being started, and who keeps failing."""

    def __init__(self) -> None:
        self._starting: set[int] = set()
        self._backoffs: dict[int, Backoff] = {}
        self._failures: dict[int, str] = {}
        self.troubles: dict[int, str] = {}
        """Why a wanted broker does not run, or may not when it has to start again."""

    def decide(
        self,
        desired: DesiredCluster,
        nodes: Sequence[NodeEntry],
        actors: Collection[str],
        now_ms: float,
    ) -> list[BrokerWanted]:
        """The brokers to be started now; `started` or `failed` follows for each.

        `nodes` are the live ones, `actors` the names that somebody carries.
        """
        self.troubles = {}
        starts = []
        for wanted in desired.brokers:
            carriers = [node for node in nodes if wanted.labels.items() <= node.labels.items()]
            broker_id = wanted.broker_id
            if len(carriers) > 1:
                self.troubles[broker_id] = _several(wanted, carriers)
            if broker_name(desired.cluster_id, broker_id) in actors or broker_id in self._starting:
                continue
            if not carriers:
                self.troubles[broker_id] = f"no live node carries {_told(wanted)}"
            elif len(carriers) == 1:
                if broker_id in self._failures:
                    self.troubles[broker_id] = self._failures[broker_id]
                if not self._backoff(broker_id).wait_ms(now_ms):
                    starts.append(wanted)
        self._starting.update(one.broker_id for one in starts)
        return starts

    def started(self, broker_id: int) -> None:
        """A broker's actor runs."""
        self._starting.discard(broker_id)
        self._failures.pop(broker_id, None)

    def failed(self, broker_id: int, why: str, now_ms: float) -> None:
        """A broker did not start."""
        self._starting.discard(broker_id)
        self._failures[broker_id] = why
        self._backoff(broker_id).lost(now_ms)

    def _backoff(self, broker_id: int) -> Backoff:
        return self._backoffs.setdefault(broker_id, Backoff())


def _several(wanted: BrokerWanted, carriers: Sequence[NodeEntry]) -> str:
    named = ", ".join(node.node_id for node in carriers[:NODES_NAMED])
    return f"expected one node with {_told(wanted)}, found {len(carriers)}: {named}"


def _told(wanted: BrokerWanted) -> str:
    return ", ".join(f"{name}={value}" for name, value in wanted.labels.items())
