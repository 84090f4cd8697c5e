"""What the broker's machine wants done. The shell carries effects out in the order given.

Effects for one Replica are carried out one after the other; so are those for the controller.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.controller.api import OpenedReplica
from raylog.actors.plain import distinct
from raylog.actors.ports import (
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    RouteUpdate,
    TopicConfig,
)


@distinct
class SpawnReplica(NamedTuple):
    """Start a Replica process; answered by `replica_ready`."""

    name: str
    delay_ms: int = 0


@distinct
class HouseGateway(NamedTuple):
    """Start the gateway in a Replica process; answered by `gateway_ready` or `gateway_failed`."""

    replica: str


@distinct
class EndReplica(NamedTuple):
    """End a Replica process that holds nothing."""

    name: str


@distinct
class OpenPartitions(NamedTuple):
    """Open logs; answered by `opened`."""

    replica: str
    partitions: list[OpenPartition]


@distinct
class LeadPartitions(NamedTuple):
    """Tell a Replica who leads; answered by `led`."""

    replica: str
    leaderships: list[PartitionLeadership]


@distinct
class ConfigurePartitions(NamedTuple):
    """Tell a Replica changed settings of topics it holds partitions of."""

    replica: str
    configs: list[TopicConfig]


@distinct
class ClosePartitions(NamedTuple):
    """Close logs; then remove their directories, or keep them as strays."""

    replica: str
    keys: list[PartitionKey]
    directories: list[str]
    keep: bool = False


@distinct
class RemoveDirectories(NamedTuple):
    """Remove directories of partitions that nobody has open."""

    directories: list[str]


@distinct
class KeepStrays(NamedTuple):
    """Set directories aside that nobody has open and the metadata does not know.

    They get other names, under which nothing opens them, and stay until somebody removes them.
    """

    directories: list[str]


@distinct
class ReportOpened(NamedTuple):
    """Tell the controller of new openings; its records come back with the metadata."""

    opened: list[OpenedReplica]


@distinct
class ReportLost(NamedTuple):
    """Tell the controller that these replicas serve nothing for now."""

    keys: list[PartitionKey]


@distinct
class SendRoutes(NamedTuple):
    """Tell every gateway."""

    update: RouteUpdate


@distinct
class RetryLater(NamedTuple):
    """Call `retry` after a while: some logs could not be opened."""

    delay_ms: int


@distinct
class GoOn(NamedTuple):
    """Call `go_on` in the next turn of the event loop: there are more partitions to look at."""


Effect = (
    SpawnReplica
    | HouseGateway
    | EndReplica
    | OpenPartitions
    | LeadPartitions
    | ConfigurePartitions
    | ClosePartitions
    | RemoveDirectories
    | KeepStrays
    | ReportOpened
    | ReportLost
    | SendRoutes
    | RetryLater
    | GoOn
)
