"""What Spark keeps of a query: a batch's offsets before it is written, its number after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.batches import Batch, KafkaRange
from raylog.raydp_jobs.marks import Mark

Ends = dict[TopicPartition, int]


@dataclass(slots=True)
class Checkpoint:
    """The checkpoint of one query with one Kafka source."""

    query_id: str
    begin: Ends
    offsets: list[Ends] = field(default_factory=list)
    """Of batches, noted before they are written."""
    done: int = 0
    """Batches that Spark knows to be written."""

    def planned(
        self, available: Ends, partitions: Sequence[TopicPartition], cluster_id: str
    ) -> Batch | None:
        """The next batch: the one that is noted and not done, or else up to what is available.

        None if there is nothing new. `partitions` are the sink's, `cluster_id` is the source's.
        """
        if self.done == len(self.offsets):
            if available == self.start():
                return None
            self.offsets.append(dict(available))
        read = KafkaRange(self.start(), self.offsets[self.done], cluster_id)
        return Batch(Mark(self.query_id, self.done), partitions, [read])

    def start(self) -> Ends:
        """Where the next batch begins."""
        return self.offsets[self.done - 1] if self.done else self.begin
