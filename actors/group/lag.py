"""The lag of groups: how far committed offsets are behind the ends of their partitions.

Committed offsets are here, but the ends are at the partitions' leaders. So the lag is computed in
the background when metrics are read, and reported at the next scrape. No scrape waits for another
broker, and nothing is computed unless metrics are read.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the coordinator's shell: many answers are awaited together
import logging
from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest

from raylog.actors.common_messages import PartitionKey
from raylog.actors.group.hosting import ShardHost
from raylog.actors.message import first_values
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import NO_LEADER
from raylog.actors.metrics.counts import OTHERS
from raylog.actors.metrics.families import coordinators as families
from raylog.actors.metrics.samples import Samples
from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.replica.messages import LATEST_TIMESTAMP, OFFSET_FOR
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime
from raylog.actors.runtime.link_table import Links
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
INTERVAL_MS = 5_000
"""Shortest time between two computations, however often metrics are read."""
PARTITIONS_MAX = 2_000
"""Maximum number of partitions whose ends are requested in one computation."""
OFFSETS_MAX = 100_000
"""Maximum number of committed offsets in one computation, which walks them twice in 20 ms each."""
TOPICS_MAX = 20
"""Topics of a group that have their own series: those with the most lag."""
TURN = 1_000
"""Offsets handled in one turn of the event loop."""
ASKED_AT_ONCE = 250
TIMEOUT_MS = 2_000
_UNCOUNTED = -1
_FAILURES = (ActorGone, PeerLost, PeerTimeout, KafkaError, TimeoutError)
Lags = dict[tuple[str, str], int]
"""By group and topic."""
Offset = tuple[str, str, int, int]
"""Group, topic, partition, committed offset."""


class GroupLag:
    """Computes and reports the lag of one coordinator's groups."""

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
        """Groups that have their own series, in the order in which they got them."""
        self._lags: Lags = {}
        self._skipped = 0
        self._links = Links(runtime)
        self._is_looking = False
        self._next_ms = 0.0

    def sample(self, samples: Samples) -> None:
        """Sample the last result, and start the next computation."""
        for (group_id, topic), lag in self._lags.items():
            samples.add(families.LAG, lag, group_id, topic)
        samples.add(families.LAG_SKIPPED, self._skipped)
        now_ms = self._runtime.monotonic_ms()
        if not self._is_looking and now_ms >= self._next_ms:
            self._is_looking, self._next_ms = True, now_ms + INTERVAL_MS
            self._runtime.start(self._look(), "lag of groups")

    def close(self) -> None:
        """Close all links."""
        self._links.close()

    async def _look(self) -> None:
        try:
            wanted: dict[PartitionKey, int] = {}
            left_out: set[tuple[str, int]] = set()
            beyond = await self._in_turns(lambda offset: self._want(offset, wanted, left_out))
            ends = await self._ends(wanted)
            lags: dict[str, dict[str, int]] = {}
            await self._in_turns(lambda offset: self._count(offset, ends, lags))
            self._lags = self._reported(lags)
            self._skipped = len(left_out) + len(wanted) - len(ends) + beyond
        finally:
            self._is_looking = False

    # ---- committed offsets ---------------------------------------------------------------

    async def _in_turns(self, take: Callable[[Offset], None]) -> int:
        """Pass the offsets of all groups here to `take`, in turns.

        Return the number of offsets left out.
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
        """Yield offsets from copies of one topic at a time, since they may change between turns."""
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
        """Record which leader to ask for the end of a partition."""
        _, topic, index, _ = offset
        topic_id = self._image.topic_ids.get(topic)
        state = None if topic_id is None else self._image.partition(topic_id, index)
        if topic_id is None or state is None:
            return  # deleted: there is no lag
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

    def _reported(self, lags: dict[str, dict[str, int]]) -> Lags:
        """Choose the series to report; groups keep their series as long as they have offsets."""
        kept = [group_id for group_id in self._own if group_id in lags]
        known = set(kept)
        new = (group_id for group_id in lags if group_id not in known)
        room = self._groups_max - len(kept)
        self._own = [*kept, *(group_id for group_id, _ in zip(new, range(room), strict=False))]
        reported: Lags = {}
        for group_id in self._own:
            topics = lags.pop(group_id)
            # By lag, then by name, so that the choice is stable.
            for lag, topic in nlargest(TOPICS_MAX, ((lag, name) for name, lag in topics.items())):
                reported[group_id, topic] = lag
                del topics[topic]
            if topics:
                reported[group_id, OTHERS] = sum(topics.values())
        if lags:
            reported[OTHERS, OTHERS] = sum(sum(topics.values()) for topics in lags.values())
        return reported

    # ---- ends of partitions --------------------------------------------------------------

    async def _ends(self, wanted: dict[PartitionKey, int]) -> dict[PartitionKey, int]:
        """Return the high watermarks of partitions, except those whose leaders do not answer."""
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
            addresses = await call(
                self._runtime, broker, Broker.locate_leaders, keys, timeout_ms=TIMEOUT_MS
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
        """Ask one process, some partitions at a time."""
        link = await self._links.to(address)
        for first in range(0, len(keys), ASKED_AT_ONCE):
            now = keys[first : first + ASKED_AT_ONCE]
            asked = [link.ask(OFFSET_FOR, (*key, -1, LATEST_TIMESTAMP, 0)) for key in now]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for key, answer in zip(now, answers, strict=True):
                if not isinstance(answer, BaseException):
                    found[key] = first_values(answer, 3)[0]
                elif not isinstance(answer, _FAILURES):
                    raise answer
