"""Marks the directories of empty logs that older builds left without any file.

An older build opened a log in an empty directory. This build writes `partition.json` first, so an
empty directory means that its log was lost.
"""

from __future__ import annotations

from raylog.actors.broker.rules.directories import is_partition
from raylog.storage.checkpoint import LogState, StateFile
from raylog.storage.disk import Disk
from raylog.storage.layout import PARTITION_FILE, holds_log


def mark_empty_logs(disk: Disk, topics: str) -> None:
    """Write the state file of an empty log into every partition directory that holds no log.

    Blocking. An OSError leaves some directories unmarked.
    """
    for name in filter(is_partition, disk.listdir(topics)):
        directory = f"{topics}/{name}"
        found = disk.listdir(directory)
        if not holds_log(found) and PARTITION_FILE not in found:
            StateFile(disk, directory).write(LogState(), 1)
