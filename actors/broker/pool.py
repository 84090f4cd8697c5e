"""Which Replica process holds which partitions: a growing pool with warm spares.

A partition gets a process of its own while fewer than `actors_max` are in use, and shares the least
loaded one after that. Internal topics share from the start; a topic may ask for processes of its
own beyond the limit. A process without partitions is a spare: it takes the next partition, or what
a lost process held, without waiting for a start.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from raylog.actors.names import REPLICA, child_name
from raylog.actors.ports import PartitionKey


@dataclass(slots=True)
class ReplicaSlot:
    """One Replica process, or one that is being started."""

    name: str
    number: int
    instance: str = ""
    """Of the running process; empty while it is being started."""
    address: str = ""
    dedicated: bool = False
    restarts: int = 0
    """How often the process that held these partitions was lost."""
    partitions: set[PartitionKey] = field(default_factory=set)

    @property
    def is_ready(self) -> bool:
        """Whether the process runs."""
        return bool(self.instance)


class ReplicaPool:
    """The Replica processes of one broker."""

    def __init__(
        self,
        cluster_id: str,
        broker_id: int,
        *,
        actors_max: int,
        spares: int,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.slots: dict[str, ReplicaSlot] = {}
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._actors_max = actors_max
        self._spares = spares
        self._numbers = itertools.count() if numbers is None else numbers

    def place(self, key: PartitionKey, *, dedicated: bool, internal: bool) -> ReplicaSlot:
        """Give a partition its process; a new slot, if that is it, must be started."""
        used = [slot for slot in self.slots.values() if slot.partitions]
        shared = [slot for slot in used if not slot.dedicated]
        crowded = len(used) >= self._actors_max or internal
        if crowded and shared and not dedicated:
            slot = min(shared, key=lambda one: (len(one.partitions), one.number))
        else:
            slot = self.spare() or self.add()
            slot.dedicated = dedicated
        slot.partitions.add(key)
        return slot

    def spare(self) -> ReplicaSlot | None:
        """A process without partitions, a running one if there is one."""
        empty = [slot for slot in self.slots.values() if not slot.partitions]
        return min(empty, key=lambda one: (not one.is_ready, one.number), default=None)

    def add(self) -> ReplicaSlot:
        """A slot for a process that is yet to be started.

        Numbers are not used again, so that a successor's name never meets its predecessor's.
        """
        number = next(self._numbers)
        name = child_name(self._cluster_id, REPLICA, self._broker_id, number)
        self.slots[name] = ReplicaSlot(name, number)
        return self.slots[name]

    def adopt(self, name: str, number: int, instance: str, address: str) -> ReplicaSlot:
        """A process that runs already."""
        slot = ReplicaSlot(name, number, instance, address)
        self.slots[name] = slot
        return slot

    def remove(self, name: str) -> ReplicaSlot | None:
        """Forget a process that is gone."""
        return self.slots.pop(name, None)

    def release(self, name: str, key: PartitionKey) -> None:
        """A partition is no longer held."""
        slot = self.slots.get(name)
        if slot is not None:
            slot.partitions.discard(key)
            slot.dedicated = slot.dedicated and bool(slot.partitions)

    @property
    def is_waited_for(self) -> bool:
        """Whether a partition's process is still being started."""
        return any(slot.partitions and not slot.is_ready for slot in self.slots.values())

    def missing_spares(self) -> list[ReplicaSlot]:
        """New slots so that there are as many spares as wanted."""
        empty = sum(not slot.partitions for slot in self.slots.values())
        return [self.add() for _ in range(self._spares - empty)]

    def surplus(self) -> list[ReplicaSlot]:
        """Running processes without partitions beyond the wanted spares, taken off the pool."""
        empty = [s for s in self.slots.values() if not s.partitions and s.is_ready]
        ending = sorted(empty, key=lambda slot: slot.number)[max(self._spares, 0) :]
        for slot in ending:
            del self.slots[slot.name]
        return ending
