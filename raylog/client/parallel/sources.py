"""Where records come from: a group member, or manually assigned partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raylog.client.admin.aio import AsyncAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.consumer.listener import RebalanceListener
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.parallel.interfaces import Listener, Offsets


class _ForwardingListener(RebalanceListener):
    """Forwards rebalances to a `Listener`."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._listener.on_partitions_assigned(partitions)

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._listener.on_partitions_revoked(partitions)

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._listener.on_partitions_lost(partitions)


class GroupSource:
    """A member of the group."""

    def __init__(self, admin: AsyncAdmin, settings: ConsumerSettings) -> None:
        self._consumer = admin.consumer(settings)

    async def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group; partitions are assigned within `poll`."""
        self._consumer.subscribe(topics, _ForwardingListener(listener))

    async def poll(self, timeout_ms: float, max_records: int) -> Sequence[ConsumedRecords]:
        """Return records available within the timeout."""
        return await self._consumer.poll(timeout_ms, max_records)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions."""
        self._consumer.pause(self._still_here(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._consumer.resume(self._still_here(partitions))

    async def commit(self, offsets: Offsets) -> None:
        """Commit as the current member."""
        await self._consumer.commit(offsets)

    async def committed(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the group's committed offsets."""
        return await self._consumer.committed(partitions)

    def group_metadata(self) -> GroupMetadata:
        """Return the group and the current member."""
        return self._consumer.group_metadata()

    async def close(self) -> None:
        """Leave the group; the partitions are given up first."""
        await self._consumer.close()

    def _still_here(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Leave out partitions that a rebalance has just revoked."""
        here = set(self._consumer.assignment())
        return [key for key in partitions if key in here]


class AssignedSource(GroupSource):
    """Manually assigned partitions, with the group's offsets although it has no member.

    A topic of which no partition is given, such as a retry topic, is read completely.
    """

    def __init__(
        self, admin: AsyncAdmin, settings: ConsumerSettings, partitions: Iterable[TopicPartition]
    ) -> None:
        super().__init__(admin, settings)
        self._admin = admin
        self._partitions = list(partitions)

    async def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Start at the committed offsets, or else where `auto.offset.reset` says."""
        given = {key.topic for key in self._partitions}
        keys = list(self._partitions)
        for topic in topics:
            if topic not in given:
                view = await self._admin.describe_topic(topic)
                keys += [TopicPartition(topic, index) for index in sorted(view.partitions)]
        self._consumer.assign(keys)
        await listener.on_partitions_assigned(keys)
