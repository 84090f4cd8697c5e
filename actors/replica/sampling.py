"""Metrics of a Replica process about its logs, collected on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.actors.common_messages import PartitionKey
from raylog.actors.metrics.counts import OTHERS, Bounded
from raylog.actors.metrics.families import replica as families
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.replica.cleaner import Cleaner
from raylog.actors.replica.counts import TopicCounts
from raylog.actors.replica.log_manager import LogManager
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import Runtime

TOPICS_MAX = 200
"""Default of metrics.topics.max."""
AT_ONCE = 500
"""Partitions sampled before other tasks may run."""


@dataclass(slots=True)
class _Standing:
    """Sums over partitions."""

    sizes: Counter[str] = field(default_factory=Counter)
    segments: int = 0
    states: Counter[str] = field(
        default_factory=lambda: Counter({"leader": 0, "follower": 0, "idle": 0})
    )
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    lag_records: int = 0
    writes: int = 0

    def add(self, topic: str, partition: Partition) -> None:
        """Add one partition, which counts for `topic`."""
        self.sizes[topic] += partition.log.size
        self.segments += partition.log.segment_count
        self.writes += len(partition.waiting) + len(partition.unflushed) + len(partition.committing)
        machine = partition.machine
        progress = machine.progress
        if progress is None:
            self.states["follower" if machine.is_follower else "idle"] += 1
            return
        self.states["leader"] += 1
        spare = progress.spare_replicas(machine.min_isr)
        self.under_replicated += progress.is_under_replicated
        self.under_min_isr += spare < 0
        self.at_min_isr += spare == 0
        self.lag_records = max(self.lag_records, progress.lag_records(machine.log_end_offset))


class ReplicaMetrics:
    """Metrics of one process: counters by topic, and figures about the process."""

    def __init__(
        self, runtime: Runtime, partitions: Mapping[PartitionKey, Partition], topics_max: int
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._topics = Bounded(TopicCounts, topics_max)

    def opened(self, topic: str) -> TopicCounts:
        """Return the counters for a newly opened partition."""
        counts = self._topics.of(topic)
        counts.partitions += 1
        return counts

    def closed(self, partition: Partition) -> None:
        """Release a closed partition's counters; the last of a topic ends the topic's series."""
        partition.counts.partitions -= 1
        if not partition.counts.partitions:
            self._topics.forget(partition.topic)

    async def sample(
        self, log_manager: LogManager, cleaner: Cleaner, waiting: Mapping[str, int]
    ) -> ProcessMetrics:
        """Collect all metrics. `waiting` is the number of waiting requests, by kind."""
        samples = Samples()
        self._sample_topics(samples)
        await self._sample_partitions(samples)
        samples.histogram(families.FLUSHES, log_manager.flush_seconds)
        cleaned = cleaner.counts
        samples.add(families.CLEANED, cleaned.done, "done")
        samples.add(families.CLEANED, cleaned.failed, "failed")
        samples.add(families.CLEANER_SECONDS, cleaned.seconds)
        samples.add(families.CLEANER_BYTES, cleaned.reclaimed_bytes)
        samples.add(families.CLEANER_LOGS, cleaner.candidates)
        for kind, count in waiting.items():
            samples.add(families.WAITING, count, kind)
        return process_metrics(self._runtime, samples)

    def _sample_topics(self, samples: Samples) -> None:
        for topic, counts in self._topics.items():
            samples.add(families.BYTES_IN, counts.bytes_in, topic)
            samples.add(families.RECORDS_IN, counts.records_in, topic)
            samples.add(families.BATCHES_IN, counts.batches_in, topic)
            samples.add(families.REPLICATED, counts.replicated_in, topic, "in")
            samples.add(families.REPLICATED, counts.replicated_out, topic, "out")
            samples.add(families.ISR_CHANGES, counts.shrinks, topic, "shrink")
            samples.add(families.ISR_CHANGES, counts.expands, topic, "expand")

    async def _sample_partitions(self, samples: Samples) -> None:
        """Sum up all partitions, a slice at a time."""
        standing = _Standing()
        for number, partition in enumerate(list(self._partitions.values()), 1):
            topic = partition.topic if partition.topic in self._topics else OTHERS
            standing.add(topic, partition)
            if number % AT_ONCE == 0:
                await self._runtime.sleep(0)
        for topic, size in standing.sizes.items():
            samples.add(families.LOG_BYTES, size, topic)
        for state, count in standing.states.items():
            samples.add(families.PARTITIONS, count, state)
        samples.add(families.SEGMENTS, standing.segments)
        samples.add(families.UNDER_REPLICATED, standing.under_replicated)
        samples.add(families.UNDER_MIN_ISR, standing.under_min_isr)
        samples.add(families.AT_MIN_ISR, standing.at_min_isr)
        samples.add(families.FOLLOWER_LAG, standing.lag_records)
        samples.add(families.WAITING, standing.writes, "produce")
