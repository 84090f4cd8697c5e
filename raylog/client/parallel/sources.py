"""Where records come from: a member of a group, or partitions that are given by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raylog.client.admin.aio import AsyncAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.consumer.listener import RebalanceListener
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.parallel.ports import Listener, Offsets


class _Told(RebalanceListener):
    """Passes rebalances on."""

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
        """Join the group; partitions come within `poll`."""
        self._consumer.subscribe(topics, _Told(listener))

    async def poll(self, timeout_ms: float, max_records: int) -> Sequence[ConsumedRecords]:
        """Records that are here, or come within a time."""
        return await self._consumer.poll(timeout_ms, max_records)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no more of these."""
        self._consumer.pause(self._still_here(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand them out again."""
        self._consumer.resume(self._still_here(partitions))

    async def commit(self, offsets: Offsets) -> None:
        """Commit as the member that we are."""
        await self._consumer.commit(offsets)

    async def committed(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """What the group committed last."""
        return await self._consumer.committed(partitions)

    def group_metadata(self) -> GroupMetadata:
        """The group and which member we are."""
        return self._consumer.group_metadata()

    async def close(self) -> None:
        """Leave the group; partitions are given up before."""
        await self._consumer.close()

    def _still_here(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Without those that a rebalance has just taken."""
        here = set(self._consumer.assignment())
        return [key for key in partitions if key in here]


class AssignedSource(GroupSource):
    """Partitions given by hand. Their offsets are the group's, though nobody is in it.

    Of topics of which no partition is given, all are read: retry topics, say.
    """

    def __init__(
        self, admin: AsyncAdmin, settings: ConsumerSettings, partitions: Iterable[TopicPartition]
    ) -> None:
        super().__init__(admin, settings)
        self._admin = admin
        self._partitions = list(partitions)

    async def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Begin to read where the group committed, else as `auto.offset.reset` says."""
        given = {key.topic for key in self._partitions}
        keys = list(self._partitions)
        for topic in topics:
            if topic not in given:
                view = await self._admin.describe_topic(topic)
                keys += [TopicPartition(topic, index) for index in sorted(view.partitions)]
        self._consumer.assign(keys)
        await listener.on_partitions_assigned(keys)
