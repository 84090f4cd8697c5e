"""Effects of the broker's machine. The shell carries them out in the order given.

Effects for one Replica are carried out one after the other. So are those for the controller.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.common_messages import (
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    RouteUpdate,
    TopicConfig,
)
from raylog.actors.controller.messages import OpenedReplica
from raylog.actors.message import distinct


@distinct
class SpawnReplica(NamedTuple):
    """Start a Replica process; answered by `replica_ready`."""

    name: str
    delay_ms: int = 0


@distinct
class ColocateGateway(NamedTuple):
    """Start the gateway in a Replica process; answered by `gateway_ready` or `gateway_failed`."""

    replica: str


@distinct
class EndReplica(NamedTuple):
    """End a Replica process that holds no partitions."""

    name: str


@distinct
class OpenPartitions(NamedTuple):
    """Open logs; answered by `opened`."""

    replica: str
    partitions: list[OpenPartition]


@distinct
class LeadPartitions(NamedTuple):
    """Send a Replica process the leadership of partitions; answered by `led`."""

    replica: str
    leaderships: list[PartitionLeadership]


@distinct
class ConfigurePartitions(NamedTuple):
    """Send a Replica process the changed settings of topics whose partitions it holds."""

    replica: str
    configs: list[TopicConfig]


@distinct
class ClosePartitions(NamedTuple):
    """Close logs; then remove their directories, or set them aside as strays."""

    replica: str
    keys: list[PartitionKey]
    directories: list[str]
    keep: bool = False


@distinct
class RemoveDirectories(NamedTuple):
    """Remove partition directories that no process has open."""

    directories: list[str]


@distinct
class KeepStrays(NamedTuple):
    """Set directories aside that no process has open and that do not belong here.

    They are renamed so that nothing opens them, and stay until an operator removes them.
    """

    directories: list[str]


@distinct
class ReportOpened(NamedTuple):
    """Report new incarnations to the controller. They come back as metadata records."""

    opened: list[OpenedReplica]


@distinct
class ReportLost(NamedTuple):
    """Report to the controller that these replicas serve nothing for now."""

    keys: list[PartitionKey]


@distinct
class SendRoutes(NamedTuple):
    """Send a route update to every gateway."""

    update: RouteUpdate


@distinct
class RetryLater(NamedTuple):
    """Call `retry` after a delay: some logs could not be opened."""

    delay_ms: int


@distinct
class GoOn(NamedTuple):
    """Call `go_on` in the next turn of the event loop: more partitions are queued."""


Effect = (
    SpawnReplica
    | ColocateGateway
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
