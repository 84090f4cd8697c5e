"""Strays on the disk: directories of no partition here, which are kept."""

from __future__ import annotations

from raylog.actors.broker.api import StrayStatus
from raylog.actors.broker.directories import is_stray, stray_name
from raylog.storage.disk import Volume


def keep_stray(disk: Volume, directory: str, now_ms: int) -> str | None:
    """Give a directory a stray's name; returns that, None if there is no directory. Blocking.

    OSError leaves it where it is. One that has strayed before, and come again, gets another name.
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
    """The strays of a broker, by name, and what they take. Blocking."""
    names = sorted(filter(is_stray, disk.listdir(topics)))
    return [StrayStatus(f"{topics}/{name}", disk.used(f"{topics}/{name}")) for name in names]
