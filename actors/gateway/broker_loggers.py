"""A broker's loggers as configuration resources, as in Apache Kafka (KIP-412).

Levels can only be read, as they are in the process that answers. All processes of a broker have the
same levels, which cannot be changed while the broker is running.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from raylog.actors.config import node_id_of
from raylog.wire.errors import InvalidConfig, InvalidRequest, UnsupportedVersion

ROOT = "root"
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OPERATIONS = {_SET: "SET", _DELETE: "DELETE", _APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}
_LEVELS = {
    logging.CRITICAL: "FATAL",
    logging.ERROR: "ERROR",
    logging.WARNING: "WARN",
    logging.INFO: "INFO",
    logging.DEBUG: "DEBUG",
    0: "TRACE",
}
"""Kafka's name for the highest threshold that a level reaches."""


def levels() -> Iterator[tuple[str, str]]:
    """Yield loggers and their effective levels, by Kafka's names."""
    yield ROOT, _level_name(logging.getLogger())
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "raylog":
            yield name, _level_name(logger)


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next(name for least, name in _LEVELS.items() if level >= least)


def check_described(name: str, broker_id: int) -> None:
    """Raise InvalidRequest unless a resource's name means this broker."""
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    node_id = node_id_of(name)
    if node_id is None:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if node_id != broker_id:
        raise InvalidRequest(f"Unexpected broker id, expected {broker_id} but received {name}")


def refuse(name: str, broker_id: int, changes: Sequence[tuple[str, int, str | None]]) -> None:
    """Raise the error for changes, given as (logger, operation, level); there is always one."""
    node_id = node_id_of(name)
    if node_id is None:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if node_id != broker_id:
        raise InvalidRequest(f"Unexpected node id. Expected {broker_id}, but received {name}")
    known = {logger for logger, _ in levels()}
    for logger, operation, level in changes:
        if operation not in (_SET, _DELETE):
            said = _OPERATIONS.get(operation, str(operation))
            raise InvalidRequest(f"{said} operation is not allowed for the BROKER_LOGGER resource")
        if logger not in known:
            raise InvalidConfig(f"Logger {logger} does not exist!")
        if operation == _DELETE and logger == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
        if operation == _SET and level not in _LEVELS.values():
            raise InvalidConfig(
                f"Cannot set the log level of {logger} to {level} as it is not a supported log "
                f"level. Valid log levels are {', '.join(sorted(_LEVELS.values()))}"
            )
    raise UnsupportedVersion("Levels of loggers cannot be changed while a broker of Raylog runs.")
