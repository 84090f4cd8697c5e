"""Metadata as it is told: snapshots in parts, and what an update makes of an image."""

from collections.abc import Iterable

from raylog.actors.controller.api import MetadataUpdate
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Record, decode_records, encode_record, join_records


def parts_of(records: Iterable[Record]) -> tuple[bytes, ...]:
    """A snapshot's records in parts of two."""
    encoded = list(map(encode_record, records))
    return tuple(join_records(encoded[at : at + 2]) for at in range(0, len(encoded), 2))


def snapshot_of(offset: int, records: Iterable[Record]) -> MetadataUpdate:
    """A snapshot that stands for the log up to an offset."""
    return MetadataUpdate(-1, offset, [], parts_of(records))


def image_of(offset: int, records: Iterable[Record]) -> MetadataImage:
    """The image that a snapshot adds up to."""
    image = MetadataImage()
    image.apply_update(-1, offset, records)
    return image


def take_in(image: MetadataImage, update: MetadataUpdate) -> bool:
    """Apply an update to an image, as those who follow do."""
    records = [record for part in update.parts for record in decode_records(part)]
    return image.apply_update(update.from_offset, update.to_offset, [*records, *update.records])
