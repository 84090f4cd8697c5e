"""Applications that copy records exactly once, with a group and a transactional producer."""

from __future__ import annotations

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import AbortRequired, ProducerUnusable
from raylog.client.offsets import EARLIEST
from raylog.client.producer.aio import AsyncProducer
from raylog.client.producer.core import ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.simulation.applications.consuming import ConsumedRecord, Reading
from raylog.simulation.applications.history import GroupHistory
from raylog.simulation.applications.scene import Scene
from raylog.simulation.applications.seats import EXPECTED, Life, check_sound
from raylog.simulation.transactions.history import Sent

ABORTS = 0.15
"""Probability that an application aborts a transaction."""
ATTEMPTS = 5
"""How often to retry the end of a transaction while its outcome is open."""
TIMEOUTS_MS = (1_500, 4_000, 10_000)


def copy_of(key: TopicPartition, offset: int, label: str) -> bytes:
    """The value of a record's copy, made by the transaction `label`."""
    return b"%d/%d copied by %s" % (key.partition, offset, label.encode())


def copied_from(value: bytes) -> tuple[int, int] | None:
    """Partition and offset of the record that was copied; None if `value` is no copy."""
    place, separator, _ = value.partition(b" copied by ")
    if not separator:
        return None
    partition, _, offset = place.partition(b"/")
    return int(partition), int(offset)


class Copying(Reading):
    """One member.

    It copies the records of a poll in one transaction and commits their offsets in it.
    """

    read_committed = True

    def __init__(
        self,
        life: Life,
        scene: Scene,
        topic: str,
        group: GroupHistory,
        *,
        is_static: bool,
        target: str,
    ) -> None:
        super().__init__(life, scene, topic, group, is_static=is_static)
        self._target = target
        core = Core(self._io, self._client)
        producer = ProducerCore(core, self._producer_settings())
        self._producer = AsyncProducer.over(producer, self._io)

    def _producer_settings(self) -> ProducerSettings:
        draw = self._random.choice
        return ProducerSettings(
            transactional_id=f"copier at {self._life.seat.label}",
            transaction_timeout_ms=draw(TIMEOUTS_MS),
            batch_bytes=draw((150, 128 * 1024)),
            linger_ms=draw((0, 5, 50)),
            delivery_timeout_ms=draw((3_000, 120_000)),
            max_block_ms=draw((3_000, 20_000)),
        )

    async def run(self) -> None:
        """Copy until the life is over or a client gives up."""
        try:
            await super().run()
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            await self._producer.close(timeout_s=5.0)
        except EXPECTED as failure:
            check_sound(failure)

    async def begin(self) -> None:
        """Fence the previous application of this seat."""
        await self._producer.init_transactions()

    async def take(self, records: list[ConsumedRecord]) -> None:
        """Copy the records. If that fails, go back to the committed offsets."""
        if not records:
            return
        sent = self._scene.transactions.begin(self._life.label)
        self._producer.begin_transaction()
        try:
            await self._copy(sent, records)
            if self._random.random() < ABORTS:
                await self._abort(sent)
            else:
                sent.asked_to_commit = True
                await self._end(commit=True)
                sent.outcome = True
                return
        except AbortRequired as failure:
            check_sound(failure)
            await self._abort(sent)
        await self._rewind()

    async def _copy(self, sent: Sent, records: list[ConsumedRecord]) -> None:
        targets = self._scene.partitions(self._target)
        offsets = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
        commit_at = self._random.randrange(len(records) + 1)
        for number, record in enumerate(records):
            if number == commit_at:
                await self._send_offsets(offsets)
            key = TopicPartition(record.topic, record.partition)
            target = targets[key.partition % len(targets)]
            value = copy_of(key, record.offset, sent.label)
            sent.values.setdefault(str(target), []).append(value)
            await self._producer.send(
                target.topic,
                value,
                partition=target.partition,
                timestamp_ms=self._life.runtime.now_ms(),
            )
            if self._random.random() < 0.05:
                await self._io.pause(300 * self._random.random())
        if commit_at == len(records):
            await self._send_offsets(offsets)

    async def _send_offsets(self, offsets: dict[TopicPartition, int]) -> None:
        metadata = self._consumer.group_metadata()
        await self._producer.send_offsets_to_transaction(offsets, metadata)

    async def _abort(self, sent: Sent) -> None:
        await self._end(commit=False)
        sent.outcome = False

    async def _end(self, *, commit: bool) -> None:
        """End the transaction. Retry while its outcome is open."""
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        for attempt in range(ATTEMPTS):
            try:
                await end()
            except (AbortRequired, ProducerUnusable):
                raise
            except EXPECTED as failure:
                check_sound(failure)
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                return

    async def _rewind(self) -> None:
        """Seek to the committed offsets of the group."""
        keys = self._consumer.assignment()
        committed = await self._consumer.committed(keys)
        for key in keys:
            self._consumer.seek(key, committed.get(key, EARLIEST))
            self.moved(key)
