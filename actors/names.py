"""Names of actors, by which those of a cluster find each other, and of internal topics."""

from __future__ import annotations

CONTROLLER = "controller"
BROKER = "broker"
GATEWAY = "gateway"
REPLICA = "replica"
GROUP = "group"
"""The group coordinator."""
TRANSACTION = "transaction"
"""The transaction coordinator."""
SUPERVISOR = "supervisor"

_HOST_MARK = "@"
_CHILD_PARTS = 4
"""Parts of a `child_name`."""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


def controller_name(cluster_id: str) -> str:
    """The cluster's first controller."""
    return f"{cluster_id}/{CONTROLLER}"


def supervisor_name(cluster_id: str) -> str:
    """The supervisor, which keeps the wanted brokers running."""
    return f"{cluster_id}/{SUPERVISOR}"


def rival_name(cluster_id: str, broker_id: int, number: int) -> str:
    """A controller that a broker starts when the current one does not answer."""
    return f"{controller_name(cluster_id)}/{broker_id}.{number}"


def broker_name(cluster_id: str, broker_id: int) -> str:
    """Return the name of a broker."""
    return child_name(cluster_id, BROKER, broker_id, 0)


def child_name(cluster_id: str, role: str, broker_id: int, number: int) -> str:
    """Return the name of the `number`th child actor of a role that a broker owns."""
    return f"{cluster_id}/{role}/{broker_id}/{number}"


def owner_of(name: str) -> int | None:
    """The id of the broker that an actor is or belongs to; None if it belongs to none."""
    parts = host_of(name).split("/")
    return int(parts[2]) if len(parts) == _CHILD_PARTS else None


def colocated_name(name: str, host: str) -> str:
    """An actor that runs in the process of another, `host`, which must run already."""
    return f"{name}{_HOST_MARK}{host}"


def process_label(name: str) -> str:
    """An actor's label in metrics: its role, and its number within the role."""
    role, *numbers = name.rpartition(_HOST_MARK)[0 if _HOST_MARK in name else 2].split("/")[1:]
    return "-".join([role, *numbers[-1:]])


def host_of(name: str) -> str:
    """The actor in whose process this one runs: itself, unless it is co-located."""
    return name.rpartition(_HOST_MARK)[2]
