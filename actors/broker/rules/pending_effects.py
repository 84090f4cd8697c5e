"""Collects the consequences of one event of the broker's machine and turns them into effects."""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.broker.rules.effects import (
    ClosePartitions,
    ColocateGateway,
    Effect,
    KeepStrays,
    LeadPartitions,
    OpenPartitions,
    RemoveDirectories,
    ReportLost,
    ReportOpened,
    SendRoutes,
    SpawnReplica,
)
from raylog.actors.broker.rules.pool import ReplicaSlot
from raylog.actors.common_messages import (
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    RouteUpdate,
    TopicConfig,
    TopicId,
)
from raylog.actors.controller.messages import OpenedReplica

OPEN_AT_ONCE = 200


@dataclass(slots=True)
class PendingEffects:
    """Effects of one event, collected per process so that many partitions need few calls."""

    opens: dict[str, list[OpenPartition]] = field(default_factory=dict)
    leads: dict[str, list[PartitionLeadership]] = field(default_factory=dict)
    closes: dict[tuple[str, bool], list[tuple[PartitionKey, str]]] = field(default_factory=dict)
    """By process, and by whether the directories are set aside as strays."""
    removals: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    reports: list[OpenedReplica] = field(default_factory=list)
    losses: list[PartitionKey] = field(default_factory=list)
    routes: RouteUpdate = field(default_factory=RouteUpdate)
    spawns: list[ReplicaSlot] = field(default_factory=list)
    home: str | None = None
    """Process that is to host the gateway."""
    configs: dict[TopicId, TopicConfig] = field(default_factory=dict)
    """Settings of the topics seen so far."""

    def effects(self, spawn_delay_ms: int = 0) -> list[Effect]:
        """Return the effects in the order in which the shell must carry them out."""
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
        found.extend(
            LeadPartitions(replica, leaderships) for replica, leaderships in self.leads.items()
        )
        if self.home is not None:
            found.append(ColocateGateway(self.home))
        return found
