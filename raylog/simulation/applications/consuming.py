"""Applications that consume in groups: they process records and commit, in either order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.aio import AsyncConsumer
from raylog.client.consumer.commits import Offsets
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.listener import RebalanceListener
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.interceptors import ConsumerRecord
from raylog.simulation.applications.history import KIP_848, GroupHistory
from raylog.simulation.applications.scene import Scene
from raylog.simulation.applications.seats import EXPECTED, Life, check_sound
from raylog.simulation.applications.watching import CommitWatch
from raylog.simulation.properties import Property

ConsumedRecord = ConsumerRecord[bytes, bytes]

POLLS_MS = (20.0, 100.0, 500.0)
POLL_RECORDS = (1, 5, 500)
POLL_INTERVALS_MS = (3_000, 6_000)
SESSION_MS, HEARTBEAT_MS = 1_500, 400
WORK_MS = 200.0
"""The longest time to process one record."""
DAWDLES = 0.1
"""Probability that processing a record takes any time."""


class Reading(RebalanceListener):
    """One member of a group, and what all kinds of them share."""

    commits_by_itself = False
    """Whether the client commits positions automatically."""
    read_committed = False

    def __init__(
        self, life: Life, scene: Scene, topic: str, group: GroupHistory, *, is_static: bool
    ) -> None:
        self._life = life
        self._scene = scene
        self._topic = topic
        self._group = group
        self._random = life.random
        self._watch = CommitWatch(scene.checks, group, topic, life.label)
        self._io = life.io(self._watch.sent)
        self._is_static = is_static
        self._next: dict[TopicPartition, int] = {}
        """The next expected offset of each assigned partition."""
        client = scene.client_settings(life.random)
        self._client = client
        self._core = ConsumerCore(self._io, client, self._settings())
        self._consumer = AsyncConsumer.over(self._core)

    def _settings(self) -> ConsumerSettings:
        draw, group = self._random.choice, self._group
        settings = ConsumerSettings(
            group_id=group.group_id,
            group_instance_id=self._life.seat.label if self._is_static else None,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=draw(POLL_INTERVALS_MS),
            enable_auto_commit=self.commits_by_itself,
            auto_commit_interval_ms=draw((100, 500, 2_000)),
            read_committed=self.read_committed,
            max_wait_ms=draw((200, 500)),
            partition_max_bytes=draw((1_000, 4 * 1024 * 1024)),
        )
        if group.protocol == KIP_848:
            return replace(settings, group_protocol=KIP_848)
        return replace(settings, partition_assignment_strategy=(group.protocol,))

    async def run(self) -> None:
        """Consume until the life is over or the client gives up."""
        try:
            await self.begin()
            self._consumer.subscribe([self._topic], self)
            while not self._life.is_over:
                draw = self._random.choice
                records = await self._consumer.poll_records(draw(POLLS_MS), draw(POLL_RECORDS))
                self._read(records)
                await self.take(records)
            await self.finish()
            await self._consumer.close()
        except EXPECTED as failure:
            check_sound(failure)
            self._life.tell(f"gives up: {failure!r}")
            await self._core.abandon()

    async def begin(self) -> None:
        """Called once, before the first poll."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Handle the records of one poll; there may be none."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Called once, after the last poll."""

    async def process(self, records: Sequence[ConsumedRecord]) -> None:
        """Process records. Some take a while."""
        for record in records:
            if self._random.random() < DAWDLES:
                await self._io.pause(WORK_MS * self._random.random())
            self._group.process(TopicPartition(record.topic, record.partition), record.offset)

    # -- a listener ----------------------------------------------------------------------------

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Expect any offset next: partitions start at the committed offset."""
        for key in partitions:
            self.moved(key)

    def moved(self, key: TopicPartition) -> None:
        """Expect any offset next for a partition."""
        self._next.pop(key, None)
        self._watch.moved(key, self._consumer.group_metadata().generation_id)

    def _read(self, records: list[ConsumedRecord]) -> None:
        """Check the records of a poll."""
        for record in records:
            key = TopicPartition(record.topic, record.partition)
            self._scene.read(key, record.offset, record.value or b"")
            expected = self._next.get(key, record.offset)
            follows = record.offset == expected
            self._scene.checks.hold(
                Property.READS_CONTIGUOUS, follows, self._life.label, key, record.offset, expected
            )
            self._next[key] = record.offset + 1


class Automatic(Reading):
    """Processes the records of a poll before the next poll, which may commit them."""

    commits_by_itself = True

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Process."""
        await self.process(records)


class Synchronous(Reading):
    """Processes, then commits its positions now and then and waits for the answer."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Process, then commit."""
        await self.process(records)
        if self._random.random() < 0.7:
            await self._commit()

    async def finish(self) -> None:
        """Commit what was processed last."""
        await self._commit()

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit, because other members go on from there."""
        await self._commit()

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget the partitions: other members may own them already."""

    async def _commit(self) -> None:
        try:
            await self._consumer.commit()
        except EXPECTED as failure:  # the group continues without us, or it is processed again
            check_sound(failure)


class Asynchronous(Reading):
    """Commits what it has processed without waiting, sometimes in the middle of a poll."""

    _has_failed = False
    """Whether the last completed commit failed."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Process and commit the records in parts."""
        size = self._random.choice((1, 3, 500))
        for first in range(0, len(records), size):
            part = records[first : first + size]
            await self.process(part)
            offsets = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in part}
            self._consumer.commit_async(offsets, self._ended)
        if self._has_failed and not records:
            self._has_failed = False
            self._consumer.commit_async(None, self._ended)

    def _ended(self, offsets: Offsets, failure: Exception | None) -> None:
        self._has_failed = failure is not None


class AtMostOnce(Reading):
    """Commits its positions, then processes. It skips records whose commit failed.

    After such a failure it commits again, even if there are no more records.
    """

    _has_failed = False
    """Whether the last commit failed."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Commit, then process."""
        if not records and not self._has_failed:
            return
        self._has_failed = False
        try:
            await self._consumer.commit()
        except EXPECTED as failure:
            check_sound(failure)
            self._has_failed = True
        else:
            await self.process(records)
