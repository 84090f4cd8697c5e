"""Decides which Replica process holds which partitions: a growing pool with warm spares.

A partition gets its own process while fewer than `actors_max` are in use, and then shares the least
loaded one. Internal topics share from the start. A topic may ask for its own processes beyond the
limit. A process without partitions is a spare: it takes the next partition, or what a lost process
held, without waiting for a start.

A co-located gateway runs in a Replica process, its *home*. That is a process that partitions share
or will share. It is neither a spare nor dedicated to a partition, and does not end when it is
empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from raylog.actors.common_messages import PartitionKey
from raylog.actors.config import BROKER_KEYS, BrokerSettings
from raylog.actors.names import REPLICA, child_name
from raylog.wire.errors import InvalidConfig

FEW_CORES = 2
"""On up to this many cores, a hop to another process costs more than it gains."""
_IN_PROCESS = "gateway.in.replica.process"
_GATEWAYS = "gateway.actors"
AUTO = "auto"


@dataclass(slots=True)
class ReplicaSlot:
    """One Replica process, running or starting."""

    name: str
    number: int
    instance: str = ""
    """Id of the running process; empty while it is starting."""
    address: str = ""
    dedicated: bool = False
    restarts: int = 0
    """Number of times that the process holding these partitions was lost."""
    partitions: set[PartitionKey] = field(default_factory=set)

    @property
    def is_ready(self) -> bool:
        """Whether the process runs."""
        return bool(self.instance)


def gateways_of(settings: BrokerSettings, cores: int) -> int:
    """Return how many gateways a broker has on this many cores.

    By default half of the cores: replicas and coordinators need the other half.
    """
    key = BROKER_KEYS[_GATEWAYS]
    if settings.raw(_GATEWAYS) != AUTO:
        return settings.number(_GATEWAYS)
    assert key.high is not None, "gateways have a limit"
    return int(max(1, min(cores // 2, key.high)))


def colocates_gateway(settings: BrokerSettings, cores: int) -> bool:
    """Whether the gateway is co-located in a Replica process; raises InvalidConfig."""
    wanted = settings.raw(_IN_PROCESS)
    alone = gateways_of(settings, cores) == 1
    if wanted == "true" and not alone:
        raise InvalidConfig(f"{_IN_PROCESS}=true is for one gateway: gateway.actors must be 1")
    return wanted == "true" or (wanted == AUTO and alone and cores <= FEW_CORES)


def pool_of(
    cluster_id: str, broker_id: int, settings: BrokerSettings, cores: int, numbers: Iterator[int]
) -> ReplicaPool:
    """Build the pool that a broker's settings require on this many cores; raises InvalidConfig."""
    colocated = colocates_gateway(settings, cores)
    return ReplicaPool(
        cluster_id,
        broker_id,
        actors_max=settings.number("replica.actors.max") or (1 if colocated else max(2, cores)),
        spares=settings.number("replica.actors.spare"),
        colocates_gateway=colocated,
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
        colocates_gateway: bool = False,
        gateways: int = 1,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.slots: dict[str, ReplicaSlot] = {}
        self.colocates_gateway = colocates_gateway
        self.gateways = gateways
        """Number of gateways of the broker."""
        self.home: str | None = None
        """The process in which the gateway runs or is starting."""
        self.gateway_runs = False
        """Whether the gateway runs in it."""
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._actors_max = actors_max
        self._spares = spares
        self._numbers = itertools.count() if numbers is None else numbers

    def gateway_count_setting(self, settings: BrokerSettings) -> dict[str, str]:
        """The number of gateways, under the setting's name, if that setting is set."""
        return {_GATEWAYS: str(self.gateways)} if _GATEWAYS in settings.given else {}

    def place(self, key: PartitionKey, *, dedicated: bool, internal: bool) -> ReplicaSlot:
        """Choose a partition's process. If the slot is new, the caller must start the process."""
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
        """Return a process without partitions: an empty home, else a spare, running ones first.

        The home is never dedicated to a partition.
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
        """Return the best host for a gateway: a running process that most partitions share."""
        shared = [slot for slot in self.slots.values() if not slot.dedicated]
        return min(
            shared,
            key=lambda one: (not one.is_ready, -len(one.partitions), one.number),
            default=None,
        )

    def take_spare(self) -> ReplicaSlot | None:
        """Take a running spare out of the pool for good. It will hold no partitions."""
        spare = min(self._running_spares(), key=lambda one: one.number, default=None)
        return None if spare is None else self.slots.pop(spare.name)

    def _running_spares(self) -> list[ReplicaSlot]:
        return [slot for slot in self._spares_now() if slot.is_ready]

    def lose_home(self) -> None:
        """Forget the gateway's process."""
        self.home, self.gateway_runs = None, False

    def add(self) -> ReplicaSlot:
        """Add a slot for a process that is to be started.

        Numbers are not reused, so a successor never has its predecessor's name.
        """
        number = next(self._numbers)
        name = child_name(self._cluster_id, REPLICA, self._broker_id, number)
        self.slots[name] = ReplicaSlot(name, number)
        return self.slots[name]

    def adopt(self, name: str, number: int, instance: str, address: str) -> ReplicaSlot:
        """Add a process that is already running."""
        slot = ReplicaSlot(name, number, instance, address)
        self.slots[name] = slot
        return slot

    def remove(self, name: str) -> ReplicaSlot | None:
        """Forget a lost process."""
        if name == self.home:
            self.lose_home()
        return self.slots.pop(name, None)

    def release(self, name: str, key: PartitionKey) -> None:
        """Record that a process no longer holds a partition."""
        slot = self.slots.get(name)
        if slot is not None:
            slot.partitions.discard(key)
            slot.dedicated = slot.dedicated and bool(slot.partitions)

    @property
    def is_waited_for(self) -> bool:
        """Whether a partition's process, or the gateway's, is still starting."""
        return (self.colocates_gateway and not self.gateway_runs) or any(
            slot.partitions and not slot.is_ready for slot in self.slots.values()
        )

    def missing_spares(self) -> list[ReplicaSlot]:
        """Add slots until there are as many spares as wanted."""
        return [self.add() for _ in range(self._spares - len(self._spares_now()))]

    def surplus(self) -> list[ReplicaSlot]:
        """Take running spares beyond the wanted number out of the pool."""
        ending = sorted(self._running_spares(), key=lambda slot: slot.number)[
            max(self._spares, 0) :
        ]
        for slot in ending:
            del self.slots[slot.name]
        return ending
