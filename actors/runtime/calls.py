"""What becomes of a call in the actor that is asked, alike in every runtime.

| the method                                            | the caller gets      | the actor |
|-------------------------------------------------------|----------------------|-----------|
| returns                                               | its answer           | goes on   |
| raises a KafkaError                                   | that error           | goes on   |
| raises PeerLost, PeerTimeout or ActorGone: another    | PeerLost, PeerTimeout| goes on   |
| actor that it asked is gone                           |                      |           |
| is not there, or takes other arguments: a caller of   | UnsupportedVersion   | goes on   |
| another build                                         |                      |           |
| raises anything else, which is a mistake of ours      | PeerLost             | ends      |

Whoever made the mistake ends, because nobody knows any more what its state is worth. Its callers
have made none: they see what they would see of a process that was killed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.errors import KafkaError, UnsupportedVersion

FORESEEN = (KafkaError, PeerLost, PeerTimeout)
"""What `answer` raises without a mistake of the actor's."""


async def answer(actor: object, method: str, args: tuple[Any, ...]) -> Any:
    """What an actor's method returns; whatever it raises beyond FORESEEN is a mistake."""
    try:
        return await _begun(actor, method, args)
    except ActorGone as gone:
        raise PeerLost(str(gone)) from gone


def _begun(actor: object, method: str, args: tuple[Any, ...]) -> Awaitable[Any]:
    """The call of a coroutine function, which runs nothing of it yet."""
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
    """What is raised to who starts an actor whose own start has failed."""
    if isinstance(failure, KafkaError):
        return failure
    return PeerLost(f"{name}: {type(failure).__name__}: {failure}")


def is_mistake(failure: BaseException) -> bool:
    """Whether a start failed by a mistake of ours, not by its disk, its port or its peers."""
    return not isinstance(failure, (*FORESEEN, ActorGone, OSError))
