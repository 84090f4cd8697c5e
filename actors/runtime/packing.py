"""Packs arguments and answers of calls between processes on Ray, with a version.

| field   | bytes | meaning                                                                |
|---------|-------|------------------------------------------------------------------------|
| version | 1     | MESSAGES_VERSION of the sender                                         |
| length  | 1     | of the build                                                           |
| build   | n     | of the sender, for error messages                                      |
| pickle  | rest  | arguments or answer: plain data and messages (`actors.message`)          |

New fields at the end of messages, with a default, do not change the version: a build ignores fields
that it does not know (`message.taken`). Neither does a class that moves: it is pickled under the
module that first had it (`message.FIRST_PLACES`). Only Ray carries calls, between processes that
trust each other as they trust Ray.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Awaitable
from typing import Any

from raylog.actors.build import BUILD
from raylog.actors.message import PRESENT_PLACES
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.wire.errors import KafkaError, UnsupportedVersion, error_of

MESSAGES_VERSION = 1
"""Incremented only when an existing message changes its meaning."""
_HEAD_BYTES = 2
_OK, _REFUSED, _LOST, _LATE = 0, 1, 2, 3
Outcome = tuple[int, Any]


def pack(value: object) -> bytes:
    """Pack arguments or an answer."""
    build = BUILD.encode()[:255]
    return bytes([MESSAGES_VERSION, len(build)]) + build + pickle.dumps(value, 5)


def unpack(packed: bytes) -> Any:
    """Unpack what a process of any build has packed.

    Raises UnsupportedVersion for messages of another version, or of a class that this build lacks,
    and InvalidRequest for a message with values of the wrong type.
    """
    version, end = (packed[0], _HEAD_BYTES + packed[1]) if len(packed) > _HEAD_BYTES else (0, 0)
    build = ascii(packed[_HEAD_BYTES:end].decode(errors="replace"))
    here = f"this is build {BUILD}, which knows version {MESSAGES_VERSION}"
    if version != MESSAGES_VERSION:
        raise UnsupportedVersion(f"messages of version {version} from build {build}: {here}")
    try:
        return _Unpickler(io.BytesIO(memoryview(packed)[end:])).load()
    except KafkaError:
        raise
    except Exception as failure:  # whatever the constructor of another build's class raises
        raise UnsupportedVersion(
            f"a message of build {build} cannot be read: {failure}; {here}"
        ) from failure


class _Unpickler(pickle.Unpickler):
    """Finds classes in their present modules."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function by the module that first had it."""
        return super().find_class(PRESENT_PLACES.get(module, module), name)


async def outcome_of(answering: Awaitable[Any]) -> Outcome:
    """Convert an answer for Ray: refusals keep their code, not their class."""
    try:
        return _OK, await answering
    except KafkaError as refused:
        return _REFUSED, (int(refused.code), str(refused))
    except PeerLost as lost:
        return _LOST, str(lost)
    except PeerTimeout as late:
        return _LATE, str(late)


def value_of(outcome: Outcome) -> Any:
    """Convert an outcome back: return the value, or raise what was raised there."""
    kind, value, *_ = outcome
    if kind == _REFUSED:
        code, message, *_ = value
        raise error_of(code, message)
    if kind == _LOST:
        raise PeerLost(str(value))
    if kind == _LATE:
        raise PeerTimeout(str(value))
    return value
