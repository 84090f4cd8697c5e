"""Marks the directories of logs that nothing was ever written to, as older builds left them.

An older build opened a log in an empty directory. This one writes `partition.json` first, so that
an empty directory is one that has lost its log.
"""

from __future__ import annotations

from raylog.actors.broker.directories import is_partition
from raylog.storage.checkpoint import LogState, StateFile
from raylog.storage.disk import Disk
from raylog.storage.layout import PARTITION_FILE, holds_log


def mark_empty_logs(disk: Disk, topics: str) -> None:
    """Give every partition's directory in which nothing of a log is the state of an empty one.

    Blocking; OSError leaves some unmarked.
    """
    for name in filter(is_partition, disk.listdir(topics)):
        directory = f"{topics}/{name}"
        found = disk.listdir(directory)
        if not holds_log(found) and PARTITION_FILE not in found:
            StateFile(disk, directory).write(LogState(), 1)
