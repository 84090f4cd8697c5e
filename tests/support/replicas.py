"""Parts of partition replicas for tests: a host that writes down what it was told, leaderships."""

from __future__ import annotations

from raylog.actors.ports import PartitionLeadership, TopicId
from raylog.actors.replica.leading import Proposal
from raylog.actors.replica.partition import Partition
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
    """Committed metadata; each replica is the opening "a" of its log unless said otherwise."""
    known = dict.fromkeys(replicas, "a") | (incarnations or {})
    return PartitionLeadership(
        TOPIC_ID, partition, leader, leader_epoch, partition_epoch, replicas, isr, known
    )


class FakeHost:
    """The process around a partition, as the partition sees it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def has_news(self, partition: Partition) -> None:
        self.told.append(("news", partition.high_watermark))

    def has_grown(self, partition: Partition) -> None:
        self.told.append(("grown", partition.log.log_end_offset))

    def has_figures(self, partition: Partition) -> None:
        self.told.append(("figures", partition.high_watermark))

    def has_appended(self, partition: Partition) -> None:
        self.told.append(("appended", partition.log.log_end_offset))

    def flush(self, partition: Partition) -> None:
        self.told.append(("flush", partition.log.log_end_offset))

    def load_index(self, partition: Partition, offset: int) -> None:
        """Every index that a test needs is in memory."""
        raise AssertionError

    def check(self, partition: Partition, found: Slice) -> None:
        self.told.append(("check", found))

    def has_failed(self, partition: Partition) -> None:
        self.told.append(("failed", None))

    def follow(self, partition: Partition, leader: int) -> None:
        self.told.append(("follow", leader))

    def leave(self, partition: Partition) -> None:
        self.told.append(("leave", None))

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self.told.append(("propose", proposal))
