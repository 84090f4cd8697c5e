"""The lag of groups: how far committed offsets are behind the ends of their partitions.

Committed offsets are here, and ends where the partitions are led. So the lag is found in the
background when somebody asks for metrics, and told the next time: a scrape waits for no other
broker. Nothing happens while nobody asks.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the coordinator's shell: many answers are awaited together
import logging
from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest

from raylog.actors.group.hosting import ShardHost
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import NO_LEADER
from raylog.actors.metrics.counts import OTHERS
from raylog.actors.metrics.families import coordinators as families
from raylog.actors.metrics.samples import Samples
from raylog.actors.names import broker_name
from raylog.actors.plain import cut
from raylog.actors.ports import PartitionKey
from raylog.actors.replica.api import LATEST_TIMESTAMP, OFFSET_FOR
from raylog.actors.runtime.base import ActorGone, Link, PeerLost, PeerTimeout, Runtime
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
INTERVAL_MS = 5_000
"""However often metrics are asked for, lags are found no more often."""
PARTITIONS_MAX = 2_000
"""Partitions whose ends are asked for at a time."""
OFFSETS_MAX = 100_000
"""Committed offsets that are looked at, of all groups; twice 20 ms."""
TOPICS_MAX = 20
"""Topics of a group that have series of their own: those with the most lag."""
TURN = 1_000
"""Offsets that are looked at in one turn of the event loop."""
ASKED_AT_ONCE = 250
TIMEOUT_MS = 2_000
_UNCOUNTED = -1
_FAILURES = (ActorGone, PeerLost, PeerTimeout, KafkaError, TimeoutError)
Lags = dict[tuple[str, str], int]
"""By group and topic."""
Offset = tuple[str, str, int, int]
"""Group, topic, partition, committed offset."""


class GroupLag:
    """Finds and tells the lag of the groups of one coordinator."""

    def __init__(
        self,
        runtime: Runtime,
        cluster_id: str,
        image: MetadataImage,
        shards: Iterable[ShardHost],
        groups_max: int,
    ) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._image = image
        self._shards = shards
        self._groups_max = groups_max
        self._own: list[str] = []
        """Groups with series of their own, in the order in which they got them."""
        self._lags: Lags = {}
        self._skipped = 0
        self._links: dict[str, Link] = {}
        self._is_looking = False
        self._next_ms = 0.0

    def sample(self, samples: Samples) -> None:
        """Tell what was found, and have it found anew."""
        for (group_id, topic), lag in self._lags.items():
            samples.add(families.LAG, lag, group_id, topic)
        samples.add(families.LAG_SKIPPED, self._skipped)
        now_ms = self._runtime.monotonic_ms()
        if not self._is_looking and now_ms >= self._next_ms:
            self._is_looking, self._next_ms = True, now_ms + INTERVAL_MS
            self._runtime.start(self._look(), "lag of groups")

    def close(self) -> None:
        """Close all links."""
        for link in tuple(self._links.values()):
            link.close()

    async def _look(self) -> None:
        try:
            wanted: dict[PartitionKey, int] = {}
            left_out: set[tuple[str, int]] = set()
            beyond = await self._in_turns(lambda offset: self._want(offset, wanted, left_out))
            ends = await self._ends(wanted)
            lags: dict[str, dict[str, int]] = {}
            await self._in_turns(lambda offset: self._count(offset, ends, lags))
            self._lags = self._told(lags)
            self._skipped = len(left_out) + len(wanted) - len(ends) + beyond
        finally:
            self._is_looking = False

    # ---- committed offsets ---------------------------------------------------------------

    async def _in_turns(self, take: Callable[[Offset], None]) -> int:
        """Look at the offsets of groups that are served here, as they are now.

        Returns how many were not looked at.
        """
        for number, offset in enumerate(self._offsets(), 1):
            take(offset)
            if number == OFFSETS_MAX:
                return self._offset_count() - OFFSETS_MAX
            if number % TURN == 0:
                await self._runtime.sleep(0)
        return 0

    def _offset_count(self) -> int:
        stores = [host.shard.offsets for host in self._shards if host.is_active]
        return sum(
            len(partitions)
            for store in stores
            for group_id in store.groups
            for partitions in store.of(group_id).values()
        )

    def _offsets(self) -> Iterator[Offset]:
        """Offsets may change between two of them: what is walked is a copy, a topic at a time."""
        for host in self._shards:
            if not host.is_active:
                continue
            store = host.shard.offsets
            for group_id in list(store.groups):
                for topic, partitions in list(store.of(group_id).items()):
                    for index, stored in list(partitions.items()):
                        yield group_id, topic, index, stored.offset

    def _want(
        self, offset: Offset, wanted: dict[PartitionKey, int], left_out: set[tuple[str, int]]
    ) -> None:
        """Note whom to ask for the end of a partition."""
        _, topic, index, _ = offset
        topic_id = self._image.topic_ids.get(topic)
        state = None if topic_id is None else self._image.partition(topic_id, index)
        if topic_id is None or state is None:
            return  # deleted: nothing is behind anything
        if state.leader == NO_LEADER or len(wanted) >= PARTITIONS_MAX:
            if (topic_id, index) not in wanted:
                left_out.add((topic, index))
            return
        wanted[topic_id, index] = state.leader

    def _count(
        self, offset: Offset, ends: dict[PartitionKey, int], lags: dict[str, dict[str, int]]
    ) -> None:
        group_id, topic, index, committed = offset
        topic_id = self._image.topic_ids.get(topic)
        if topic_id is None:
            return
        end = ends.get((topic_id, index), _UNCOUNTED)
        if end != _UNCOUNTED:
            of_group = lags.setdefault(group_id, {})
            of_group[topic] = of_group.get(topic, 0) + max(end - committed, 0)

    def _told(self, lags: dict[str, dict[str, int]]) -> Lags:
        """As many series as may be; groups keep theirs for as long as they have offsets."""
        kept = [group_id for group_id in self._own if group_id in lags]
        known = set(kept)
        new = (group_id for group_id in lags if group_id not in known)
        room = self._groups_max - len(kept)
        self._own = [*kept, *(group_id for group_id, _ in zip(new, range(room), strict=False))]
        told: Lags = {}
        for group_id in self._own:
            topics = lags.pop(group_id)
            for topic, lag in nlargest(TOPICS_MAX, topics.items(), key=_lag_of):
                told[group_id, topic] = lag
                del topics[topic]
            if topics:
                told[group_id, OTHERS] = sum(topics.values())
        if lags:
            told[OTHERS, OTHERS] = sum(sum(topics.values()) for topics in lags.values())
        return told

    # ---- ends of partitions --------------------------------------------------------------

    async def _ends(self, wanted: dict[PartitionKey, int]) -> dict[PartitionKey, int]:
        """The high watermarks of these partitions; without those whose leader does not answer."""
        by_leader: dict[int, list[PartitionKey]] = {}
        for key, leader in wanted.items():
            by_leader.setdefault(leader, []).append(key)
        found: dict[PartitionKey, int] = {}
        await asyncio.gather(
            *(self._ends_at(leader, keys, found) for leader, keys in by_leader.items())
        )
        return found

    async def _ends_at(
        self, leader: int, keys: list[PartitionKey], found: dict[PartitionKey, int]
    ) -> None:
        broker = broker_name(self._cluster_id, leader)
        try:
            addresses: list[str] = await self._runtime.call(
                broker, "locate_leaders", keys, timeout_ms=TIMEOUT_MS
            )
            by_address: dict[str, list[PartitionKey]] = {}
            for key, address in zip(keys, addresses, strict=True):
                by_address.setdefault(address, []).append(key)
            by_address.pop("", None)
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                for address, here in by_address.items():
                    await self._ends_in(address, here, found)
        except _FAILURES as failure:
            log.info("broker %d does not tell the ends of its partitions: %s", leader, failure)

    async def _ends_in(
        self, address: str, keys: list[PartitionKey], found: dict[PartitionKey, int]
    ) -> None:
        """Ask one process, some at a time."""
        link = self._links.get(address)
        if link is None or not link.is_open:
            link = self._links[address] = await self._runtime.connect(address)
            link.on_lost(lambda: self._forget(address))
        for first in range(0, len(keys), ASKED_AT_ONCE):
            now = keys[first : first + ASKED_AT_ONCE]
            asked = [link.ask(OFFSET_FOR, (*key, -1, LATEST_TIMESTAMP, 0)) for key in now]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for key, answer in zip(now, answers, strict=True):
                if not isinstance(answer, BaseException):
                    found[key] = cut(answer, 3)[0]
                elif not isinstance(answer, _FAILURES):
                    raise answer

    def _forget(self, address: str) -> None:
        link = self._links.get(address)
        if link is not None and not link.is_open:
            del self._links[address]


def _lag_of(topic: tuple[str, int]) -> tuple[int, str]:
    """By lag, then by name, so that the choice is the same each time."""
    return topic[1], topic[0]
