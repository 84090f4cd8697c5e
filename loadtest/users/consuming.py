"""Users that read partitions as they grow, or a whole topic from the beginning."""

from __future__ import annotations

from raylog.client import EARLIEST, ConsumedRecords, TopicPartition
from raylog.loadtest.long_operations import LongOperation
from raylog.loadtest.operations import CATCH_UP, CATCH_UP_POLL
from raylog.loadtest.reading import Seen
from raylog.loadtest.scenario import CatchUpUsers, ConsumerUsers
from raylog.loadtest.users.base import LOOK_S
from raylog.loadtest.users.reading import POLL_MS, POLL_RECORDS, ReadingUser, share

_US_PER_S = 1_000_000


class ConsumerUser(ReadingUser[ConsumerUsers]):
    """Reads its share of a topic's partitions as they grow."""

    abstract = True

    def on_start(self) -> None:
        """Start without a position."""
        super().on_start()
        self._next: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        """Read from the beginning or the last position."""
        consumer = self.open({"isolation.level": self.entry.isolation, **self.entry.client})
        partitions = consumer.partitions_for(self.local.topic(self.entry.topic))
        own = share(partitions, self.entry.count, self.seat)
        consumer.assign({key: self._next.get(key, EARLIEST) for key in own})

    def step(self) -> None:
        """Poll once."""
        groups = self.consumer.poll(POLL_MS, POLL_RECORDS)
        self.take(groups)
        for group in groups:
            key = TopicPartition(group.topic, group.partition)
            self._next[key] = group.records[-1].offset + 1


class CatchUpUser(ReadingUser[CatchUpUsers]):
    """Reads a topic from the beginning to its current end, repeatedly.

    "catch-up" is the time of one reading, "catch-up-poll" that of one poll with records.
    """

    abstract = True
    operation = CATCH_UP

    def on_start(self) -> None:
        """Wait for the scenario's start of the first reading."""
        super().on_start()
        self._ends: dict[TopicPartition, int] = {}
        self._pass = LongOperation(self.local, CATCH_UP)

    def begin(self) -> None:
        """Create a consumer of all partitions."""
        consumer = self.open(dict(self.entry.client))
        consumer.assign(consumer.partitions_for(self.local.topic(self.entry.topic)))
        self._ends = {}

    def step(self) -> None:
        """Poll, or start the next reading."""
        now_us = self.local.clock.now_us()
        begin_us = self.local.started_us + int(self.entry.starts_s * _US_PER_S)
        if now_us < begin_us:
            self.sleep(min((begin_us - now_us) / _US_PER_S, LOOK_S))
            return
        if not self._ends and not self._begin_pass(now_us):
            return
        if self.take(self.consumer.poll(POLL_MS, POLL_RECORDS)):
            done_us = self.local.clock.now_us()
            self.local.recorder.done(CATCH_UP_POLL, now_us, done_us, self._bytes)
            self._pass_bytes += self._bytes
        position = self.consumer.position
        if all(position(key) >= end for key, end in self._ends.items()):
            self._pass.done(self.local.clock.now_us(), self._pass_bytes)
            self._ends = {}

    def finish(self) -> None:
        """Do nothing: a reading in progress is not completed."""

    def end(self) -> None:
        """Count a reading that takes unusually long as failed."""
        self._pass.leave()
        super().end()

    def _begin_pass(self, now_us: int) -> bool:
        """Seek to the beginning. Returns False if there is nothing to read yet."""
        keys = self.consumer.assignment()
        ends = self.consumer.end_offsets(keys)
        if not any(ends.values()):
            self.sleep(LOOK_S)
            return False
        self._ends, self._pass_bytes = ends, 0
        self._pass.begin(now_us)
        self.consumer.seek_to_beginning(keys)
        self.forget_order(keys)
        return True

    def take(self, groups: list[ConsumedRecords]) -> int:
        """Check records."""
        self._bytes = 0
        return super().take(groups)

    def count(self, key: TopicPartition, seen: Seen, now_us: int) -> None:
        """Count only bytes: old records have no end-to-end latency, and are read repeatedly."""
        self._bytes += seen.bytes
