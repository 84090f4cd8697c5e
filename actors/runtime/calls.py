"""The effect of a call on the called actor, which is the same in every runtime.

| the method                                            | the caller gets      | the actor |
|-------------------------------------------------------|----------------------|-----------|
| returns                                               | its answer           | goes on   |
| raises a KafkaError                                   | that error           | goes on   |
| raises PeerLost, PeerTimeout or ActorGone, because    | PeerLost, PeerTimeout| goes on   |
| another actor that it called is gone                  |                      |           |
| does not exist, or has other parameters: the caller   | UnsupportedVersion   | goes on   |
| is of another build                                   |                      |           |
| raises anything else, which is a bug in Raylog        | PeerLost             | ends      |

The actor with the bug ends, because its state can no longer be trusted. Its callers have no bug:
they see what they would see if its process had been killed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.errors import KafkaError, UnsupportedVersion

FORESEEN = (KafkaError, PeerLost, PeerTimeout)
"""Exceptions of `answer` that are not a bug of the actor."""


async def answer(actor: object, method: str, args: tuple[Any, ...]) -> Any:
    """Call an actor's method; an exception that is not in FORESEEN is a bug."""
    try:
        return await _begun(actor, method, args)
    except ActorGone as gone:
        raise PeerLost(str(gone)) from gone


def _begun(actor: object, method: str, args: tuple[Any, ...]) -> Awaitable[Any]:
    """Create the coroutine of a call, without running any of it."""
    role = type(actor).__name__
    found = None if method.startswith("_") else getattr(actor, method, None)
    if found is None:
        raise UnsupportedVersion(f"{role} of this build has no method {method}")
    try:
        begun: Awaitable[Any] = found(*args)
    except TypeError as mismatch:
        raise UnsupportedVersion(f"{role} of this build takes other arguments: {mismatch}") from (
            mismatch
        )
    return begun


def start_failure(name: str, failure: BaseException) -> KafkaError | PeerLost:
    """Return what the spawner of an actor gets when its start has failed."""
    if isinstance(failure, KafkaError):
        return failure
    return PeerLost(f"{name}: {type(failure).__name__}: {failure}")


def is_mistake(failure: BaseException) -> bool:
    """Whether a start failed because of a bug, not because of its disk, its port or its peers."""
    return not isinstance(failure, (*FORESEEN, ActorGone, OSError))
