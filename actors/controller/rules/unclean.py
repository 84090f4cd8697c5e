"""Finds elections that may lose records, so that they are reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import NO_LEADER, PartitionChanged, Record


def unclean_elections(image: MetadataImage, records: Iterable[Record]) -> Iterator[str]:
    """Describe the elections in these records of leaders that are neither in sync nor eligible."""
    for record in records:
        if not isinstance(record, PartitionChanged) or record.leader in (None, NO_LEADER):
            continue
        topic = image.topics.get(record.topic_id)
        state = image.partition(record.topic_id, record.partition)
        if topic is not None and state is not None:
            clean = (*state.isr, *state.elr)
            isr = state.isr if record.isr is None else record.isr
            moved = record.replicas is not None and {*record.replicas} <= {*isr}
            if record.leader not in clean and not moved:  # a move ends when all are in sync
                yield (
                    f"broker {record.leader} leads {topic.name}-{record.partition} and was not in "
                    f"sync: records that only {clean or state.last_known_elr} had are lost"
                )
