"""Names of partition directories, under `topics/` in a broker's data directory.

| name                              | contents                                                     |
|-----------------------------------|--------------------------------------------------------------|
| `<topic>-<partition>.<topic id>`  | a partition replica                                          |
| `<its name>.<time in ms>-stray`   | a replica that the metadata did not place here; kept until   |
|                                   | an operator removes it, and never opened again               |

Everything else is ignored.
"""

from __future__ import annotations

import re

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.wire.uuids import from_base64, to_base64

TOPIC_MAX = 200
_STRAY_SUFFIX = "-stray"
_PARTITION = re.compile(r"(.+)-(\d{1,10})\.([A-Za-z0-9_-]{22})", re.DOTALL | re.ASCII)
_STRAY = re.compile(rf"{_PARTITION.pattern}\.\d+{_STRAY_SUFFIX}", re.DOTALL | re.ASCII)


def directory_name(topic: str, key: PartitionKey) -> str:
    """Return the directory name of a partition replica.

    The topic id makes it unique. The topic name, cut to fit a file name, is for people.
    """
    return f"{topic[:TOPIC_MAX]}-{key[1]}.{to_base64(key[0])}"


def is_partition(name: str) -> bool:
    """Whether this is the directory name of a partition replica."""
    return _PARTITION.fullmatch(name) is not None


def parse_directory_name(name: str) -> tuple[str | None, PartitionKey]:
    """Parse topic and partition; the topic is None if the name was cut.

    Raises ValueError if this is not a partition's directory.
    """
    found = _PARTITION.fullmatch(name)
    if found is None:
        raise ValueError(f"{name} is not the directory of a partition")
    topic = found[1] if len(found[1]) < TOPIC_MAX else None
    return topic, (TopicId(from_base64(found[3])), int(found[2]))


def is_stray(name: str) -> bool:
    """Whether this is the directory name of a stray."""
    return _STRAY.fullmatch(name) is not None


def stray_name(directory: str, now_ms: int) -> str:
    """Return the name under which a partition's directory is set aside."""
    return f"{directory}.{now_ms}{_STRAY_SUFFIX}"
