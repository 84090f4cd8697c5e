"""The file `partition.json`, which names the partition that a directory belongs to.

It is a JSON object:

- `version`, `topic`, `topic_id` (base64), `partition`, `begun_anew`
- `settings`: the topic's own settings as last seen by this broker
- since version 2 `partitions`: the number of the topic's partitions; `metadata_epoch` and
  `metadata_offset`: the position in the metadata from which `settings` and `partitions` come

The cluster's metadata has most of this too. The file is needed if the metadata is lost, and it
prevents a directory from being opened as another partition's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from raylog.storage.checkpoint import read_file, write_file
from raylog.storage.disk import Disk
from raylog.storage.layout import PARTITION_FILE
from raylog.wire.errors import KafkaStorageError
from raylog.wire.uuids import from_base64, to_base64

FORMAT_VERSION = 2
_WITHOUT_NOTE = 1


class PartitionFileDamaged(KafkaStorageError):
    """The file exists but cannot be read. It may be rewritten from the metadata."""


@dataclass(frozen=True, slots=True)
class TopicNote:
    """What the file says about the topic besides its settings."""

    partitions: int = 0
    """Number of partitions; 0 if unknown."""
    metadata_epoch: int = field(default=-1, compare=False)
    """Epoch of the controller that wrote this metadata; -1 if unknown."""
    metadata_offset: int = field(default=0, compare=False)
    """Offset in that metadata. A later one alone does not make the file be rewritten."""


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """Contents of the file."""

    topic: str
    topic_id: bytes
    partition: int
    settings: dict[str, str] = field(default_factory=dict)
    """The topic's own settings, which override its broker's."""
    begun_anew: bool = False
    """Whether this log was begun because the old one was lost with its directory, and has not been
    in sync since. Until then it is unknown what it lacks."""
    noted: TopicNote = TopicNote()

    def __str__(self) -> str:
        """Return the partition's name, for people."""
        return f"{self.topic}-{self.partition} with topic id {to_base64(self.topic_id)}"

    def is_of(self, other: PartitionFile) -> bool:
        """Whether both belong to the same partition, whatever its settings."""
        mine = (self.topic, self.topic_id, self.partition)
        return mine == (other.topic, other.topic_id, other.partition)


def read_partition_file(disk: Disk, directory: str) -> PartitionFile | None:
    """Read the file of a partition's directory; None if there is none. Blocking.

    Raises PartitionFileDamaged, KafkaStorageError for a format that only a newer build can read,
    and OSError.
    """
    path = f"{directory}/{PARTITION_FILE}"
    contents = read_file(disk, path)
    if contents is None:
        return None
    try:
        values: Any = json.loads(contents)
        version = values["version"]
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise KafkaStorageError(
                f"{path} has format {version}, this build knows {FORMAT_VERSION}"
            )
        return _read(values)
    except (ValueError, LookupError, TypeError, AttributeError) as broken:
        raise PartitionFileDamaged(
            f"{path} is damaged: it begins with {contents[:40]!r} ({broken}), expected is a JSON "
            "object with version, topic, topic_id, partition, settings, begun_anew, partitions, "
            "metadata_epoch and metadata_offset"
        ) from broken


def _read(values: Any) -> PartitionFile:
    topic, partition, settings = values["topic"], values["partition"], values["settings"]
    noted = _note(values)
    numbers = (values["version"], partition, *astuple(noted))
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in numbers):
        raise TypeError("version, partition, partitions and metadata_* are whole numbers")
    if not all(isinstance(one, str) for one in (topic, *settings, *settings.values())):
        raise TypeError("topic and settings are text")
    if not isinstance(values["begun_anew"], bool):
        raise TypeError("begun_anew is true or false")
    topic_id = from_base64(values["topic_id"])
    begun_anew = values["begun_anew"]
    return PartitionFile(topic, topic_id, partition, dict(settings), begun_anew, noted)


def _note(values: Any) -> TopicNote:
    if values["version"] == _WITHOUT_NOTE:
        return TopicNote()
    return TopicNote(values["partitions"], values["metadata_epoch"], values["metadata_offset"])


def write_partition_file(disk: Disk, directory: str, contents: PartitionFile) -> None:
    """Replace the file, durably. Blocking; an OSError leaves the old one."""
    values = {
        "version": FORMAT_VERSION,
        "topic": contents.topic,
        "topic_id": to_base64(contents.topic_id),
        "partition": contents.partition,
        "settings": contents.settings,
        "begun_anew": contents.begun_anew,
        **asdict(contents.noted),
    }
    data = json.dumps(values, indent=1).encode()
    write_file(disk, f"{directory}/{PARTITION_FILE}", data, durable=True)
