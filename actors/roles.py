"""Which class plays which role; imported only when an actor of the role starts."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from raylog.actors.names import (
    BROKER,
    CONTROLLER,
    GATEWAY,
    GROUP,
    REPLICA,
    SUPERVISOR,
    TRANSACTION,
)
from raylog.actors.runtime.base import Actor

_CLASSES = {
    CONTROLLER: ("raylog.actors.controller.actor", "ControllerActor"),
    BROKER: ("raylog.actors.broker.actor", "BrokerActor"),
    GATEWAY: ("raylog.actors.gateway.actor", "GatewayActor"),
    REPLICA: ("raylog.actors.replica.actor", "ReplicaActor"),
    GROUP: ("raylog.actors.group.actor", "GroupCoordinatorActor"),
    TRANSACTION: ("raylog.actors.transaction.actor", "TransactionCoordinatorActor"),
    SUPERVISOR: ("raylog.actors.supervisor.actor", "SupervisorActor"),
}


def role_class(role: str) -> Callable[..., Actor]:
    """The actor class of a role."""
    module, name = _CLASSES[role]
    actor: Callable[..., Actor] = getattr(importlib.import_module(module), name)
    return actor
