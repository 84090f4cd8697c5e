"""Queries a cluster's brokers and reports their answers as events.

One round requests metadata, the end offsets of partitions from their leaders, groups and open
transactions from each broker, the quorum from the controller, and some committed offsets from
coordinators. Disks, and the last stable offsets that reveal hanging transactions, are requested
less often.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from raylog.cli.top import events
from raylog.cli.top.events import BrokerSeen, Event, PartAsked, PartFailed
from raylog.cli.top.scraping import Scraper
from raylog.client.admin.group_offsets import offsets_of_groups
from raylog.client.admin.groups import GroupListing
from raylog.client.admin.operations import AllOperations
from raylog.client.admin.topics import ResourceType
from raylog.client.admin.transactions import (
    TransactionDescription,
    TransactionListing,
    transactions_on,
)
from raylog.client.cluster import NO_LEADER, PartitionView, TopicPartition
from raylog.client.coordinators import Coordinators
from raylog.client.core import Core
from raylog.client.errors import (
    ClientError,
    ConnectionLost,
    NotConnected,
    NotSupported,
    RequestTimedOut,
)
from raylog.client.offsets import LATEST, FoundOffset, find_offsets
from raylog.client.streams import AsyncIo
from raylog.wire.errors import BrokerIdNotRegistered, ErrorCode, KafkaError
from raylog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from raylog.client import ClientSettings

T = TypeVar("T")
Tell = Callable[[Event], None]

SLOW_MS = 30_000.0
"""Interval of the requests for disks and for last stable offsets."""
GROUPS_AT_ONCE = 200
"""Groups whose committed offsets one round requests; the next round continues after them."""
_TRANSACTIONS_MAX = 100
_STUCK_MAX = 500
_TOPICS_AT_ONCE = 500
_MIN_ISR = "min.insync.replicas"
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_HANGING_AFTER_MS = 15 * 60_000
"""Maximum time that a transaction may be open by default (transaction.max.timeout.ms)."""
_CONNECT_MS, _REQUEST_MS, _OPERATION_MS = 3_000, 5_000, 8_000
"""Upper limits of timeouts: a round that waits for long shows nothing new."""
_REFUSALS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)


def now_ms() -> float:
    """Return the time of the monotonic clock that events use."""
    return time.monotonic() * 1_000


@dataclass(slots=True)
class _Slow:
    """State of the requests that are made less often."""

    disks_due_ms: float = 0.0
    stable_due_ms: float = 0.0
    stable: Mapping[TopicPartition, int] | None = None
    """Last stable offsets that were below the end at the last request; None before the first."""


class Reader:
    """Queries a cluster in rounds, on one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        tell: Tell,
        *,
        now: bool = False,
        metrics: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Create a reader; `metrics` are further addresses of brokers' `/metrics`.

        With `now`, a last stable offset below the end suffices to search for hanging transactions;
        otherwise it must also be unchanged since the previous request.
        """
        settings = replace(
            settings,
            connect_timeout_ms=min(settings.connect_timeout_ms, _CONNECT_MS),
            request_timeout_ms=min(settings.request_timeout_ms, _REQUEST_MS),
            operation_timeout_ms=min(settings.operation_timeout_ms, _OPERATION_MS),
        )
        self._io = AsyncIo()
        self.core = Core(self._io, settings)
        self._admin = AllOperations(self.core)
        self._coordinators = Coordinators(self.core)
        self._scraper = Scraper(metrics)
        self._tell = tell
        self._now = now
        self._slow = _Slow()
        self._open_since: dict[str, int] = {}
        """Transactional ids to the round since which they have had an open transaction."""
        self._rounds = itertools.count()
        self._next_group = ""

    async def close(self) -> None:
        """Close all connections."""
        self.core.close_for_good()
        await self._io.finish()

    async def look(self) -> None:
        """Run one round; report each part that fails."""
        partitions = await self._part(events.CLUSTER, self._cluster())
        if partitions is None:
            return
        await asyncio.gather(
            self._part(events.QUORUM, self._quorum()),
            self._part(events.MIN_ISR, self._min_isr(partitions)),
            self._part(events.TRANSACTIONS, self._open_transactions()),
            self._part(events.DISKS, self._disks()),
            self._metrics(),
            self._read_groups(partitions),
        )

    async def _read_groups(self, partitions: Mapping[TopicPartition, PartitionView]) -> None:
        """Request ends, then committed offsets, so that a lag is never overstated."""
        at_ms = now_ms()
        ends = await self._part(events.ENDS, self._ends(partitions))
        groups = await self._part(events.GROUPS, self._list_groups())
        if groups is not None and ends is not None:
            await self._part(events.COMMITS, self._commits(groups, at_ms))
        if ends:
            await self._part(events.HANGING, self._hanging(partitions, ends))

    async def _part(self, part: str, asking: Awaitable[T]) -> T | None:
        """Return the answer for a part; if it fails, report that and return None."""
        self._tell(PartAsked(part, now_ms()))
        try:
            return await asking
        except (ClientError, KafkaError) as failure:
            refused = isinstance(failure, NotSupported) or (
                isinstance(failure, KafkaError) and failure.code in _REFUSALS
            )
            why = f"{type(failure).__name__}: {failure}"
            self._tell(PartFailed(now_ms(), part, why, refused))
            return None
        finally:
            self._tell(PartAsked(part, None))

    # -- the cluster and its partitions --------------------------------------------------------

    async def _cluster(self) -> Mapping[TopicPartition, PartitionView]:
        await self.core.repeat(lambda: self.core.refresh(None))
        view = self.core.cluster
        brokers = {
            node_id: BrokerSeen(node_id, node.host, node.port, node.rack)
            for node_id, node in view.nodes.items()
        }
        try:
            described = await self.core.look(self._admin.describe_cluster)
        except NotSupported:  # before Kafka 2.8
            described = None
        for one in described.brokers if described is not None else ():
            if one.is_fenced:
                brokers[one.broker_id] = BrokerSeen(
                    one.broker_id, one.host, one.port, one.rack, is_fenced=True
                )
        partitions = {
            TopicPartition(name, index): one
            for name, topic in view.topics.items()
            for index, one in topic.partitions.items()
        }
        self._tell(
            events.ClusterSeen(
                now_ms(),
                view.cluster_id or "",
                dict(sorted(brokers.items())),
                partitions,
                time.time(),
            )
        )
        return partitions

    async def _ends(
        self, partitions: Mapping[TopicPartition, PartitionView]
    ) -> dict[TopicPartition, int]:
        led = [key for key, one in partitions.items() if one.leader != NO_LEADER]
        at_ms = now_ms()
        found, failed = await find_offsets(self.core, dict.fromkeys(led, LATEST))
        silent: dict[int, str] = {}
        for key, failure in failed.items():
            if isinstance(failure, ClientError):
                silent.setdefault(partitions[key].leader, str(failure))
        ends = {key: one.offset for key, one in found.items()}
        self._tell(events.EndsSeen(at_ms, ends, silent))
        return ends

    async def _quorum(self) -> None:
        self._tell(events.QuorumSeen(now_ms(), await self._admin.describe_quorum()))

    async def _min_isr(self, partitions: Mapping[TopicPartition, PartitionView]) -> None:
        """Request it for topics with a replica out of sync: only they can be below it."""
        topics = sorted(
            {key.topic for key, one in partitions.items() if len(one.isr) < len(one.replicas)}
        )
        self._tell(events.MinIsrSeen(await min_isr_of(self.core, topics)))

    async def _metrics(self) -> None:
        """Scrape the brokers that serve `/metrics`."""
        at_ms = now_ms()
        self._tell(events.MetricsSeen(at_ms, *await self._scraper.scrape(self.core)))

    # -- groups --------------------------------------------------------------------------------

    async def _list_groups(self) -> list[GroupListing]:
        groups = await self._admin.list_groups()
        self._tell(events.GroupsSeen(now_ms(), groups))
        for one in groups:
            self._coordinators.note(one.group_id, one.coordinator)
        return groups

    async def _commits(self, groups: Iterable[GroupListing], at_ms: float) -> None:
        names = sorted(one.group_id for one in groups if one.type in ("", "classic", "consumer"))
        chosen = next_of(names, self._next_group, GROUPS_AT_ONCE)
        self._next_group = chosen[-1] if chosen else ""
        found = await offsets_of_groups(self.core, self._coordinators, chosen)
        commits = {
            group: {key: one.offset for key, one in committed.items()}
            for group, committed in found.items()
            if not isinstance(committed, KafkaError)
        }
        self._tell(events.CommitsSeen(at_ms, commits))

    # -- transactions --------------------------------------------------------------------------

    async def _open_transactions(self) -> None:
        listed = await self._admin.list_transactions(states=_OPEN_STATES)
        number = next(self._rounds)
        self._open_since = {
            one.transactional_id: self._open_since.get(one.transactional_id, number)
            for one in listed
        }
        oldest = sorted(listed, key=lambda one: self._open_since[one.transactional_id])
        described = await self._described(oldest[:_TRANSACTIONS_MAX])
        self._tell(events.TransactionsSeen(time.time() * 1_000, len(listed), described))

    async def _described(
        self, listed: Sequence[TransactionListing]
    ) -> list[TransactionDescription]:
        by_coordinator: dict[int, list[str]] = {}
        for one in listed:
            by_coordinator.setdefault(one.coordinator, []).append(one.transactional_id)
        found = []
        for broker_id, names in by_coordinator.items():
            transactions = await transactions_on(self.core, broker_id, names)
            found += [one for one in transactions.values() if not isinstance(one, KafkaError)]
        return found

    async def _hanging(
        self,
        partitions: Mapping[TopicPartition, PartitionView],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """Search for them where the last stable offset stays below the end."""
        slow = self._slow
        if now_ms() < slow.stable_due_ms:
            return
        slow.stable_due_ms = now_ms() + SLOW_MS
        asked = {key: LATEST for key in ends if partitions[key].leader != NO_LEADER}
        found, _ = await find_offsets(self.core, asked, read_committed=True)
        stuck = _stuck(found, ends, slow.stable, now=self._now)
        slow.stable = {key: one.offset for key, one in found.items() if one.offset < ends[key]}
        hanging = await self._admin.find_hanging_transactions(
            stuck[:_STUCK_MAX], max_timeout_ms=_HANGING_AFTER_MS
        )
        self._tell(events.HangingSeen(hanging))

    # -- disks ---------------------------------------------------------------------------------

    async def _disks(self) -> None:
        """Request data directories without their partitions, which may be many."""
        if now_ms() < self._slow.disks_due_ms:
            return
        self._slow.disks_due_ms = now_ms() + SLOW_MS
        found = []
        for broker in sorted(self.core.cluster.nodes):
            try:
                found += await self._admin.describe_log_dirs([broker], partitions=())
            except (NotConnected, ConnectionLost, RequestTimedOut, BrokerIdNotRegistered):
                continue  # `_ends` reports leaders that do not answer
        self._tell(events.DisksSeen(found))


async def min_isr_of(core: Core, topics: Sequence[str]) -> dict[str, int]:
    """Return `min.insync.replicas` of topics, without those whose value is not returned."""
    found: dict[str, int] = {}
    for first in range(0, len(topics), _TOPICS_AT_ONCE):
        some = topics[first : first + _TOPICS_AT_ONCE]
        found |= await core.look(partial(_min_isr_of, core, some))
    return found


async def _min_isr_of(core: Core, topics: Sequence[str]) -> dict[str, int]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC,
                resource_name=topic,
                configuration_keys=[_MIN_ISR],
            )
            for topic in topics
        ]
    )
    response = await core.ask(await core.any_node(), request, DescribeConfigsResponse)
    return {
        result.resource_name: int(config.value)
        for result in response.results
        for config in result.configs
        if config.name == _MIN_ISR and config.value is not None and config.value.isdecimal()
    }


def next_of(names: Sequence[str], after: str, count: int) -> list[str]:
    """Return the next `count` of sorted names, wrapping around; all if there are fewer."""
    if len(names) <= count:
        return list(names)
    later = [name for name in names if name > after]
    return (later + list(names))[:count]


def _stuck(
    stable: Mapping[TopicPartition, FoundOffset],
    ends: Mapping[TopicPartition, int],
    before: Mapping[TopicPartition, int] | None,
    *,
    now: bool,
) -> list[TopicPartition]:
    """Return where the last stable offset is below the end and, unless `now`, unchanged."""
    return [
        key
        for key, one in stable.items()
        if one.offset < ends[key] and (now or (before or {}).get(key) == one.offset)
    ]
