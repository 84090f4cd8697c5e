"""The rebalance listener."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from raylog.client.cluster import TopicPartition


class RebalanceListener:
    """A listener to inherit from: override the methods you need, also as coroutine functions.

    They are called inside `poll`, `unsubscribe` and `close`, by the thread or task that called
    these, and may use the consumer. If a method raises, that call raises its error after the
    rebalance step.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Finish and commit work on partitions that are being revoked, before the rejoin."""

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """Prepare new partitions, perhaps none; `seek` changes where they start."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Drop work on lost partitions: others may own them, and commits are no longer possible."""
        return self.on_partitions_revoked(partitions)
