"""Offsets that open transactions have written: they count once the producer's marker commits.

If a partition has several offsets, the last one in the log counts, however it was committed, as in
Apache Kafka. An offset committed outside of transactions overtakes earlier pending offsets once it
is below the high watermark. So does an offset of a transaction that commits. Overtaken offsets stay
pending: readers of stable offsets wait for the marker.

An offset is recorded when its append starts, so that later requests see it. Until it is in the log
it can be reverted, because the log refuses the batch of a fenced producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NO_EPOCH = -1


class StoredOffset(NamedTuple):
    """A committed offset; times in ms."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    """-1 means that the broker's retention applies."""
    topic_id: bytes
    """All zero if unknown."""


class Producer(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class PendingOffset:
    """One offset of an open transaction."""

    number: int
    """Increases with the position in the log."""
    producer: Producer
    group_id: str
    topic: str
    partition: int
    stored: StoredOffset
    is_overtaken: bool = False
    is_open: bool = False
    """Whether it is in the log, and no later marker is being appended."""


class PendingOffsets:
    """The pending offsets of all groups in one shard."""

    def __init__(self) -> None:
        self.next_number = 0
        """The number of the next offset; offsets with lower numbers were written earlier."""
        self._offsets: dict[int, PendingOffset] = {}
        self._producers: dict[int, dict[int, PendingOffset]] = {}
        """Producer id to number to offset, in order."""
        self._groups: dict[str, dict[tuple[str, int], list[PendingOffset]]] = {}
        """The offsets of each partition in order; no entry is empty."""

    def __len__(self) -> int:
        return len(self._offsets)

    # ---- what is pending -----------------------------------------------------------------

    def of(self, group_id: str) -> Mapping[tuple[str, int], Sequence[PendingOffset]]:
        """Return a group's pending offsets by topic and partition; no list is empty."""
        return self._groups.get(group_id, {})

    def epoch_of(self, producer_id: int) -> int:
        """Return the newest epoch in which a producer wrote pending offsets, or NO_EPOCH."""
        found = self._producers.get(producer_id, {}).values()
        return max((one.producer.epoch for one in found), default=NO_EPOCH)

    def is_open(self, producer: Producer) -> bool:
        """Whether the log has offsets of this producer and no marker for them is being appended."""
        found = self._producers.get(producer.producer_id, {}).values()
        return any(one.is_open and one.producer == producer for one in found)

    # ---- changes -------------------------------------------------------------------------

    def add(
        self, producer: Producer, group_id: str, topic: str, partition: int, stored: StoredOffset
    ) -> PendingOffset:
        """Add an offset that is being appended."""
        one = PendingOffset(self.next_number, producer, group_id, topic, partition, stored)
        self.next_number += 1
        self._offsets[one.number] = one
        self._producers.setdefault(producer.producer_id, {})[one.number] = one
        places = self._groups.setdefault(group_id, {})
        places.setdefault((topic, partition), []).append(one)
        return one

    def confirm(self, numbers: Iterable[int]) -> None:
        """Record that these are in the log; they replace earlier offsets of their transaction."""
        for number in numbers:
            one = self._offsets.get(number)
            if one is None:
                continue  # forgotten in the meantime
            one.is_open = True
            for other in tuple(self._groups[one.group_id][one.topic, one.partition]):
                if other.number < number and other.producer[0] == one.producer[0]:
                    self._remove(other)

    def revert(self, numbers: Iterable[int]) -> set[str]:
        """Remove offsets that the log has refused; return their groups."""
        found = [self._offsets[number] for number in numbers if number in self._offsets]
        for one in found:
            self._remove(one)
        return {one.group_id for one in found}

    def overtake(self, group_id: str, topic: str, partition: int, before: int) -> None:
        """Mark offsets with numbers below `before` as overtaken."""
        for one in self._groups.get(group_id, {}).get((topic, partition), ()):
            if one.number < before:
                one.is_overtaken = True

    def forget(self, group_id: str, topic: str, partition: int, before: int) -> None:
        """Remove offsets below `before` because of a tombstone; they no longer need a marker."""
        for one in tuple(self._groups.get(group_id, {}).get((topic, partition), ())):
            if one.number < before:
                self._remove(one)

    def close(self, producer_id: int) -> int:
        """Record that a marker is being appended; return the number below which it ends offsets."""
        for one in self._producers.get(producer_id, {}).values():
            one.is_open = False
        return self.next_number

    def end(self, producer_id: int, before: int) -> list[PendingOffset]:
        """Remove and return what a transaction wrote below its marker's number, in log order."""
        found = self._producers.get(producer_id, {})
        ended = [one for one in found.values() if one.number < before]
        for one in ended:
            self._remove(one)
        return ended

    def _remove(self, one: PendingOffset) -> None:
        del self._offsets[one.number]
        numbers = self._producers[one.producer.producer_id]
        del numbers[one.number]
        if not numbers:
            del self._producers[one.producer.producer_id]
        places = self._groups[one.group_id]
        here = places[one.topic, one.partition]
        here.remove(one)
        if not here:
            del places[one.topic, one.partition]
            if not places:
                del self._groups[one.group_id]
