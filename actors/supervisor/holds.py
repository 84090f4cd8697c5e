"""Brokers that are to stay stopped for a while, though they are wanted.

| a hold that was made              | ends                                                         |
|-----------------------------------|--------------------------------------------------------------|
| for a machine that goes down      | when its label is carried by a node with another id: the     |
| (`raylog brokers stop --here`)    | machine is back, for Ray names a node anew at each start     |
| by hand (`raylog brokers stop N`) | by `raylog brokers start N`, and by nothing else             |

They are notes in Ray's key-value store (`supervisor.notes`). Where that is lost, `raylog up` starts
all brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.runtime.base import NodeEntry, Runtime
from raylog.actors.supervisor.notes import note_key, notes_of, to_note

HOLD = "hold"
"""The kind of these notes."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a broker is not started."""

    broker_id: int
    why: str
    node_id: str = ""
    """The Ray node that goes down; "" where the hold ends by command only."""
    since_ms: int = 0
    """Wall-clock time in ms since the epoch."""

    def ends_with(self, carriers: Sequence[NodeEntry]) -> bool:
        """Whether the machine is back, going by the live nodes that carry the broker's labels."""
        return bool(self.node_id and carriers) and all(
            one.node_id != self.node_id for one in carriers
        )


def _hold(values: dict[str, Any]) -> Hold:
    return Hold(
        int(values["broker_id"]),
        str(values["why"]),
        str(values["node_id"]),
        int(values["since_ms"]),
    )


def carriers_of(wanted: BrokerWanted, nodes: Iterable[NodeEntry]) -> list[NodeEntry]:
    """The nodes that carry a broker's labels."""
    return [node for node in nodes if wanted.labels.items() <= node.labels.items()]


def told_of(holds: Mapping[int, Hold]) -> dict[int, str]:
    """The holds in words, by broker id."""
    return {one.broker_id: f"is held: {one.why}" for one in holds.values()}


# ---- the store ---------------------------------------------------------------------------


async def holds_of(runtime: Runtime, cluster_id: str) -> dict[int, Hold]:
    """The holds of a cluster, by broker id. Raises PeerLost, PeerTimeout.

    One that this build cannot read holds its broker all the same, until that is started by command.
    """
    return await notes_of(
        runtime, HOLD, cluster_id, _hold, lambda broker_id, why: Hold(broker_id, str(why))
    )


async def hold(runtime: Runtime, cluster_id: str, held: Hold) -> None:
    """Make a hold, or put it in the place of another one of that broker."""
    await runtime.kv_put(note_key(HOLD, cluster_id, held.broker_id), to_note(asdict(held)))


async def release(
    runtime: Runtime, cluster_id: str, broker_id: int, only: Hold | None = None
) -> None:
    """End a hold; none there is fine. With `only` no other one that was made meanwhile."""
    if only is None or (await holds_of(runtime, cluster_id)).get(broker_id) == only:
        await runtime.kv_delete(note_key(HOLD, cluster_id, broker_id))
