"""A model of Spark's checkpoint: a batch's offsets before it is written, its number after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from raylog.client.cluster import TopicPartition
from raylog.sink.batches import Batch, KafkaRange
from raylog.sink.marks import Mark

Ends = dict[TopicPartition, int]


@dataclass(slots=True)
class Checkpoint:
    """The checkpoint of one query with one Kafka source."""

    query_id: str
    begin: Ends
    offsets: list[Ends] = field(default_factory=list)
    """Offsets of batches, recorded before they are written."""
    done: int = 0
    """How many batches Spark knows to be written."""

    def planned(
        self, available: Ends, partitions: Sequence[TopicPartition], cluster_id: str
    ) -> Batch | None:
        """Return the next batch: the recorded one that is not done, or all that is available.

        Return None if there is nothing new. `partitions` are the sink's, `cluster_id` the source's.
        """
        if self.done == len(self.offsets):
            if available == self.start():
                return None
            self.offsets.append(dict(available))
        read = KafkaRange(self.start(), self.offsets[self.done], cluster_id)
        return Batch(Mark(self.query_id, self.done), partitions, [read])

    def start(self) -> Ends:
        """Return where the next batch begins."""
        return self.offsets[self.done - 1] if self.done else self.begin
