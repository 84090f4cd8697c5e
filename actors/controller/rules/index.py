"""Finds the partitions that an event affects, and colliding topic names, without a scan.

The index is updated with every record applied to the image, at a cost proportional to what the
record changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import (
    NO_LEADER,
    PartitionChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)

_NOBODY = -1


class Why(IntEnum):
    """The reason why a partition is in the index. An IntEnum, because its hashes are fastest."""

    IN_SYNC = 0
    """Indexed by each broker in the ISR, unless it is ALONE: what a broker leaves."""
    ALONE = 1
    """Indexed by the only broker in the ISR, while there is no leader."""
    ELIGIBLE = 2
    """Indexed by each eligible broker (KIP-966)."""
    WAITING = 3
    """Indexed by each replica, while there is no leader: what it may lead when it comes back."""
    DISPLACED = 4
    """Indexed by the preferred replica, while it does not lead."""
    UNSETTLED = 5
    """Indexed by no broker, while there is no leader, or a replica is eligible or the last known
    leader: what changed election rules affect."""


_Place = tuple[Why, int]
"""A reason and its broker, or _NOBODY."""


class PartitionSet:
    """A set of partitions, as one int of bits per topic.

    10,000 partitions of a topic take about 1 kB.
    """

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits: dict[TopicId, int] = {}

    def add(self, topic_id: TopicId, index: int) -> None:
        """Add a partition, unless it is there already."""
        self._bits[topic_id] = self._bits.get(topic_id, 0) | 1 << index

    def discard(self, topic_id: TopicId, index: int) -> None:
        """Remove a partition that is there."""
        left = self._bits[topic_id] ^ 1 << index
        if left:
            self._bits[topic_id] = left
        else:
            del self._bits[topic_id]

    def discard_topic(self, topic_id: TopicId) -> None:
        """Remove all partitions of a topic."""
        self._bits.pop(topic_id, None)

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __iter__(self) -> Iterator[PartitionKey]:
        """Yield the partitions, topic by topic, in order."""
        for topic_id, bits in self._bits.items():
            digits = bin(bits)[:1:-1]  # lowest bit first
            at = digits.find("1")
            while at >= 0:
                yield topic_id, at
                at = digits.find("1", at + 1)


class PartitionIndex:
    """An index of an image. All records must be applied through it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._sets: dict[_Place, PartitionSet] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """Names that contain '.' or '_', by their collapsed form."""

    def apply(self, record: Record) -> None:
        """Apply a record to the image, and update the index."""
        match record:
            case PartitionChanged() | PartitionCreated():
                topic_id, index = record.topic_id, record.partition
                before = self._image.partition(topic_id, index)
                self._image.apply(record)
                self._move(topic_id, index, before, self._image.topics[topic_id].partitions[index])
            case TopicCreated(name=name):
                self._image.apply(record)
                if "." in name or "_" in name:
                    self._names[collapsed(name)] = (*self._names.get(collapsed(name), ()), name)
            case TopicDeleted(topic_id):
                self._forget(topic_id, self._image.topics[topic_id].name)
                self._image.apply(record)
            case _:
                self._image.apply(record)

    def brokers(self, why: Why) -> list[int]:
        """Return the ids of brokers that have partitions in the index for this reason."""
        return sorted(
            broker_id for (one, broker_id), found in self._sets.items() if one is why and found
        )

    def find(
        self, why: Why, broker_id: int = _NOBODY
    ) -> Iterator[tuple[PartitionKey, PartitionState]]:
        """Yield partitions and states.

        The image must not change before the iterator is exhausted.
        """
        topics = self._image.topics
        for key in self._sets.get((why, broker_id), ()):
            yield key, topics[key[0]].partitions[key[1]]

    def named_like(self, name: str) -> str | None:
        """Return a topic whose name differs only in '.' and '_', or None."""
        return next((one for one in self._names.get(collapsed(name), ()) if one != name), None)

    def _move(
        self, topic_id: TopicId, index: int, before: PartitionState | None, after: PartitionState
    ) -> None:
        old, new = _places(before), _places(after)
        for place in old - new:
            self._sets[place].discard(topic_id, index)
        for place in new - old:
            self._sets.setdefault(place, PartitionSet()).add(topic_id, index)

    def _forget(self, topic_id: TopicId, name: str) -> None:
        for found in self._sets.values():
            found.discard_topic(topic_id)
        others = tuple(one for one in self._names.pop(collapsed(name), ()) if one != name)
        if others:
            self._names[collapsed(name)] = others


def collapsed(name: str) -> str:
    """Return a name with '.' replaced by '_'. Names with equal results collide in metric names."""
    return name.replace(".", "_")


def _places(state: PartitionState | None) -> set[_Place]:
    """Return the index entries of a partition."""
    if state is None:
        return set()
    leaderless = state.leader == NO_LEADER
    in_sync = Why.ALONE if leaderless and len(state.isr) == 1 else Why.IN_SYNC
    found = {(in_sync, one) for one in state.isr}
    if leaderless:
        found.update([(Why.WAITING, one) for one in state.replicas])
    if state.leader != state.replicas[0]:
        found.add((Why.DISPLACED, state.replicas[0]))
    if leaderless or state.elr or state.last_known_elr:
        found.add((Why.UNSETTLED, _NOBODY))
        found.update([(Why.ELIGIBLE, one) for one in state.elr])
    return found
