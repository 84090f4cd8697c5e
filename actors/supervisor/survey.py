"""Surveys a node before brokers are placed on it; runs as a Ray task."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from raylog.actors.broker.identity import WANTED_FILE, Identity, read_identity
from raylog.actors.build import BUILD
from raylog.actors.runtime.link_secret import SecretMissing, read_secrets
from raylog.actors.runtime.processes import be_as_urgent_as_parent
from raylog.wire.errors import KafkaStorageError

DIRECTORY_PREFIX = "broker-"
_MEMORY_MONITOR = "RAY_memory_monitor_refresh_ms"
"""How often Ray's memory monitor runs, in ms; 0 disables it."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts found on a node."""

    build: str
    identities: tuple[Identity, ...] = ()
    """Identities in the brokers' directories there."""
    wanted: tuple[bytes, ...] = ()
    """Copies of the desired state in those directories."""
    troubles: tuple[str, ...] = ()
    """Why no broker can run there."""
    warnings: tuple[str, ...] = ()
    """Problems that may affect a broker there."""


def survey(data: str, secret_source: str) -> NodeFacts:
    """Survey this node. Blocking. `secret_source` is empty if the secret does not exist yet."""
    identities, copies, troubles = [], [], []
    for directory in sorted(Path(data).glob(f"{DIRECTORY_PREFIX}*")):
        try:
            identity = read_identity(directory)
        except KafkaStorageError as damaged:
            troubles.append(str(damaged))
            continue
        if identity is not None:
            identities.append(identity)
        copy = directory / WANTED_FILE
        if copy.exists():
            copies.append(copy.read_bytes())
    if secret_source:
        try:
            read_secrets(secret_source)
        except (SecretMissing, OSError, ValueError) as missing:
            troubles.append(str(missing))
    return NodeFacts(BUILD, tuple(identities), tuple(copies), tuple(troubles), tuple(_warnings()))


def _warnings() -> list[str]:
    """Return warnings about Ray defaults that may affect brokers."""
    found = []
    if not be_as_urgent_as_parent():
        found.append("Ray gives its workers the CPU last: start it with RAY_worker_niceness=0")
    if os.environ.get(_MEMORY_MONITOR) != "0":
        found.append(
            "Ray's memory monitor may end brokers when memory is short: start Ray with "
            f"{_MEMORY_MONITOR}=0, or keep tasks from taking all memory"
        )
    return found
