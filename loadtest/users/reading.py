"""The base class of users that read."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from raylog.client import ConsumedRecords, Consumer, TopicPartition
from raylog.loadtest.missing_records import reader_of
from raylog.loadtest.operations import END_TO_END
from raylog.loadtest.reading import Order, Seen, examine
from raylog.loadtest.scenario import CatchUpUsers, ConsumerUsers, GroupUsers
from raylog.loadtest.users.base import LoadUser

POLL_MS = 200.0
POLL_RECORDS = 5_000
CLOSE_TIMEOUT_MS = 5_000.0
DRAIN_S = 5.0
"""How long a reader may go on after the run to read what is there."""
_US_PER_S = 1_000_000
Entry = TypeVar("Entry", ConsumerUsers, GroupUsers, CatchUpUsers)


class ReadingUser(LoadUser[Entry]):
    """Reads and checks records, and counts the time since each was meant to be sent."""

    abstract = True
    operation = END_TO_END
    _consumer: Consumer[bytes, bytes] | None = None

    def on_start(self) -> None:
        """Note the start: older records have no end-to-end latency."""
        super().on_start()
        self._known_from_us = self.local.clock.now_us()
        self._orders: dict[TopicPartition, Order] = {}
        self._reader = reader_of(self.number, self.entry)
        self._taken = 0
        """The number of records in the last poll."""

    @property
    def consumer(self) -> Consumer[bytes, bytes]:
        """This user's consumer."""
        assert self._consumer is not None, "begin comes before step"
        return self._consumer

    def open(self, settings: dict[str, object]) -> Consumer[bytes, bytes]:
        """Create the consumer."""
        own: dict[str, object] = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer(self.local.client_settings({**own, **settings}))
        return self._consumer

    @property
    def is_settled(self) -> bool:
        """Whether this user has its partitions."""
        return True

    def finish(self) -> None:
        """Read what is there by now, so that the end of the run cuts nothing off."""
        stop_s = self.environment.stop_timeout or 0.0
        until_us = self.local.clock.now_us() + int(min(DRAIN_S, stop_s / 2) * _US_PER_S)
        while self.local.clock.now_us() < until_us:
            self.step()
            if not self._taken and self.is_settled:
                return

    def end(self) -> None:
        """Close the consumer. It may still call a listener."""
        try:
            if self._consumer is not None:
                self._consumer.close(CLOSE_TIMEOUT_MS)
        finally:
            self._consumer = None

    def take(self, groups: list[ConsumedRecords]) -> int:
        """Check records. Returns their number."""
        now_us = self.local.clock.now_us()
        self._taken = sum(self._take(group, now_us) for group in groups)
        return self._taken

    def forget_order(self, keys: list[TopicPartition]) -> None:
        """Forget the order of partitions that are read from another offset on."""
        for key in keys:
            self._orders.pop(key, None)

    def _take(self, group: ConsumedRecords, now_us: int) -> int:
        local = self.local
        seen = examine(group, local.run_number, local.findings)
        key = TopicPartition(group.topic, group.partition)
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = Order(key, local.findings)
        order.follow(seen)
        self.count(key, seen, now_us)
        return len(group.records)

    def count(self, key: TopicPartition, seen: Seen, now_us: int) -> None:
        """Note records as received, and count those that are newer than this user."""
        self.local.received[self._reader, *key].add(seen.offsets, np.zeros_like(seen.offsets))
        intended_us = seen.intended_us[seen.intended_us >= self._known_from_us]
        if len(intended_us):
            self.local.recorder.done_columns(END_TO_END, intended_us, now_us, seen.bytes)


def share(partitions: list[TopicPartition], count: int, seat: int) -> list[TopicPartition]:
    """The partitions that one of `count` users reads; at least one."""
    own = partitions[seat % count :: count]
    return own or [partitions[seat % len(partitions)]]
