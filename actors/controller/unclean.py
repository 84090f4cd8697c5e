"""Which elections may lose records, so that they are told of: nobody in sync was alive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import NO_LEADER, PartitionChanged, Record


def unclean_elections(image: MetadataImage, records: Iterable[Record]) -> Iterator[str]:
    """What records about to be replayed elect who was neither in sync nor eligible, for people."""
    for record in records:
        if not isinstance(record, PartitionChanged) or record.leader in (None, NO_LEADER):
            continue
        topic = image.topics.get(record.topic_id)
        state = image.partition(record.topic_id, record.partition)
        if topic is not None and state is not None:
            clean = (*state.isr, *state.elr)
            arrived = record.leader in state.adding_replicas and record.adding_replicas == ()
            if record.leader not in clean and not arrived:  # a move ends when all are in sync
                yield (
                    f"broker {record.leader} leads {topic.name}-{record.partition} and was not in "
                    f"sync: records that only {clean or state.last_known_elr} had are lost"
                )
