"""Which Replica process holds which partitions: a growing pool with warm spares.

A partition gets a process of its own while fewer than `actors_max` are in use, and shares the least
loaded one after that. Internal topics share from the start; a topic may ask for processes of its
own beyond the limit. A process without partitions is a spare: it takes the next partition, or what
a lost process held, without waiting for a start.

Where the gateway lives in a Replica process, its *home*, that is one that partitions share, or that
they will: it is neither a spare nor dedicated to a partition nor ended while it is empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from raylog.actors.config import BROKER_KEYS, BrokerSettings
from raylog.actors.names import REPLICA, child_name
from raylog.actors.ports import PartitionKey
from raylog.wire.errors import InvalidConfig

FEW_CORES = 2
"""Up to as many, what a hop to another process costs is missing elsewhere."""
_IN_PROCESS = "gateway.in.replica.process"
_GATEWAYS = "gateway.actors"
AUTO = "auto"


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


def gateways_of(settings: BrokerSettings, cores: int) -> int:
    """How many gateways a broker with so many cores has.

    Half of the cores at most: replicas and coordinators need as much again.
    """
    key = BROKER_KEYS[_GATEWAYS]
    if settings.raw(_GATEWAYS) != AUTO:
        return settings.number(_GATEWAYS)
    assert key.high is not None, "gateways have a limit"
    return int(max(1, min(cores // 2, key.high)))


def houses_gateway(settings: BrokerSettings, cores: int) -> bool:
    """Whether the gateway lives in a Replica process; raises InvalidConfig."""
    wanted = settings.raw(_IN_PROCESS)
    alone = gateways_of(settings, cores) == 1
    if wanted == "true" and not alone:
        raise InvalidConfig(f"{_IN_PROCESS}=true is for one gateway: gateway.actors must be 1")
    return wanted == "true" or (wanted == AUTO and alone and cores <= FEW_CORES)


def pool_of(
    cluster_id: str, broker_id: int, settings: BrokerSettings, cores: int, numbers: Iterator[int]
) -> ReplicaPool:
    """The pool that a broker's settings ask for on so many cores; raises InvalidConfig."""
    housed = houses_gateway(settings, cores)
    return ReplicaPool(
        cluster_id,
        broker_id,
        actors_max=settings.number("replica.actors.max") or (1 if housed else max(2, cores)),
        spares=settings.number("replica.actors.spare"),
        houses_gateway=housed,
        gateways=gateways_of(settings, cores),
        numbers=numbers,
    )


class ReplicaPool:
    """The Replica processes of one broker."""

    def __init__(
        self,
        cluster_id: str,
        broker_id: int,
        *,
        actors_max: int,
        spares: int,
        houses_gateway: bool = False,
        gateways: int = 1,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.slots: dict[str, ReplicaSlot] = {}
        self.houses_gateway = houses_gateway
        self.gateways = gateways
        """How many there are to be."""
        self.home: str | None = None
        """The process in which the gateway lives or is being started."""
        self.gateway_runs = False
        """Whether it lives there already."""
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._actors_max = actors_max
        self._spares = spares
        self._numbers = itertools.count() if numbers is None else numbers

    def gateways_told(self, settings: BrokerSettings) -> dict[str, str]:
        """What the gateways, and their clients, are told of their number if that is given."""
        return {_GATEWAYS: str(self.gateways)} if _GATEWAYS in settings.given else {}

    def place(self, key: PartitionKey, *, dedicated: bool, internal: bool) -> ReplicaSlot:
        """Give a partition its process; a new slot, if that is it, must be started."""
        used = [slot for slot in self.slots.values() if slot.partitions]
        shared = [slot for slot in used if not slot.dedicated]
        crowded = len(used) >= self._actors_max or internal
        if crowded and shared and not dedicated:
            slot = min(shared, key=lambda one: (len(one.partitions), one.number))
        else:
            slot = self.spare(dedicated=dedicated) or self.add()
            slot.dedicated = dedicated
        slot.partitions.add(key)
        return slot

    def spare(self, *, dedicated: bool = False) -> ReplicaSlot | None:
        """A process for partitions that has none: an empty home, else a spare, a running one first.

        For a dedicated one the home does not do.
        """
        home = self.slots.get(self.home or "")
        if home is not None and not home.partitions and not dedicated:
            return home
        spares = self._spares_now()
        return min(spares, key=lambda one: (not one.is_ready, one.number), default=None)

    def _spares_now(self) -> list[ReplicaSlot]:
        return [
            slot for slot in self.slots.values() if not slot.partitions and slot.name != self.home
        ]

    def candidate(self) -> ReplicaSlot | None:
        """The process that suits the gateway best: it runs, and partitions share it."""
        shared = [slot for slot in self.slots.values() if not slot.dedicated]
        return min(
            shared,
            key=lambda one: (not one.is_ready, -len(one.partitions), one.number),
            default=None,
        )

    def lend(self) -> ReplicaSlot | None:
        """Take a running spare off the pool, for good: no partition will be there."""
        spare = min(self._running_spares(), key=lambda one: one.number, default=None)
        return None if spare is None else self.slots.pop(spare.name)

    def _running_spares(self) -> list[ReplicaSlot]:
        return [slot for slot in self._spares_now() if slot.is_ready]

    def lose_home(self) -> None:
        """The gateway lives nowhere now."""
        self.home, self.gateway_runs = None, False

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
        if name == self.home:
            self.lose_home()
        return self.slots.pop(name, None)

    def release(self, name: str, key: PartitionKey) -> None:
        """A partition is no longer held."""
        slot = self.slots.get(name)
        if slot is not None:
            slot.partitions.discard(key)
            slot.dedicated = slot.dedicated and bool(slot.partitions)

    @property
    def is_waited_for(self) -> bool:
        """Whether a partition's process, or the gateway, is still being started."""
        return (self.houses_gateway and not self.gateway_runs) or any(
            slot.partitions and not slot.is_ready for slot in self.slots.values()
        )

    def missing_spares(self) -> list[ReplicaSlot]:
        """New slots so that there are as many spares as wanted."""
        return [self.add() for _ in range(self._spares - len(self._spares_now()))]

    def surplus(self) -> list[ReplicaSlot]:
        """Running processes without partitions beyond the wanted spares, taken off the pool."""
        ending = sorted(self._running_spares(), key=lambda slot: slot.number)[
            max(self._spares, 0) :
        ]
        for slot in ending:
            del self.slots[slot.name]
        return ending
