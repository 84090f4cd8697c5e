"""Parts of partition replicas for tests: leaderships, and a host that records calls."""

from __future__ import annotations

from typing import cast

from raylog.actors.common_messages import PartitionLeadership, TopicId
from raylog.actors.replica.partition import Host, Partition
from raylog.actors.replica.rules.leading import Proposal
from raylog.storage.log import Slice

TOPIC_ID = TopicId(bytes(16))


def leadership(
    leader: int,
    leader_epoch: int,
    partition_epoch: int = 0,
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    incarnations: dict[int, str] | None = None,
    partition: int = 0,
) -> PartitionLeadership:
    """Return committed metadata; the incarnation of each replica is "a" by default."""
    known = dict.fromkeys(replicas, "a") | (incarnations or {})
    return PartitionLeadership(
        TOPIC_ID, partition, leader, leader_epoch, partition_epoch, replicas, isr, known
    )


class FakeHost:
    """The process around a partition, one object for all its parts, which records calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.now_ms = 0
        self.gateway_sessions = self.follower_sessions = self.log_manager = self
        self.fetchers = self.alterations = self

    def as_host(self) -> Host:
        """Return this object, typed as Host."""
        return cast(Host, self)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def has_news(self, partition: Partition) -> None:
        self.calls.append(("news", partition.high_watermark))

    def has_grown(self, partition: Partition) -> None:
        self.calls.append(("grown", partition.log.log_end_offset))

    def watermarks_changed(self, partition: Partition) -> None:
        self.calls.append(("watermarks", partition.high_watermark))

    def appended(self, partition: Partition, now_ms: int) -> None:
        self.calls.append(("appended", partition.log.log_end_offset))

    def flush(self, partition: Partition) -> None:
        self.calls.append(("flush", partition.log.log_end_offset))

    def load_index(self, partition: Partition, offset: int) -> None:
        """Fail: every index that a test needs is in memory."""
        raise AssertionError

    def check(self, partition: Partition, found: Slice) -> None:
        self.calls.append(("check", found))

    def failed(self, partition: Partition) -> None:
        self.calls.append(("failed", None))

    def follow(self, partition: Partition, leader: int) -> None:
        self.calls.append(("follow", leader))

    def leave(self, partition: Partition) -> None:
        self.calls.append(("leave", None))

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self.calls.append(("propose", proposal))


class Unthrottled:
    """A throttle that never delays."""

    follows = False


class RecordingFetcher:
    """The replication of one partition, which records calls."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def resume(self, partition: Partition, epoch: int) -> None:
        self.noted.append("resume")

    def resume_later(self, partition: Partition) -> None:
        self.noted.append("resume later")
