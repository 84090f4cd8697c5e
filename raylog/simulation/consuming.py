"""Applications that are members of groups: they process records and commit, in either order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raylog.actors.simulation.properties import Property
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.aio import AsyncConsumer
from raylog.client.consumer.commits import Offsets
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.listener import RebalanceListener
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.interceptors import ConsumerRecord
from raylog.simulation.history import KIP_848, GroupHistory
from raylog.simulation.scene import Scene
from raylog.simulation.seats import EXPECTED, Life, check_sound
from raylog.simulation.watching import CommitWatch

ConsumedRecord = ConsumerRecord[bytes, bytes]

POLLS_MS = (20.0, 100.0, 500.0)
POLL_RECORDS = (1, 5, 500)
POLL_INTERVALS_MS = (3_000, 6_000)
SESSION_MS, HEARTBEAT_MS = 1_500, 400
WORK_MS = 200.0
"""How long one record may take."""
DAWDLES = 0.1
"""How often one takes any time."""


class Reading(RebalanceListener):
    """One member, whatever it does with records."""

    commits_by_itself = False
    """Whether the client commits positions without a word."""
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
        """The offset behind the last record of each partition since it was assigned."""
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
        """Read until the life is over, or the client gives up."""
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
        """Get ready."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Do something with what a poll returned, which may be nothing."""
        raise NotImplementedError

    async def finish(self) -> None:
        """The life is over."""

    async def process(self, records: Sequence[ConsumedRecord]) -> None:
        """Process records; some take a while."""
        for record in records:
            if self._random.random() < DAWDLES:
                await self._io.pause(WORK_MS * self._random.random())
            self._group.process(TopicPartition(record.topic, record.partition), record.offset)

    # -- a listener ----------------------------------------------------------------------------

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions begin where the group has committed."""
        for key in partitions:
            self.moved(key)

    def moved(self, key: TopicPartition) -> None:
        """The next record of a partition may be any."""
        self._next.pop(key, None)
        self._watch.moved(key)

    def _read(self, records: list[ConsumedRecord]) -> None:
        """Check what a poll returned."""
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
    """Processes what a poll returned before the next one, which may commit it."""

    commits_by_itself = True

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Process."""
        await self.process(records)


class Synchronous(Reading):
    """Processes, then commits its positions and waits, now and then."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Process, then commit."""
        await self.process(records)
        if self._random.random() < 0.7:
            await self._commit()

    async def finish(self) -> None:
        """Commit the last."""
        await self._commit()

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit, for others go on."""
        await self._commit()

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Others may have them already."""

    async def _commit(self) -> None:
        try:
            await self._consumer.commit()
        except EXPECTED as failure:  # the group goes on without us, or all is processed again
            check_sound(failure)


class Asynchronous(Reading):
    """Commits what it has processed without waiting, also in the middle of a poll's records."""

    _has_failed = False
    """Whether the last commit that has ended failed."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Process and commit, in parts."""
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
    """Commits its positions, then processes; what could not be committed is left out."""

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Commit, then process."""
        if not records:
            return
        try:
            await self._consumer.commit()
        except EXPECTED as failure:
            check_sound(failure)
        else:
            await self.process(records)
