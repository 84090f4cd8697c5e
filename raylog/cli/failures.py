"""Failures as people meet them: what happened, what to do, and the exit code.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused or failed |
| 2 | the command line makes no sense |
| 3 | no cluster could be reached |
| 130 | interrupted |
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass

from raylog.extras import MissingExtra, extra_of

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Failure:
    """What a person is told."""

    message: str
    hint: str | None = None
    """What to do about it."""
    exit_code: int = EXIT_FAILED


class CommandFailed(Exception):
    """Raised by commands themselves."""

    def __init__(self, message: str, hint: str | None = None, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.failure = Failure(message, hint, exit_code)


_IN_USE = "Stop the group's consumers first; see them with: raylog groups describe GROUP"
_NO_COORDINATOR = "The group's coordinator starts or moves: try again, or see: raylog status"
_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "See the topics with: raylog topics list",
    "INVALID_TOPIC_EXCEPTION": "A topic's name has 1 to 249 of: a-z, A-Z, 0-9, '.', '_', '-'",
    "TOPIC_ALREADY_EXISTS": "Change it with: raylog topics alter (or pass --if-not-exists)",
    "INVALID_PARTITIONS": "Partitions can only be added, and a topic has at least one",
    "INVALID_REPLICATION_FACTOR": "See how many brokers there are with: raylog status",
    "MESSAGE_TOO_LARGE": "Raise it: raylog topics alter TOPIC --config max.message.bytes=BYTES",
    "NOT_ENOUGH_REPLICAS": "See the in-sync replicas with: raylog topics describe TOPIC",
    "BROKER_ID_NOT_REGISTERED": "See the brokers with: raylog brokers list",
    "INVALID_REPLICA_ASSIGNMENT": "See the brokers with: raylog brokers list",
    "NO_REASSIGNMENT_IN_PROGRESS": "See what moves with: raylog topics reassign --verify",
    "NOT_CONTROLLER": "The controller starts or moves: try again, or see: raylog status",
    "GROUP_ID_NOT_FOUND": "See the groups with: raylog groups list",
    "TRANSACTIONAL_ID_NOT_FOUND": "See the transactions with: raylog transactions list",
    "NON_EMPTY_GROUP": _IN_USE,
    "UNKNOWN_MEMBER_ID": _IN_USE,
    "GROUP_SUBSCRIBED_TO_TOPIC": _IN_USE,
    "COORDINATOR_NOT_AVAILABLE": _NO_COORDINATOR,
    "COORDINATOR_LOAD_IN_PROGRESS": _NO_COORDINATOR,
    "NOT_COORDINATOR": _NO_COORDINATOR,
    "KAFKA_STORAGE_ERROR": "See the disk, and the logs in DATA/run/ray/session_latest/logs",
}
_UNREACHABLE = "Start a cluster with: raylog up (or name one with --bootstrap HOST:PORT)"


_FULL = "Free space on that disk, or choose another directory"
_NOT_ALLOWED = "Choose another directory, or have this user own it"
_HINTS_OF_THE_SYSTEM = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: "Choose another directory, or mount that file system for writing",
    errno.EIO: "The disk fails: see the system's log (dmesg)",
    errno.EEXIST: "Remove or rename it, or choose another directory",
    errno.ENOTDIR: "Remove or rename the file, or choose another directory",
}


def last_line(failure: Exception) -> str:
    """What went wrong, without another process's traceback."""
    return str(failure).strip().splitlines()[-1]


def explain(error: Exception) -> Failure | None:
    """What to tell of an error; None for one that is our own bug."""
    if isinstance(error, CommandFailed):
        return error.failure
    if isinstance(error, ImportError):
        return _explain_missing(error)
    if isinstance(error, BrokenPipeError):
        return Failure("the reader of the output went away")
    found = _explain_kafka(error) or _explain_client(error) or _explain_ray(error)
    if found is None and isinstance(error, OSError):
        return of_the_system(error)
    return found


def of_the_system(error: OSError, where: object = None) -> Failure:
    """What to tell of a failed system call; `where` stands for the file if the error has none."""
    place = error.filename or where
    what = error.strerror or str(error)
    return Failure(
        f"{place}: {what}" if place else what, _HINTS_OF_THE_SYSTEM.get(error.errno or 0)
    )


def _explain_missing(error: ImportError) -> Failure | None:
    """A package that an extra brings, if it is one."""
    if isinstance(error, MissingExtra):
        return Failure(str(error))
    extra = extra_of(error) if isinstance(error, ModuleNotFoundError) else None
    if extra is None:
        return None
    return Failure(
        f"this needs the package {error.name}, which is not installed",
        f"Install it: pip install 'raylog[{extra}]'",
    )


def _explain_kafka(error: Exception) -> Failure | None:
    """A broker's refusal, if it is one; nothing is imported for it."""
    if "raylog.wire.errors" not in sys.modules:
        return None
    from raylog.wire.errors import EncodeError, KafkaError

    if isinstance(error, EncodeError):  # longer than the protocol can say
        return Failure(f"this cannot be asked of a broker: {error}", exit_code=EXIT_USAGE)
    if not isinstance(error, KafkaError):
        return None
    hint = _HINTS.get(error.code.name)
    if error.code.name == "INVALID_CONFIG" and "unknown" in str(error).lower():
        hint = "See all settings with: raylog configs list"
    return Failure(f"{error.code.name}: {error}", hint)


def _explain_ray(error: Exception) -> Failure | None:
    """A record of Ray's processes that cannot be read, if it is one."""
    if "raylog.actors.runtime.ray_node" not in sys.modules:
        return None
    from raylog.actors.runtime.ray_node import RecordDamaged

    if not isinstance(error, RecordDamaged):
        return None
    return Failure(str(error), "If no process of that Ray runs any more (ps ax), remove the file")


def _explain_client(error: Exception) -> Failure | None:
    """A failure of the client, if it is one."""
    if "raylog.client.errors" not in sys.modules:
        return None
    from raylog.client.errors import ClientError, InvalidSetting, NotConnected

    if isinstance(error, NotConnected):
        return Failure(str(error), _UNREACHABLE, EXIT_UNREACHABLE)
    if isinstance(error, InvalidSetting):
        return Failure(str(error), exit_code=EXIT_USAGE)
    if isinstance(error, ClientError):
        return Failure(str(error))
    return None
