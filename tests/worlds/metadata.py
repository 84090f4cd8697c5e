"""Metadata for worlds: topics, snapshots in parts, and updates of an image."""

from collections.abc import Iterable

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import MetadataUpdate
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    BrokerRegistered,
    PartitionCreated,
    Record,
    TopicCreated,
    decode_records,
    encode_record,
    join_records,
)


def id_of(topic: str, number: int = 1) -> TopicId:
    """Return the id of a topic; `number` counts topics of the same name."""
    return TopicId(topic.encode().rjust(16, bytes([number])))


def topic_records(
    name: str, partitions: int = 1, *, leader: int = 1, number: int = 1
) -> list[Record]:
    """Return the records that create a topic."""
    topic_id = id_of(name, number)
    return [
        TopicCreated(topic_id, name),
        *(PartitionCreated(topic_id, i, (1,), (1,), leader) for i in range(partitions)),
    ]


def broker_records(*broker_ids: int) -> list[Record]:
    """Return the records that register brokers."""
    return [
        BrokerRegistered(one, 0, "h", 1, None, f"d{one}", f"i{one}", fenced=False)
        for one in broker_ids
    ]


def parts_of(records: Iterable[Record]) -> tuple[bytes, ...]:
    """Return a snapshot's parts, of two records each."""
    encoded = list(map(encode_record, records))
    return tuple(join_records(encoded[at : at + 2]) for at in range(0, len(encoded), 2))


def snapshot_of(offset: int, records: Iterable[Record]) -> MetadataUpdate:
    """Return a snapshot that replaces the log up to an offset."""
    return MetadataUpdate(-1, offset, [], parts_of(records))


def image_of(offset: int, records: Iterable[Record]) -> MetadataImage:
    """Return the image of a snapshot."""
    image = MetadataImage()
    image.apply_update(-1, offset, records)
    return image


def take_in(image: MetadataImage, update: MetadataUpdate) -> bool:
    """Apply an update to an image, as followers of the metadata do."""
    records = [record for part in update.parts for record in decode_records(part)]
    return image.apply_update(update.from_offset, update.to_offset, [*records, *update.records])
