"""Maps roles to actor classes, which are imported only when an actor of the role starts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, REPLICA, SUPERVISOR
from raylog.actors.runtime.base import Actor

LABELS = {role: role.title() for role in (CONTROLLER, BROKER, GATEWAY, REPLICA, SUPERVISOR)} | {
    role: kind.label for role, kind in KINDS.items()
}
"""Ray shows the roles by these names."""


def role_class(role: str) -> Callable[..., Actor]:
    """The actor class of a role."""
    actor: Callable[..., Actor] = of_role(role, "actor", f"{LABELS[role]}Actor")
    return actor


def of_role(role: str, module: str, name: str) -> Any:
    """What a role's package has under this name in this module."""
    return getattr(importlib.import_module(f"raylog.actors.{role}.{module}"), name)
