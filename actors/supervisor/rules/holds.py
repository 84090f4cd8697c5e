"""Holds: wanted brokers that stay stopped for a while.

| hold created                      | ends                                                         |
|-----------------------------------|--------------------------------------------------------------|
| for a machine that goes down      | when a node with another id carries its label: the machine   |
| (`raylog brokers stop --here`)    | is back, since Ray assigns a new node id at each start       |
| by hand (`raylog brokers stop N`) | only by `raylog brokers start N`                             |

Holds are notes in Ray's key-value store (`supervisor.notes`). If the store is lost, `raylog up`
starts all brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.places import NodeEntry


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on a broker, which is not started until it ends."""

    broker_id: int
    why: str
    node_id: str = ""
    """The Ray node that goes down; "" if the hold ends only by command."""
    since_ms: int = 0
    """Wall-clock time in ms since the epoch."""

    def ends_with(self, carriers: Sequence[NodeEntry]) -> bool:
        """Whether the machine is back, given the live nodes that carry the broker's labels."""
        return bool(self.node_id and carriers) and all(
            one.node_id != self.node_id for one in carriers
        )


def carriers_of(wanted: BrokerWanted, nodes: Iterable[NodeEntry]) -> list[NodeEntry]:
    """Return the nodes that carry a broker's labels."""
    return [node for node in nodes if wanted.labels.items() <= node.labels.items()]


def describe_holds(holds: Mapping[int, Hold]) -> dict[int, str]:
    """Describe the holds, by broker id."""
    return {one.broker_id: f"is held: {one.why}" for one in holds.values()}
