"""Strays: directories on disk that belong to no partition here, and are kept."""

from __future__ import annotations

import logging

from raylog.actors.broker.messages import StrayStatus
from raylog.actors.broker.rules.directories import is_stray, stray_name
from raylog.storage.disk import Volume

log = logging.getLogger(__name__)


def keep_stray(disk: Volume, directory: str, now_ms: int) -> str | None:
    """Rename a directory to a stray's name and return that; None if there is no directory.

    Blocking. On OSError the directory keeps its name. A directory set aside again gets a new name.
    """
    while True:
        target = stray_name(directory, now_ms)
        try:
            disk.move_tree(directory, target)
        except FileNotFoundError:
            return None
        except FileExistsError:
            now_ms += 1
        else:
            return target


def strays_in(disk: Volume, topics: str) -> list[StrayStatus]:
    """List the strays of a broker by name, with the space they take. Blocking.

    Returns none of them if the disk fails.
    """
    try:
        names = sorted(filter(is_stray, disk.listdir(topics)))
        return [StrayStatus(f"{topics}/{name}", disk.used(f"{topics}/{name}")) for name in names]
    except OSError as failure:
        log.error("the strays in %s cannot be listed: %s", topics, failure)
        return []
