"""Names of the partitions' directories, under `topics/` in a broker's data directory.

| name                              | what                                                         |
|-----------------------------------|--------------------------------------------------------------|
| `<topic>-<partition>.<topic id>`  | a partition replica                                          |
| `<its name>.<time in ms>-stray`   | a replica that the metadata did not know when it was looked  |
|                                   | at: kept until somebody removes it, and never opened again   |

Anything else is nobody's business here.
"""

from __future__ import annotations

import re

from raylog.actors.ports import PartitionKey, TopicId
from raylog.wire.uuids import from_base64, to_base64

TOPIC_MAX = 200
_STRAY_SUFFIX = "-stray"
_PARTITION = re.compile(r"(.+)-(\d{1,10})\.([A-Za-z0-9_-]{22})", re.DOTALL | re.ASCII)
_STRAY = re.compile(rf"{_PARTITION.pattern}\.\d+{_STRAY_SUFFIX}", re.DOTALL | re.ASCII)


def directory_name(topic: str, key: PartitionKey) -> str:
    """The directory of a partition replica.

    The topic id makes it unique; the name, cut to fit a file name, is for people.
    """
    return f"{topic[:TOPIC_MAX]}-{key[1]}.{to_base64(key[0])}"


def is_partition(name: str) -> bool:
    """Whether a directory is that of a partition replica, by its name."""
    return _PARTITION.fullmatch(name) is not None


def parse_directory_name(name: str) -> tuple[str | None, PartitionKey]:
    """Topic, None where only the beginning of its name is there, and partition.

    ValueError if the directory is no partition's.
    """
    found = _PARTITION.fullmatch(name)
    if found is None:
        raise ValueError(f"{name} is no partition's directory")
    topic = found[1] if len(found[1]) < TOPIC_MAX else None
    return topic, (TopicId(from_base64(found[3])), int(found[2]))


def is_stray(name: str) -> bool:
    """Whether a directory was set aside because the metadata did not know it."""
    return _STRAY.fullmatch(name) is not None


def stray_name(directory: str, now_ms: int) -> str:
    """What a partition's directory is called from now on, if the metadata does not know it."""
    return f"{directory}.{now_ms}{_STRAY_SUFFIX}"
