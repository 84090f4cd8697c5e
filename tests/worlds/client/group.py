"""A group, its topics and a producer in memory, for the parallel consumer under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.interfaces import Listener, NotDelivered, Offsets
from raylog.wire.errors import IllegalGeneration, UnknownTopicOrPartition
from raylog.wire.record import Record

WALL_MS = 1_700_000_000_000


class FakeBroker:
    """Topics of any number of partitions, and the offsets of one group."""

    def __init__(self) -> None:
        self.log: dict[TopicPartition, list[Record]] = {}
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.commits: list[dict[TopicPartition, CommittedOffset]] = []
        self.members: list[FakeSource] = []
        self.refuse_topics: set[str] = set()
        self.abort_transactions = 0
        """How many of the next transactions are aborted."""

    def append(
        self,
        key: TopicPartition,
        value: bytes | None,
        name: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> int:
        records = self.log.setdefault(key, [])
        offset = len(records)
        records.append(Record(offset, WALL_MS, name, value, list(headers)))
        for member in self.members:
            member.wake()
        return offset

    def produce(self, records: Sequence[ProducerRecord]) -> None:
        for one in records:
            assert one.value is None or isinstance(one.value, bytes)
            assert one.key is None or isinstance(one.key, bytes)
            key = TopicPartition(one.topic, one.partition or 0)
            self.append(key, one.value, one.key, one.headers)

    def values(self, topic: str) -> list[bytes | None]:
        return [
            one.value
            for key, some in sorted(self.log.items())
            if key.topic == topic
            for one in some
        ]


class FakeSource:
    """One member's consumer; the test moves partitions between members."""

    def __init__(self, broker: FakeBroker, keys: Iterable[TopicPartition] = ()) -> None:
        self.broker = broker
        self.owned: dict[TopicPartition, int] = {}
        self.wanted = list(keys)
        self.lose: list[TopicPartition] = []
        self.paused: set[TopicPartition] = set()
        self.polls = 0
        self.is_closed = False
        self._waiter: asyncio.Event = asyncio.Event()
        broker.members.append(self)

    async def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self.topics, self.listener = topics, listener

    async def poll(self, timeout_ms: float, max_records: int) -> Sequence[ConsumedRecords]:
        self.polls += 1
        await self._rebalance()
        if not (found := self._take(max_records)):
            self._waiter.clear()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._waiter.wait()
            except TimeoutError:
                return []
            found = self._take(max_records)
        return found

    def wake(self) -> None:
        self._waiter.set()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused.difference_update(partitions)
        self.wake()

    async def commit(self, offsets: Offsets) -> None:
        await asyncio.sleep(0.001)
        self._commit(offsets)

    async def committed(self, partitions: Sequence[TopicPartition]) -> Offsets:
        await asyncio.sleep(0.001)
        return {
            key: self.broker.committed[key] for key in partitions if key in self.broker.committed
        }

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("g", 1, "m")

    async def close(self) -> None:
        self.is_closed = True

    def _commit(self, offsets: Offsets) -> None:
        if not set(offsets) <= set(self.owned):
            raise IllegalGeneration(f"{set(offsets) - set(self.owned)} is not ours")
        self.broker.committed.update(offsets)
        self.broker.commits.append(dict(offsets))

    async def _rebalance(self) -> None:
        lost = [key for key in self.lose if key in self.owned]
        self.lose.clear()
        if lost:
            for key in lost:
                del self.owned[key]
            await self.listener.on_partitions_lost(lost)
        revoked = [key for key in self.owned if key not in self.wanted]
        if revoked:
            await self.listener.on_partitions_revoked(revoked)
            for key in revoked:
                del self.owned[key]
                self.paused.discard(key)
        assigned = [
            key
            for key in self.wanted
            if key not in self.owned
            and not any(key in other.owned for other in self.broker.members)
        ]
        if assigned:
            for key in assigned:
                found = self.broker.committed.get(key)
                self.owned[key] = 0 if found is None else found.offset
            await self.listener.on_partitions_assigned(assigned)

    def _take(self, max_records: int) -> list[ConsumedRecords]:
        found = []
        for key, position in self.owned.items():
            records = self.broker.log.get(key, [])[position : position + max_records]
            if records and key not in self.paused:
                self.owned[key] = records[-1].offset + 1
                found.append(ConsumedRecords(key.topic, key.partition, records, len(records)))
        return found


class FakeSink:
    """A producer that appends to the broker's memory."""

    def __init__(self, broker: FakeBroker, source: FakeSource | None = None) -> None:
        self.broker = broker
        self.source = source
        self.transactions: list[int] = []

    async def start(self) -> None:
        """Do nothing."""

    async def send(self, records: Sequence[ProducerRecord]) -> None:
        await asyncio.sleep(0.001)
        self._refuse(records)
        self.broker.produce(records)

    def _refuse(self, records: Sequence[ProducerRecord]) -> None:
        refused: dict[int, Exception] = {
            at: UnknownTopicOrPartition(one.topic)
            for at, one in enumerate(records)
            if one.topic in self.broker.refuse_topics
        }
        if refused:
            raise NotDelivered("no such topic", refused)

    async def transact(
        self, records: Sequence[ProducerRecord], offsets: Offsets, group: GroupMetadata
    ) -> None:
        await asyncio.sleep(0.002)
        assert self.source is not None
        if self.broker.abort_transactions:
            self.broker.abort_transactions -= 1
            raise NotDelivered("aborted")
        self._refuse(records)
        try:
            self.source._commit(offsets)
        except IllegalGeneration as error:
            raise NotDelivered("aborted") from error
        self.broker.produce(records)
        self.transactions.append(len(records))

    async def close(self) -> None:
        """Do nothing."""


Stop = Callable[[], bool]
