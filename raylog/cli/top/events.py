"""Events of `raylog top`: what it learns about a cluster. `at_ms` is from a monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.cli.counters import Process
    from raylog.client import (
        HangingTransaction,
        LogDir,
        QuorumView,
        TopicPartition,
        TransactionDescription,
    )
    from raylog.client.admin.groups import GroupListing
    from raylog.client.cluster import PartitionView


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A broker in the metadata."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """Metadata was received."""

    at_ms: float
    cluster_id: str
    brokers: Mapping[int, BrokerSeen]
    """Live and fenced brokers."""
    partitions: Mapping[TopicPartition, PartitionView]
    unix_s: float = 0.0
    """The same time in seconds on the wall clock of this machine."""


@dataclass(frozen=True, slots=True)
class EndsSeen:
    """Leaders returned their high watermarks."""

    at_ms: float
    ends: Mapping[TopicPartition, int]
    silent: Mapping[int, str] = field(default_factory=dict)
    """Brokers that did not answer, and why."""


@dataclass(frozen=True, slots=True)
class QuorumSeen:
    """The controller described the metadata quorum."""

    at_ms: float
    quorum: QuorumView


@dataclass(frozen=True, slots=True)
class GroupsSeen:
    """All groups were listed."""

    at_ms: float
    groups: Sequence[GroupListing]


@dataclass(frozen=True, slots=True)
class CommitsSeen:
    """Committed offsets of some groups, requested just after the end offsets at `at_ms`."""

    at_ms: float
    committed: Mapping[str, Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class TransactionsSeen:
    """Open transactions."""

    unix_ms: float
    """When they were described, as Unix time like the start of a transaction."""
    count: int
    transactions: Sequence[TransactionDescription]
    """Some of them; those that have been open for long are preferred."""


@dataclass(frozen=True, slots=True)
class HangingSeen:
    """Transactions that no coordinator will end."""

    transactions: Sequence[HangingTransaction]


@dataclass(frozen=True, slots=True)
class DisksSeen:
    """Data directories of the brokers that answered."""

    directories: Sequence[LogDir]


@dataclass(frozen=True, slots=True)
class MinIsrSeen:
    """`min.insync.replicas` of topics with replicas out of sync."""

    min_isr: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """A broker's metrics; None or empty if it does not export them."""

    bytes_in_total: Mapping[Process, float] = field(default_factory=dict)
    bytes_out_total: Mapping[Process, float] = field(default_factory=dict)
    requests_total: Mapping[Process, float] = field(default_factory=dict)
    p99_ms: float | None = None
    """Of requests other than Fetch, since the previous scrape."""
    loop_lag_ms: float | None = None
    cpu_s_total: Mapping[Process, float] = field(default_factory=dict)
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class MetricsSeen:
    """Brokers' metrics were scraped."""

    at_ms: float
    metrics: Mapping[int, BrokerMetrics]
    failures: Sequence[str] = ()
    """Why addresses that the user named failed."""


@dataclass(frozen=True, slots=True)
class PartAsked:
    """The request for a part was sent, or has ended."""

    part: str
    at_ms: float | None
    """None if the request has ended, with or without an answer."""


@dataclass(frozen=True, slots=True)
class PartFailed:
    """The request for a part failed; what was known before stays."""

    at_ms: float
    part: str
    why: str
    is_refused: bool = False
    """Whether brokers do not support the request or deny it to this client: it says nothing about
    the cluster."""


Event = (
    ClusterSeen
    | EndsSeen
    | QuorumSeen
    | GroupsSeen
    | CommitsSeen
    | TransactionsSeen
    | HangingSeen
    | DisksSeen
    | MinIsrSeen
    | MetricsSeen
    | PartAsked
    | PartFailed
)
CLUSTER, ENDS, QUORUM, GROUPS, COMMITS, TRANSACTIONS, HANGING, DISKS, MIN_ISR, METRICS = (
    "metadata",
    "offsets",
    "metadata quorum",
    "groups",
    "committed offsets",
    "transactions",
    "hanging transactions",
    "disks",
    "min.insync.replicas",
    "metrics",
)
"""Names of parts in `PartAsked` and `PartFailed`."""
