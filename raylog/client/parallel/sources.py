"""Where records come from: a member of a group, or partitions that are given by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from raylog.client.admin.aio import AsyncAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.aio import AsyncConsumer
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.offsets import EARLIEST, LATEST
from raylog.client.parallel.ports import Listener, Offsets
from raylog.client.settings import ConsumerSettings


class AssignedSource:
    """Partitions given by hand. Their offsets are the group's, though nobody is in it.

    Of topics of which no partition is given, all are read: retry topics, say.
    """

    def __init__(
        self, admin: AsyncAdmin, settings: ConsumerSettings, partitions: Iterable[TopicPartition]
    ) -> None:
        assert settings.group_id is not None
        self._admin = admin
        self._group_id = settings.group_id
        self._reset = LATEST if settings.reset == "latest" else EARLIEST
        self._partitions = list(partitions)
        self._consumer: AsyncConsumer[bytes, bytes] = admin.consumer(settings)
        self._paused: set[TopicPartition] = set()
        self._held: dict[TopicPartition, list[ConsumedRecords]] = {}
        self._all: list[TopicPartition] = []
        self._resumed = asyncio.Event()

    async def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Begin to read."""
        given = {key.topic for key in self._partitions}
        self._all = list(self._partitions)
        for topic in topics:
            if topic not in given:
                view = await self._admin.describe_topic(topic)
                self._all += [TopicPartition(topic, index) for index in sorted(view.partitions)]
        committed = await self.committed(self._all)
        starts = dict.fromkeys(self._all, self._reset)
        starts |= {key: found.offset for key, found in committed.items()}
        await listener.on_partitions_assigned(self._all)
        self._consumer.assign(starts)

    async def poll(self, timeout_ms: float, max_records: int) -> Sequence[ConsumedRecords]:
        """Records that are here, or come within a time."""
        free = [key for key in self._held if key not in self._paused]
        if free:
            return [one for key in free for one in self._held.pop(key)]
        if self._paused.issuperset(self._all):
            self._resumed.clear()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._resumed.wait()
            except TimeoutError:
                pass
            return []
        found = []
        for one in await self._consumer.poll(timeout_ms, max_records):
            key = TopicPartition(one.topic, one.partition)
            if key in self._paused:
                self._held.setdefault(key, []).append(one)
            else:
                found.append(one)
        return found

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no more of these."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand them out again."""
        self._paused.difference_update(partitions)
        self._resumed.set()

    async def commit(self, offsets: Offsets) -> None:
        """Commit for the group; refused if somebody is in it."""
        await self._admin.commit_group_offsets(self._group_id, offsets)

    async def committed(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """What the group committed last."""
        return await self._admin.group_offsets(self._group_id, partitions, require_stable=True)

    def group_metadata(self) -> GroupMetadata:
        """The group, without a member."""
        return GroupMetadata(self._group_id)

    async def close(self) -> None:
        """End the connections."""
        await self._consumer.close()
