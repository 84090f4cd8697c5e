"""Describes failures for users: what happened, what to do, and the exit code.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused or failed |
| 2 | the command line is invalid |
| 3 | no cluster could be reached |
| 130 | interrupted |
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass
from pathlib import Path

from raylog.extras import MissingExtra, extra_of

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as it is shown to the user."""

    message: str
    hint: str | None = None
    """What to do about it."""
    exit_code: int = EXIT_FAILED


class CommandFailed(Exception):
    """A failure that a command raises itself."""

    def __init__(self, message: str, hint: str | None = None, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.failure = Failure(message, hint, exit_code)


_IN_USE = "Stop the group's consumers first; list them with: raylog groups describe GROUP"
_NO_COORDINATOR = "The group's coordinator is starting or moving: try again, or run: raylog status"
_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "List the topics with: raylog topics list",
    "INVALID_TOPIC_EXCEPTION": "A topic name has 1 to 249 of these characters: a-z, A-Z, 0-9, "
    "'.', '_', '-'",
    "TOPIC_ALREADY_EXISTS": "Change the topic with: raylog topics alter (or pass --if-not-exists)",
    "INVALID_PARTITIONS": "A topic has at least one partition; partitions can only be added",
    "INVALID_REPLICATION_FACTOR": "List the brokers with: raylog brokers list",
    "MESSAGE_TOO_LARGE": "Raise the limit: raylog topics alter TOPIC --config "
    "max.message.bytes=BYTES",
    "NOT_ENOUGH_REPLICAS": "Show the in-sync replicas with: raylog topics describe TOPIC",
    "BROKER_ID_NOT_REGISTERED": "List the brokers with: raylog brokers list",
    "INVALID_REPLICA_ASSIGNMENT": "List the brokers with: raylog brokers list",
    "NO_REASSIGNMENT_IN_PROGRESS": "Show what moves with: raylog topics reassign --verify",
    "NOT_CONTROLLER": "The controller is starting or moving: try again, or run: raylog status",
    "GROUP_ID_NOT_FOUND": "List the groups with: raylog groups list",
    "TRANSACTIONAL_ID_NOT_FOUND": "List the transactions with: raylog transactions list",
    "NON_EMPTY_GROUP": _IN_USE,
    "UNKNOWN_MEMBER_ID": _IN_USE,
    "GROUP_SUBSCRIBED_TO_TOPIC": _IN_USE,
    "COORDINATOR_NOT_AVAILABLE": _NO_COORDINATOR,
    "COORDINATOR_LOAD_IN_PROGRESS": _NO_COORDINATOR,
    "NOT_COORDINATOR": _NO_COORDINATOR,
    "KAFKA_STORAGE_ERROR": "Check the disk, and the logs in DATA/run/ray/session_latest/logs",
}
_UNREACHABLE = "Start a cluster with: raylog up (or name one with: --bootstrap HOST:PORT)"


_FULL = "Free space on that disk, or choose another directory"
_NOT_ALLOWED = "Choose another directory, or make this user its owner"
_HINTS_OF_THE_SYSTEM = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: "Choose another directory, or mount the file system read-write",
    errno.EIO: "The disk is failing: see the system log (dmesg)",
    errno.EEXIST: "Remove or rename it, or choose another directory",
    errno.ENOTDIR: "Remove or rename the file, or choose another directory",
}


def last_line(failure: Exception) -> str:
    """Return the last line of an error's text, without another process's traceback."""
    return (str(failure).strip() or type(failure).__name__).splitlines()[-1]


def text_of(path: Path, expected: str) -> str:
    """Read a file of UTF-8 text; raise CommandFailed if it is something else."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"{path}: expected {expected} in UTF-8, found byte "
            f"0x{error.object[error.start]:02x} at {error.start}",
            exit_code=EXIT_USAGE,
        ) from error


def explain(error: Exception) -> Failure | None:
    """Return the failure to report for an error; None if the error is a bug of Raylog."""
    if isinstance(error, CommandFailed):
        return error.failure
    if isinstance(error, ImportError):
        return _explain_missing(error)
    if isinstance(error, BrokenPipeError):
        return Failure("the output was closed by its reader")
    found = _explain_kafka(error) or _explain_client(error) or _explain_record(error)
    if found is None and isinstance(error, OSError):
        return of_the_system(error)
    return found


def of_the_system(error: OSError, where: object = None) -> Failure:
    """Explain a failed system call; `where` is the file if the error does not name one."""
    place = error.filename or where
    what = error.strerror or str(error)
    return Failure(
        f"{place}: {what}" if place else what, _HINTS_OF_THE_SYSTEM.get(error.errno or 0)
    )


def _explain_missing(error: ImportError) -> Failure | None:
    """Explain a missing package that an extra installs; None for other import errors."""
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
    """Explain a broker's refusal; None for other errors. Imports no new module."""
    if "raylog.wire.errors" not in sys.modules:
        return None
    from raylog.wire.errors import EncodeError, KafkaError

    if isinstance(error, EncodeError):  # such as a text that is too long for the protocol
        return Failure(f"the request cannot be encoded: {error}", exit_code=EXIT_USAGE)
    if not isinstance(error, KafkaError):
        return None
    hint = _HINTS.get(error.code.name)
    if error.code.name == "INVALID_CONFIG" and "unknown" in str(error).lower():
        hint = "List all settings with: raylog configs list"
    return Failure(f"{error.code.name}: {error}", hint)


def _explain_record(error: Exception) -> Failure | None:
    """Explain an unreadable record of a cluster or of Ray's processes; None for other errors."""
    if "raylog.cluster_record" in sys.modules:
        from raylog.cluster_record import ClusterRecordDamaged

        if isinstance(error, ClusterRecordDamaged):
            hint = "If no process of that cluster is running, remove the file: it contains no data"
            return Failure(str(error), hint)
    if "raylog.actors.runtime.ray_node" not in sys.modules:
        return None
    from raylog.actors.runtime.ray_node import RecordDamaged

    if not isinstance(error, RecordDamaged):
        return None
    return Failure(str(error), "If no process of that Ray is running (ps ax), remove the file")


def _explain_client(error: Exception) -> Failure | None:
    """Explain a failure of the client; None for other errors."""
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
