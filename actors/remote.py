"""Calls of other actors' methods, with types.

    addresses = await call(runtime, broker, Broker.locate_leaders, keys, timeout_ms=1_000)

To a type checker `Broker` is the class of the shell: it checks the arguments and knows the result,
and an editor finds the method. When it runs no role imports another's shell: there
`Broker.locate_leaders` is the method's name, which is all that crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from raylog.actors.runtime.base import ActorRef, Runtime

if TYPE_CHECKING:
    from raylog.actors.broker.actor import BrokerActor as Broker
    from raylog.actors.controller.actor import ControllerActor as Controller
    from raylog.actors.gateway.actor import GatewayActor as Gateway
    from raylog.actors.group.actor import GroupCoordinatorActor as GroupCoordinator
    from raylog.actors.replica.actor import ReplicaActor as Replica
else:

    class _Names:
        """Each attribute is its own name."""

        def __getattr__(self, name: str) -> str:
            return name

    Broker = Controller = Gateway = GroupCoordinator = Replica = _Names()

__all__ = (
    "Broker",
    "Controller",
    "Gateway",
    "GroupCoordinator",
    "Method",
    "Replica",
    "T",
    "Ts",
    "call",
)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Method = Callable[[Any, *Ts], Coroutine[Any, Any, T]]
"""A method of an actor: its arguments, and its result."""


def call(
    runtime: Runtime,
    peer: ActorRef | str,
    method: Method[*Ts, T],
    *args: *Ts,
    timeout_ms: int,
) -> Coroutine[Any, Any, T]:
    """Call a method of an actor, as `Runtime.call` does."""
    return runtime.call(peer, cast("str", method), *args, timeout_ms=timeout_ms)
