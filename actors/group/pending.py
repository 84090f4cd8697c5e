"""Offsets that open transactions have written: they count once their producer's marker commits.

Of several offsets of one partition the one that stands last in the log counts, whichever way it
was committed, as in Apache Kafka: an offset committed outside of transactions overtakes those that
were pending before it, once it is below the high watermark, and so does one of a transaction that
commits. What is overtaken stays pending: readers of stable offsets wait for the marker.

An offset is noted as soon as it is on its way into the log, so that what follows sees it. It can
be taken back until then: the log refuses the batch of a producer that was fenced.
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
    """-1: by the broker's retention."""
    topic_id: bytes
    """All zero: not known."""


class Producer(NamedTuple):
    """Who writes in a transaction."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class PendingOffset:
    """One offset of an open transaction."""

    number: int
    """Rises with its place in the log."""
    producer: Producer
    group_id: str
    topic: str
    partition: int
    stored: StoredOffset
    is_overtaken: bool = False
    is_open: bool = False
    """Whether it is in the log, and no marker behind it is on its way there."""


class PendingOffsets:
    """Of all groups in one shard."""

    def __init__(self) -> None:
        self.next_number = 0
        """Of the next offset; those below it were written before what is written now."""
        self._offsets: dict[int, PendingOffset] = {}
        self._producers: dict[int, dict[int, PendingOffset]] = {}
        """Producer id to number to offset, in order."""
        self._groups: dict[str, dict[tuple[str, int], list[PendingOffset]]] = {}
        """Those of one partition in order; no group and no partition has none."""

    def __len__(self) -> int:
        return len(self._offsets)

    # ---- what is pending -----------------------------------------------------------------

    def of(self, group_id: str) -> Mapping[tuple[str, int], Sequence[PendingOffset]]:
        """A group's pending offsets by topic and number of the partition; there is one at least."""
        return self._groups.get(group_id, {})

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch in which a producer wrote pending offsets; NO_EPOCH: there are none."""
        found = self._producers.get(producer_id, {}).values()
        return max((one.producer.epoch for one in found), default=NO_EPOCH)

    def is_open(self, producer: Producer) -> bool:
        """Whether the log holds such offsets, and no marker for them is on its way there."""
        found = self._producers.get(producer.producer_id, {}).values()
        return any(one.is_open and one.producer == producer for one in found)

    # ---- changes -------------------------------------------------------------------------

    def add(
        self, producer: Producer, group_id: str, topic: str, partition: int, stored: StoredOffset
    ) -> PendingOffset:
        """Note an offset that is on its way into the log."""
        one = PendingOffset(self.next_number, producer, group_id, topic, partition, stored)
        self.next_number += 1
        self._offsets[one.number] = one
        self._producers.setdefault(producer.producer_id, {})[one.number] = one
        places = self._groups.setdefault(group_id, {})
        places.setdefault((topic, partition), []).append(one)
        return one

    def confirm(self, numbers: Iterable[int]) -> None:
        """These are in the log, behind all that their transaction wrote before: it is replaced."""
        for number in numbers:
            one = self._offsets.get(number)
            if one is None:
                continue  # forgotten meanwhile
            one.is_open = True
            for other in self._beside(one):
                if other.number < number and other.producer[0] == one.producer[0]:
                    self._remove(other)

    def revert(self, numbers: Iterable[int]) -> set[str]:
        """These are not in the log and never will be; returns their groups."""
        found = [self._offsets[number] for number in numbers if number in self._offsets]
        for one in found:
            self._remove(one)
        return {one.group_id for one in found}

    def overtake(self, group_id: str, topic: str, partition: int, before: int) -> None:
        """Offsets with numbers below `before` no longer count when they commit."""
        for one in self._groups.get(group_id, {}).get((topic, partition), ()):
            if one.number < before:
                one.is_overtaken = True

    def forget(self, group_id: str, topic: str, partition: int, before: int) -> None:
        """A tombstone takes those below `before` away: they wait for no marker any more."""
        for one in tuple(self._groups.get(group_id, {}).get((topic, partition), ())):
            if one.number < before:
                self._remove(one)

    def close(self, producer_id: int) -> int:
        """A marker is on its way into the log; returns the number that it ends what is below of."""
        for one in self._producers.get(producer_id, {}).values():
            one.is_open = False
        return self.next_number

    def end(self, producer_id: int, before: int) -> list[PendingOffset]:
        """Take away what a transaction wrote below the number of its marker, in order."""
        found = self._producers.get(producer_id, {})
        ended = [one for one in found.values() if one.number < before]
        for one in ended:
            self._remove(one)
        return ended

    def _beside(self, one: PendingOffset) -> tuple[PendingOffset, ...]:
        return tuple(self._groups[one.group_id][one.topic, one.partition])

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
