"""Ray nodes, and where actors may run."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.message import message

NODE_ID_LABEL = "ray.io/node-id"
"""The label with Ray's id of a node."""


@message
@dataclass(frozen=True, slots=True)
class Share:
    """A resource reservation on one node for the actors that share it, running or not."""

    name: str
    """Unique in the Ray cluster."""
    cpus: float
    memory_bytes: int
    resources: dict[str, float] = field(default_factory=dict)
    """Custom resources."""


@message
@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor may run: only on nodes with all these labels."""

    labels: dict[str, str]
    share: Share | None = None
    """The reservation it uses. It is created on first use and keeps its actors on one node."""


def on_node(node_id: str) -> Place:
    """Return the place of one node, by its id, which it keeps until it goes down."""
    return Place({NODE_ID_LABEL: node_id})


@message
@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A live node."""

    node_id: str
    address: str
    """The address under which others reach it."""
    labels: dict[str, str]
