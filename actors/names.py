"""Names of actors, by which those of one cluster find one another, and of internal topics."""

from __future__ import annotations

CONTROLLER = "controller"
BROKER = "broker"
GATEWAY = "gateway"
REPLICA = "replica"
GROUP = "group"
"""The coordinator of consumer groups."""
TRANSACTION = "transaction"
"""The coordinator of transactions."""
SUPERVISOR = "supervisor"

_LODGES_AT = "@"
_CHILD_PARTS = 4
"""Of `child_name`."""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


def controller_name(cluster_id: str) -> str:
    """The cluster's controller, as it is named while nothing has befallen it."""
    return f"{cluster_id}/{CONTROLLER}"


def supervisor_name(cluster_id: str) -> str:
    """Who sees to it that brokers run where they shall."""
    return f"{cluster_id}/{SUPERVISOR}"


def rival_name(cluster_id: str, broker_id: int, number: int) -> str:
    """A controller that a broker starts because the present one is silent."""
    return f"{controller_name(cluster_id)}/{broker_id}.{number}"


def broker_name(cluster_id: str, broker_id: int) -> str:
    """A broker."""
    return child_name(cluster_id, BROKER, broker_id, 0)


def child_name(cluster_id: str, role: str, broker_id: int, number: int) -> str:
    """The `number`th actor of a role that a broker owns."""
    return f"{cluster_id}/{role}/{broker_id}/{number}"


def owner_of(name: str) -> int | None:
    """The broker that an actor is, or that owns it; None for who is no broker's."""
    parts = host_of(name).split("/")
    return int(parts[2]) if len(parts) == _CHILD_PARTS else None


def lodger_name(name: str, host: str) -> str:
    """An actor that lives in the process of another, `host`, which must run already."""
    return f"{name}{_LODGES_AT}{host}"


def process_label(name: str) -> str:
    """What metrics call an actor: its role, and its number among those of the role."""
    role, *numbers = name.rpartition(_LODGES_AT)[0 if _LODGES_AT in name else 2].split("/")[1:]
    return "-".join([role, *numbers[-1:]])


def host_of(name: str) -> str:
    """The actor in whose process the one of that name lives: itself, unless it is a lodger."""
    return name.rpartition(_LODGES_AT)[2]
