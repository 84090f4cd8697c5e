"""What one event of the broker's machine leads to, gathered before it becomes effects."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.broker.effects import (
    ClosePartitions,
    Effect,
    HouseGateway,
    KeepStrays,
    LeadPartitions,
    OpenPartitions,
    RemoveDirectories,
    ReportLost,
    ReportOpened,
    SendRoutes,
    SpawnReplica,
)
from raylog.actors.broker.pool import ReplicaSlot
from raylog.actors.controller.api import OpenedReplica
from raylog.actors.ports import (
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    RouteUpdate,
    TopicConfig,
    TopicId,
)

OPEN_AT_ONCE = 200


@dataclass(slots=True)
class Batch:
    """Effects of one event, gathered per process so that many partitions are few calls."""

    opens: dict[str, list[OpenPartition]] = field(default_factory=dict)
    leads: dict[str, list[PartitionLeadership]] = field(default_factory=dict)
    closes: dict[tuple[str, bool], list[tuple[PartitionKey, str]]] = field(default_factory=dict)
    """By process, and whether the directories are kept as strays."""
    removals: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    reports: list[OpenedReplica] = field(default_factory=list)
    losses: list[PartitionKey] = field(default_factory=list)
    routes: RouteUpdate = field(default_factory=RouteUpdate)
    spawns: list[ReplicaSlot] = field(default_factory=list)
    home: str | None = None
    """The process that is to house the gateway."""
    configs: dict[TopicId, TopicConfig] = field(default_factory=dict)
    """Settings of the topics met so far."""

    def effects(self, spawn_delay_ms: int = 0) -> list[Effect]:
        """In the order in which they are to be carried out."""
        found: list[Effect] = []
        if self.routes.removed or self.routes.added:
            found.append(SendRoutes(self.routes))
        if self.losses:
            found.append(ReportLost(self.losses))
        for (replica, keep), closing in self.closes.items():
            keys = [key for key, _ in closing]
            found.append(ClosePartitions(replica, keys, [path for _, path in closing], keep))
        if self.removals:
            found.append(RemoveDirectories(self.removals))
        if self.strays:
            found.append(KeepStrays(self.strays))
        found.extend(SpawnReplica(slot.name, spawn_delay_ms) for slot in self.spawns)
        for replica, opening in self.opens.items():
            found.extend(
                OpenPartitions(replica, opening[at : at + OPEN_AT_ONCE])
                for at in range(0, len(opening), OPEN_AT_ONCE)
            )
        if self.reports:
            found.append(ReportOpened(self.reports))
        found.extend(LeadPartitions(replica, told) for replica, told in self.leads.items())
        if self.home is not None:
            found.append(HouseGateway(self.home))
        return found
