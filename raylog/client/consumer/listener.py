"""Being told of a rebalance."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from raylog.client.cluster import TopicPartition


class RebalanceListener:
    """Inherit from it, and override what you need; methods may be coroutine functions as well.

    They are called inside `poll`, `unsubscribe` and `close`, by the thread or task that called
    those, and may use the consumer. What they raise comes out of that call; the rebalance goes on.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Finish and commit what you have of partitions that go to others; before rejoining."""

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """Partitions that are new here, perhaps none; `seek` moves where they start."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Others may have the partitions already: their offsets cannot be committed any more."""
        return self.on_partitions_revoked(partitions)
