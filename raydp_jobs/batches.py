"""What one batch is: its mark, where it goes, and what it has read of which source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.marks import Job, Mark

Offsets = Mapping[TopicPartition, int]
UNKNOWN_CLUSTER = ""


class BatchFailed(Exception):
    """The batch is not known to be written; a restart finds out and goes on."""


class SourceMismatch(BatchFailed):
    """The source does not go on where the sink's transactions ended."""


class StateLost(BatchFailed):
    """The sink has written before, and nothing says any more what."""


@dataclass(frozen=True, slots=True)
class KafkaRange:
    """What a batch has read of one Kafka source."""

    starts: Offsets
    """Inclusive; empty if they are not known."""
    ends: Offsets
    """Exclusive: where the next batch begins."""
    cluster_id: str = UNKNOWN_CLUSTER
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic, as far as they are known."""


@dataclass(frozen=True, slots=True)
class OtherRange:
    """What a batch has read of a source that is not Kafka, in that source's own words.

    "-" is Spark's for one that has read nothing yet.
    """

    start: str | None
    end: str


SourceRange = KafkaRange | OtherRange


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch or job: where it goes, and what it has read."""

    mark: Mark | Job
    partitions: Sequence[TopicPartition]
    """Of the sink's topics, one for each task."""
    sources: Sequence[SourceRange] = ()
    """In the order of the query; empty if they are not known."""

    def offsets(self, cluster_id: str) -> dict[TopicPartition, CommittedOffset]:
        """What TxnOffsetCommit says: the mark, and offsets of the sink's own cluster.

        Raises SourceMismatch for a source that is one of the sink's topics.
        """
        marked = marked_partition(key.topic for key in self.partitions)
        offsets: dict[TopicPartition, int] = {}
        topics = {key.topic for key in self.partitions}
        for source in self.sources if cluster_id != UNKNOWN_CLUSTER else ():
            if isinstance(source, OtherRange) or source.cluster_id != cluster_id:
                continue  # the coordinator knows the topics of its own cluster only
            for key, end in source.ends.items():
                if key.topic in topics:
                    raise SourceMismatch(f"{key.topic} is read, and written to")
                offsets[key] = min(end, offsets.get(key, end))
        offsets[marked] = self.mark.batch_id if isinstance(self.mark, Mark) else 0
        metadata = self.mark.encode()
        return {key: CommittedOffset(offset, -1, metadata) for key, offset in offsets.items()}


def same_cluster(one: str, other: str) -> bool:
    """Whether two ids may be of the same cluster; one that is unknown may be any."""
    return UNKNOWN_CLUSTER in (one, other) or one == other


def marked_partition(topics: Iterable[str]) -> TopicPartition:
    """The partition whose committed offset carries the mark, however the topics are ordered."""
    return TopicPartition(min(topics), 0)
