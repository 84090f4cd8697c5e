"""A batch: its mark, its target partitions, and the offsets it has read of each source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.sink.marks import Job, Mark

Offsets = Mapping[TopicPartition, int]
UNKNOWN_CLUSTER = ""


class BatchFailed(Exception):
    """The batch may not be written; a restart finds out and continues."""


class SourceMismatch(BatchFailed):
    """The source does not continue where the sink's transactions ended."""


class StateLost(BatchFailed):
    """The sink has written before, but there is no record of what."""


@dataclass(frozen=True, slots=True)
class KafkaRange:
    """What a batch has read of one Kafka source."""

    starts: Offsets
    """Inclusive; empty if unknown."""
    ends: Offsets
    """Exclusive: where the next batch begins."""
    cluster_id: str = UNKNOWN_CLUSTER
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic, as far as known."""


@dataclass(frozen=True, slots=True)
class OtherRange:
    """What a batch has read of a source other than Kafka, as offsets in that source's format.

    Spark writes "-" for a source that has read nothing yet.
    """

    start: str | None
    end: str


SourceRange = KafkaRange | OtherRange


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch or job: its target partitions, and what it has read."""

    mark: Mark | Job
    partitions: Sequence[TopicPartition]
    """Partitions of the sink's topics, one for each task."""
    sources: Sequence[SourceRange] = ()
    """In the order of the query; empty if unknown."""

    def offsets(self, cluster_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets for TxnOffsetCommit, with the mark: those of the sink's own cluster.

        Raises SourceMismatch if a source reads one of the sink's topics.
        """
        marked = marked_partition(key.topic for key in self.partitions)
        offsets: dict[TopicPartition, int] = {}
        topics = {key.topic for key in self.partitions}
        for source in self.sources if cluster_id != UNKNOWN_CLUSTER else ():
            if isinstance(source, OtherRange) or source.cluster_id != cluster_id:
                continue  # the coordinator has only its own cluster's topics
            for key, end in source.ends.items():
                if key.topic in topics:
                    raise SourceMismatch(f"{key.topic} is read, and written to")
                offsets[key] = min(end, offsets.get(key, end))
        offsets[marked] = self.mark.batch_id if isinstance(self.mark, Mark) else 0
        metadata = self.mark.encode()
        return {key: CommittedOffset(offset, -1, metadata) for key, offset in offsets.items()}


def same_cluster(one: str, other: str) -> bool:
    """Return whether two ids may be of the same cluster; an unknown id matches any."""
    return UNKNOWN_CLUSTER in (one, other) or one == other


def marked_partition(topics: Iterable[str]) -> TopicPartition:
    """Return the partition whose committed offset has the mark; the topics' order has no effect."""
    return TopicPartition(min(topics), 0)
