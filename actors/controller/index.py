"""Which partitions an event concerns, and which names are taken: found without a look at all.

The index is changed with every record that the image takes in. What it costs is in proportion to
what the record changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import (
    NO_LEADER,
    PartitionChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)
from raylog.actors.ports import PartitionKey, TopicId

_NOBODY = -1


class Why(IntEnum):
    """Why a partition is to be found; numbers, whose hashes are the quickest."""

    IN_SYNC = 0
    """By each broker in sync, unless that is its last one, and waited for: what it leaves."""
    ALONE = 1
    """By the only broker in sync, while nobody leads."""
    ELIGIBLE = 2
    """By each broker that is eligible (KIP-966)."""
    WAITING = 3
    """By each replica, while nobody leads: what it may lead when it comes back."""
    DISPLACED = 4
    """By the preferred replica, while another leads, or nobody."""
    UNSETTLED = 5
    """Nobody leads, or somebody is eligible or known to have led last: the rules of elections
    decide. By no broker."""


_Place = tuple[Why, int]
"""A reason, and the broker it is about; _NOBODY for none."""


class PartitionSet:
    """Partitions, as the bits of one number a topic: 10,000 of one topic take about 1 kB."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits: dict[TopicId, int] = {}

    def add(self, topic_id: TopicId, index: int) -> None:
        """Add a partition; nothing happens if it is there."""
        self._bits[topic_id] = self._bits.get(topic_id, 0) | 1 << index

    def discard(self, topic_id: TopicId, index: int) -> None:
        """Take out a partition that is there."""
        left = self._bits[topic_id] ^ 1 << index
        if left:
            self._bits[topic_id] = left
        else:
            del self._bits[topic_id]

    def discard_topic(self, topic_id: TopicId) -> None:
        """Take out all partitions of a topic, if there are any."""
        self._bits.pop(topic_id, None)

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __iter__(self) -> Iterator[PartitionKey]:
        """Topic by topic; the partitions of one in order."""
        for topic_id, bits in self._bits.items():
            digits = bin(bits)[:1:-1]  # the lowest first
            at = digits.find("1")
            while at >= 0:
                yield topic_id, at
                at = digits.find("1", at + 1)


class PartitionIndex:
    """Finds partitions and names in an image, which it keeps up with: all records come this way."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._sets: dict[_Place, PartitionSet] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """Names with a '.' or a '_', by what they collapse to."""

    def apply(self, record: Record) -> None:
        """Have the image take in a record, and keep up with it."""
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
        """The brokers by which any partition is found for that reason, by id."""
        return sorted(
            broker_id for (one, broker_id), found in self._sets.items() if one is why and found
        )

    def find(
        self, why: Why, broker_id: int = _NOBODY
    ) -> Iterator[tuple[PartitionKey, PartitionState]]:
        """Partitions with their states. The image must not change before the last was asked for."""
        topics = self._image.topics
        for key in self._sets.get((why, broker_id), ()):
            yield key, topics[key[0]].partitions[key[1]]

    def named_like(self, name: str) -> str | None:
        """A topic whose name differs in nothing but '.' and '_'; None if there is none."""
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
    """Names that agree in this collide: metric names cannot tell '.' from '_'."""
    return name.replace(".", "_")


def _places(state: PartitionState | None) -> set[_Place]:
    """Where a partition is found."""
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
