"""A consumer's statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.client.cluster import TopicPartition
    from raylog.client.consumer.core import ConsumerCore


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Counts since the consumer was created."""

    records: int
    """Handed out by `poll` and `poll_records`."""
    bytes_fetched: int
    fetches: int
    buffered_bytes: int
    """Fetched but not handed out yet."""
    commits: int
    commits_failed: int
    rebalances: int
    """Assignments taken."""
    lags: dict[TopicPartition, int]
    """The lag of each partition whose lag is known."""

    def as_metrics(self) -> dict[str, float]:
        """Return the numbers under names like those of Kafka's client."""
        return {
            "records-consumed-total": self.records,
            "bytes-consumed-total": self.bytes_fetched,
            "fetch-total": self.fetches,
            "prefetched-bytes": self.buffered_bytes,
            "commit-total": self.commits,
            "commit-failed-total": self.commits_failed,
            "rebalance-total": self.rebalances,
            "assigned-partitions-with-lag": sum(lag > 0 for lag in self.lags.values()),
            "records-lag-max": max(self.lags.values(), default=0),
        }


def statistics_of(core: ConsumerCore) -> ConsumerStatistics:
    """Return a consumer's current counts."""
    fetcher = core.fetcher
    lags = {}
    for key in fetcher.assignment():
        progress = fetcher.progress_of(key)
        lag = None
        if progress is not None:
            lag = progress.lag(read_committed=core.settings.read_committed)
        if lag is not None:
            lags[key] = lag
    return ConsumerStatistics(
        fetcher.records_taken,
        fetcher.bytes_taken,
        fetcher.fetches,
        fetcher.buffered_bytes,
        core.commits_made,
        core.commits_failed,
        core.rebalances,
        lags,
    )
