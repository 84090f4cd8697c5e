"""How calls cross processes on Ray: what is asked and answered, packed with a version.

| field   | bytes | meaning                                                                |
|---------|-------|------------------------------------------------------------------------|
| version | 1     | of the messages: MESSAGES_VERSION of who packed them                   |
| length  | 1     | of the build                                                           |
| build   | n     | of who packed them, for people                                         |
| pickle  | rest  | arguments or answer: plain data and messages (`actors.plain`)          |

Fields that are added to messages, at their end and with a default, do not change the version: a
build ignores those that it does not know (`plain.taken`). Ray alone carries calls, between
processes that trust one another as they trust Ray.
"""

from __future__ import annotations

import pickle
from collections.abc import Awaitable
from typing import Any

from raylog.actors.build import BUILD
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.wire.errors import KafkaError, UnsupportedVersion, error_of

MESSAGES_VERSION = 1
"""Rises only when a message of before means something else."""
_HEAD_BYTES = 2
_OK, _REFUSED, _LOST, _LATE = 0, 1, 2, 3
Outcome = tuple[int, Any]


def pack(value: object) -> bytes:
    """The bytes of arguments or of an answer."""
    build = BUILD.encode()[:255]
    return bytes([MESSAGES_VERSION, len(build)]) + build + pickle.dumps(value, 5)


def unpack(packed: bytes) -> Any:
    """What a process of this or another build has packed.

    Raises UnsupportedVersion for messages of another version, or of a class that this build lacks;
    InvalidRequest for a message whose values are not what its fields should hold.
    """
    version, end = (packed[0], _HEAD_BYTES + packed[1]) if len(packed) > _HEAD_BYTES else (0, 0)
    build = ascii(packed[_HEAD_BYTES:end].decode(errors="replace"))
    here = f"this is build {BUILD}, which knows version {MESSAGES_VERSION}"
    if version != MESSAGES_VERSION:
        raise UnsupportedVersion(f"messages of version {version} from build {build}: {here}")
    try:
        return pickle.loads(memoryview(packed)[end:])  # noqa: S301 - from Ray, which pickles itself
    except KafkaError:
        raise
    except Exception as failure:  # whatever a class of another build does in being made
        raise UnsupportedVersion(
            f"a message of build {build} cannot be read: {failure}; {here}"
        ) from failure


async def outcome_of(answering: Awaitable[Any]) -> Outcome:
    """An answer as it crosses Ray: refusals keep their code, not their class."""
    try:
        return _OK, await answering
    except KafkaError as refused:
        return _REFUSED, (int(refused.code), str(refused))
    except PeerLost as lost:
        return _LOST, str(lost)
    except PeerTimeout as late:
        return _LATE, str(late)


def value_of(outcome: Outcome) -> Any:
    """An outcome as it is seen by who asked; raises what was raised there."""
    kind, value, *_ = outcome
    if kind == _REFUSED:
        code, message, *_ = value
        raise error_of(code, message)
    if kind == _LOST:
        raise PeerLost(str(value))
    if kind == _LATE:
        raise PeerTimeout(str(value))
    return value
