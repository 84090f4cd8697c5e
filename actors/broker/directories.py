"""Names of the partitions' directories, under `topics/` in a broker's data directory."""

from __future__ import annotations

from raylog.actors.ports import PartitionKey
from raylog.wire.uuids import to_base64

TOPIC_MAX = 200


def directory_name(topic: str, key: PartitionKey) -> str:
    """The directory of a partition replica.

    The topic id makes it unique; the name, cut to fit a file name, is for people.
    """
    return f"{topic[:TOPIC_MAX]}-{key[1]}.{to_base64(key[0])}"
