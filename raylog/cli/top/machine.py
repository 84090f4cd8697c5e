"""Keeps what is known about a cluster, from events, and computes rates and lag. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from raylog.cli.counters import Process, growth
from raylog.cli.top import events
from raylog.cli.top.events import (
    BrokerMetrics,
    BrokerSeen,
    ClusterSeen,
    CommitsSeen,
    DisksSeen,
    EndsSeen,
    Event,
    GroupsSeen,
    HangingSeen,
    MetricsSeen,
    MinIsrSeen,
    PartAsked,
    PartFailed,
    QuorumSeen,
    TransactionsSeen,
)
from raylog.cli.top.lag import GroupLag, LagTrend

if TYPE_CHECKING:
    from raylog.client import (
        HangingTransaction,
        LogDir,
        QuorumView,
        TopicPartition,
        TransactionDescription,
    )
    from raylog.client.admin.groups import GroupListing
    from raylog.client.cluster import PartitionView

_SETTLED = ("Stable", "Empty", "Dead")
"""States of a group that is not rebalancing."""


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """A broker's metrics, with rates between two scrapes; None if they are not known."""

    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    requests_per_s: float | None = None
    p99_ms: float | None = None
    loop_lag_ms: float | None = None
    cpu_share: float | None = None
    """1.0 is one core."""
    memory_bytes: float | None = None


@dataclass(slots=True)
class Known:
    """Everything that is known about a cluster now."""

    where: str = ""
    """Options that commands need to reach the cluster, with a leading space."""
    cluster_id: str = ""
    brokers: Mapping[int, BrokerSeen] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionView] = field(default_factory=dict)
    incomplete: Mapping[TopicPartition, PartitionView] = field(default_factory=dict)
    """Partitions with a replica out of sync."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    rates: dict[TopicPartition, float] = field(default_factory=dict)
    """Records per second of partitions with two known high watermarks."""
    silent: Mapping[int, str] = field(default_factory=dict)
    quorum: QuorumView | None = None
    groups: dict[str, GroupListing] = field(default_factory=dict)
    committed: dict[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    lags: dict[str, LagTrend] = field(default_factory=dict)
    rebalancing_since_ms: dict[str, float] = field(default_factory=dict)
    open_transactions: int | None = None
    """None if not known."""
    transactions: list[TransactionDescription] = field(default_factory=list)
    transactions_unix_ms: float = 0.0
    hanging: list[HangingTransaction] = field(default_factory=list)
    disks: list[LogDir] = field(default_factory=list)
    min_isr: dict[str, int] = field(default_factory=dict)
    metrics: dict[int, BrokerRates] = field(default_factory=dict)
    away_since_ms: dict[int, float] = field(default_factory=dict)
    """Missing and fenced brokers, and when that was first seen."""
    failing: dict[str, PartFailed] = field(default_factory=dict)
    """Last failures of the parts that fail, with the times of their first failures."""
    asking: dict[str, float] = field(default_factory=dict)
    """Parts whose requests are pending, and when they were sent."""
    at_ms: float | None = None
    """Time of the last metadata; None if there was none."""
    unix_s: float = 0.0
    """The same in seconds on the wall clock of this machine."""
    is_overdue: bool = False
    """Whether the next metadata should have come by now."""

    @property
    def is_stale(self) -> bool:
        """Whether the cluster may have changed since the last metadata."""
        return self.is_overdue or events.CLUSTER in self.failing


class Watch:
    """Handles events; `known` is the resulting state.

    A part that fails keeps its last values, and is in `known.failing` until it succeeds again.
    """

    def __init__(self, where: str = "") -> None:
        self.known = Known(where)
        self._lags: dict[str, GroupLag] = {}
        self._ends_at_ms: float | None = None
        self._scraped: dict[int, tuple[float, BrokerMetrics]] = {}

    def handle(self, event: Event) -> None:
        """Handle one event."""
        match event:
            case ClusterSeen() | EndsSeen():
                self._about_partitions(event)
            case GroupsSeen() | CommitsSeen():
                self._about_groups(event)
            case TransactionsSeen() | HangingSeen():
                self._about_transactions(event)
            case QuorumSeen() | DisksSeen() | MinIsrSeen() | MetricsSeen():
                self._about_brokers(event)
            case PartAsked():
                self._about_asking(event)
            case PartFailed():
                first = self.known.failing.get(event.part, event)
                self.known.failing[event.part] = replace(event, at_ms=first.at_ms)
            case _:
                assert_never(event)

    def tick(self, now_ms: float, patience_ms: float) -> None:
        """Update `is_overdue`: metadata older than `patience_ms` is overdue."""
        at_ms = self.known.at_ms
        self.known.is_overdue = at_ms is not None and now_ms - at_ms > patience_ms

    def _about_asking(self, event: PartAsked) -> None:
        if event.at_ms is None:
            self.known.asking.pop(event.part, None)
        else:
            self.known.asking[event.part] = event.at_ms

    def _about_partitions(self, event: ClusterSeen | EndsSeen) -> None:
        known = self.known
        if isinstance(event, ClusterSeen):
            self._answered(events.CLUSTER)
            known.at_ms, known.unix_s = event.at_ms, event.unix_s
            known.is_overdue = False
            known.cluster_id = event.cluster_id
            known.brokers = event.brokers
            known.partitions = event.partitions
            known.incomplete = {
                key: one
                for key, one in event.partitions.items()
                if len(one.isr) < len(one.replicas)
            }
            self._note_away(event)
        else:
            self._answered(events.ENDS)
            known.rates = self._rates(event)
            known.ends = event.ends
            known.silent = event.silent
            self._ends_at_ms = event.at_ms

    def _about_groups(self, event: GroupsSeen | CommitsSeen) -> None:
        known = self.known
        if isinstance(event, CommitsSeen):
            self._answered(events.COMMITS)
            for group, committed in event.committed.items():
                known.committed[group] = committed
                self._note_lag(event.at_ms, group, committed)
            return
        self._answered(events.GROUPS)
        known.groups = {one.group_id: one for one in event.groups}
        since = known.rebalancing_since_ms
        known.rebalancing_since_ms = {
            one.group_id: since.get(one.group_id, event.at_ms)
            for one in event.groups
            if one.state and one.state not in _SETTLED
        }
        for gone in known.committed.keys() - known.groups.keys():
            del known.committed[gone]
            known.lags.pop(gone, None)
            self._lags.pop(gone, None)

    def _about_transactions(self, event: TransactionsSeen | HangingSeen) -> None:
        known = self.known
        if isinstance(event, HangingSeen):
            self._answered(events.HANGING)
            known.hanging = list(event.transactions)
            return
        self._answered(events.TRANSACTIONS)
        known.open_transactions = event.count
        known.transactions = list(event.transactions)
        known.transactions_unix_ms = event.unix_ms

    def _about_brokers(self, event: QuorumSeen | DisksSeen | MinIsrSeen | MetricsSeen) -> None:
        known = self.known
        match event:
            case QuorumSeen():
                self._answered(events.QUORUM)
                known.quorum = event.quorum
            case DisksSeen():
                self._answered(events.DISKS)
                known.disks = list(event.directories)
            case MinIsrSeen():
                self._answered(events.MIN_ISR)
                known.min_isr = known.min_isr | dict(event.min_isr)
            case MetricsSeen():
                if event.failures:
                    self.handle(PartFailed(event.at_ms, events.METRICS, "; ".join(event.failures)))
                else:
                    self._answered(events.METRICS)
                self._take_metrics(event)
            case _:
                assert_never(event)

    def _answered(self, part: str) -> None:
        self.known.failing.pop(part, None)

    def _note_away(self, event: ClusterSeen) -> None:
        """Record brokers that hold replicas, or are registered, but are not live."""
        live = {one for one, seen in event.brokers.items() if not seen.is_fenced}
        wanted = {broker for one in event.partitions.values() for broker in one.replicas}
        since = self.known.away_since_ms
        self.known.away_since_ms = {
            broker: since.get(broker, event.at_ms)
            for broker in sorted((wanted | event.brokers.keys()) - live)
        }

    def _rates(self, event: EndsSeen) -> dict[TopicPartition, float]:
        """Return rates, except of partitions whose end decreased: the topic may be a new one."""
        before = self._ends_at_ms
        if before is None or event.at_ms <= before:
            return {}
        past_s = (event.at_ms - before) / 1_000
        old = self.known.ends
        return {
            key: (end - old[key]) / past_s
            for key, end in event.ends.items()
            if key in old and end >= old[key]
        }

    def _note_lag(self, at_ms: float, group: str, committed: Mapping[TopicPartition, int]) -> None:
        """Add a sample over the partitions whose end is known."""
        ends = self.known.ends
        keys = committed.keys() & ends.keys()
        if not keys:
            self.known.lags.pop(group, None)
            return
        lag = self._lags.setdefault(group, GroupLag())
        read = sum(min(committed[key], ends[key]) for key in keys)
        lag.add(at_ms, keys, sum(ends[key] for key in keys), read)
        trend = lag.trend()
        assert trend is not None, "a sample was added"
        self.known.lags[group] = trend

    def _take_metrics(self, event: MetricsSeen) -> None:
        """Compute rates since the previous scrape, without processes that restarted."""
        rates = {}
        for broker, now in event.metrics.items():
            at_ms, before = self._scraped.get(broker, (event.at_ms, BrokerMetrics()))
            past_s = (event.at_ms - at_ms) / 1_000
            rates[broker] = BrokerRates(
                _rate(before.bytes_in_total, now.bytes_in_total, past_s),
                _rate(before.bytes_out_total, now.bytes_out_total, past_s),
                _rate(before.requests_total, now.requests_total, past_s),
                now.p99_ms,
                now.loop_lag_ms,
                _rate(before.cpu_s_total, now.cpu_s_total, past_s),
                now.memory_bytes,
            )
        self._scraped = {broker: (event.at_ms, now) for broker, now in event.metrics.items()}
        self.known.metrics = rates


def _rate(
    before: Mapping[Process, float], now: Mapping[Process, float], past_s: float
) -> float | None:
    grown = growth(before, now) if past_s > 0 else None
    return grown / past_s if grown is not None else None


def totals(known: Known) -> tuple[dict[str, float], dict[int, float]]:
    """Return records per second by topic, and by leader."""
    of_topic: defaultdict[str, float] = defaultdict(float)
    of_broker: defaultdict[int, float] = defaultdict(float)
    for key, rate in known.rates.items():
        view = known.partitions.get(key)
        if view is not None:
            of_topic[key.topic] += rate
            of_broker[view.leader] += rate
    return of_topic, of_broker


def names(keys: Iterable[TopicPartition], most: int) -> str:
    """Return at most `most` partitions, internal topics last, and how many more there are."""
    listed = sorted(keys, key=lambda key: (key.topic.startswith("__"), key))
    shown = ", ".join(map(str, listed[:most]))
    return f"{shown} and {len(listed) - most:,} more" if len(listed) > most else shown
