"""What the broker's machine wants done. The shell carries effects out in the order given.

Effects for one Replica are carried out one after the other; so are those for the controller.
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.controller.api import OpenedReplica
from raylog.actors.ports import (
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    RouteUpdate,
    TopicId,
)


@dataclass(frozen=True, slots=True)
class SpawnReplica:
    """Start a Replica process; answered by `replica_ready`."""

    name: str
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndReplica:
    """End a Replica process that holds nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class OpenPartitions:
    """Open logs; answered by `opened`."""

    replica: str
    partitions: list[OpenPartition]


@dataclass(frozen=True, slots=True)
class LeadPartitions:
    """Tell a Replica who leads; answered by `led`."""

    replica: str
    leaderships: list[PartitionLeadership]


@dataclass(frozen=True, slots=True)
class ConfigurePartitions:
    """Tell a Replica changed settings of topics it holds partitions of."""

    replica: str
    configs: list[tuple[TopicId, dict[str, str]]]


@dataclass(frozen=True, slots=True)
class ClosePartitions:
    """Close logs and remove their directories."""

    replica: str
    keys: list[PartitionKey]
    directories: list[str]


@dataclass(frozen=True, slots=True)
class RemoveDirectories:
    """Remove directories of partitions that nobody has open."""

    directories: list[str]


@dataclass(frozen=True, slots=True)
class ReportOpened:
    """Tell the controller of new openings; its records come back with the metadata."""

    opened: list[OpenedReplica]


@dataclass(frozen=True, slots=True)
class ReportLost:
    """Tell the controller that these replicas serve nothing for now."""

    keys: list[PartitionKey]


@dataclass(frozen=True, slots=True)
class SendRoutes:
    """Tell every gateway."""

    update: RouteUpdate


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Call `retry` after a while: some logs could not be opened."""

    delay_ms: int


Effect = (
    SpawnReplica
    | EndReplica
    | OpenPartitions
    | LeadPartitions
    | ConfigurePartitions
    | ClosePartitions
    | RemoveDirectories
    | ReportOpened
    | ReportLost
    | SendRoutes
    | RetryLater
)
