"""Clients' incremental fetch sessions (KIP-227), by session id.

A full fetch with epoch 0 creates a session, which continues with epochs 1, 2, … (wrapping to 1). It
ends by epoch -1, by a full fetch that names it, when it has no partitions left, by a restart, or
when another session takes its slot. As in Apache Kafka, if no slot is free, a new session gets, in
this order,

- the slot of the least recently used session, if that was used more than `EVICTION_MS` ago;
- the slot of the session with the fewest partitions, among those that were still used when they
  were older than `EVICTION_MS`, if it has fewer than the new one;
- none: the client is served without a session, and sends everything again with its next request.

Unlike in Kafka, the size of sessions is limited. A session has no more partitions than a full fetch
may name, and all together have at most `PARTITIONS_MAX`. A client that exceeds these limits is also
served without a session. A new session may replace sessions that were not used for `EVICTION_MS`.

Kafka prefers sessions of followers to those of consumers. Here followers do not fetch from
gateways, and a client that claims to be a follower gets no preference.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.controller.rules.topics import NAME_LENGTH_MAX
from raylog.actors.gateway.cluster import OpenRoute
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.replica.messages import FetchedPartition, Interest
from raylog.actors.runtime.base import Link
from raylog.wire.api import ApiKey, limit_of
from raylog.wire.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
"""Kafka's min.incremental.fetch.session.eviction.ms, which cannot be set in Kafka either."""
SESSION_PARTITIONS_MAX = limit_of(ApiKey.FETCH).elements_max
"""For clients that add some partitions with each request."""
PARTITIONS_MAX = 10 * SESSION_PARTITIONS_MAX
"""Each partition takes about a kilobyte, at the gateway and at replicas."""
_EPOCH_MAX = 2**31 - 1
_STALE_ENTRIES = 64


@dataclass(slots=True, eq=False)
class ClientFetchSession:
    """A client's session: the partitions it watches, and what was last sent for them."""

    session_id: int
    """0 for a full fetch that starts no session."""
    link_session_id: int
    """Its id in requests to Replica actors."""
    by_names: bool
    """Whether the client uses topic names (Fetch below version 13)."""
    epoch: int = INITIAL_EPOCH
    interests: dict[PartitionKey, Interest] = field(default_factory=dict)
    names: dict[PartitionKey, str] = field(default_factory=dict)
    routes: dict[PartitionKey, OpenRoute] = field(default_factory=dict)
    """Partitions that a Replica actor watches for this session."""
    links: dict[Link, int] = field(default_factory=dict)
    """Links that have routes, with the number of routes."""
    sent_offsets: dict[PartitionKey, tuple[int, int]] = field(default_factory=dict)
    """The (high watermark, log start offset) that the client last got."""
    left_out: tuple[PartitionKey, ...] = ()
    """Partitions whose records did not fit into the last answer; they come first in the next."""
    is_misnamed: bool = False
    """Whether it has an impossible topic name, which may take 32 KiB."""
    created_ms: float = 0.0
    used_ms: float = 0.0
    counted: int = 0
    """The number of partitions with which it counts towards the total."""
    evictable_size: int = -1
    """A new session needs more partitions than this to take its slot; -1 if none may take it."""

    def next_epoch(self) -> None:
        """Advance to the epoch that the client's next request must have."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def watch(self, key: PartitionKey, route: OpenRoute) -> None:
        """Record that the Replica actor at `route` watches `key`."""
        self.unwatch(key)
        self.routes[key] = route
        self.links[route.link] = self.links.get(route.link, 0) + 1

    def unwatch(self, key: PartitionKey) -> OpenRoute | None:
        """Record that no Replica actor watches `key` any more; return the former route."""
        route = self.routes.pop(key, None)
        if route is not None:
            left = self.links[route.link] - 1
            if left:
                self.links[route.link] = left
            else:
                del self.links[route.link]
        return route

    def rename_unwatched(self, image: MetadataImage) -> Iterator[int]:
        """Move unwatched partitions to the current id of their topic's name.

        A client that uses names does not repeat its request when the topic is created, or created
        again, after the first request. Yields 1 for each partition, since there may be many.
        """
        if not self.by_names or len(self.routes) == len(self.interests):
            return
        for key in [key for key in self.interests if key not in self.routes]:
            if key not in self.interests:
                continue  # another request of the session was faster
            name = self.names[key]
            renamed = (topic_id_of(name, image), key[1])
            if renamed != key:
                interest = self.interests.pop(key)._replace(topic_id=renamed[0])
                self.interests.setdefault(renamed, interest)
                self.names[renamed] = self.names.pop(key)
                self.sent_offsets.pop(key, None)
            yield 1

    def is_news(self, part: FetchedPartition) -> bool:
        """Whether an incremental response must include this partition; updates `sent_offsets`."""
        figures = (part.high_watermark, part.log_start_offset)
        key = (part.topic_id, part.partition)
        news = bool(part.length or part.error_code or part.diverging)
        if self.sent_offsets.get(key) != figures:
            self.sent_offsets[key] = figures
            news = True
        return news


def is_misnamed(name: str) -> bool:
    """Whether a name is too long for any topic."""
    return len(name) > NAME_LENGTH_MAX


def topic_id_of(name: str, image: MetadataImage) -> TopicId:
    """Return a topic's id by name, or for an unknown name a unique id that no topic has."""
    known = image.topic_ids.get(name)
    return TopicId(b"?" + name.encode()) if known is None else known


class FetchSessionCache:
    """The sessions of one gateway, at most `slots`. Times are ms of a monotonic clock."""

    def __init__(
        self, slots: int, new_id: Callable[[], int], drop: Callable[[ClientFetchSession], None]
    ) -> None:
        self._slots = slots
        self._new_id = new_id
        self._drop = drop
        self._sessions: OrderedDict[int, ClientFetchSession] = OrderedDict()
        """Least recently used first."""
        self._evictable: list[tuple[int, int]] = []
        """A heap of (size, session id). An entry is valid if the session still has that size."""
        self._partitions = 0
        """The sum of all `counted`."""
        self._link_session_id = 0

    def fresh(self, *, keep: bool, by_names: bool, size: int, now_ms: float) -> ClientFetchSession:
        """Create a session for a full fetch of `size` partitions.

        With `keep`, the client may continue it if there is a slot for it.
        """
        self._link_session_id += 1
        session_id = self._unused_id() if keep and self._has_slot(size, now_ms) else 0
        session = ClientFetchSession(
            session_id, self._link_session_id, by_names, created_ms=now_ms, used_ms=now_ms
        )
        if session_id:
            self._sessions[session_id] = session
            self._count(session, size)
            session.next_epoch()
        return session

    def _has_slot(self, size: int, now_ms: float) -> bool:
        """Whether a new session may stay; evicts other sessions where that is allowed."""
        while self._partitions + size > PARTITIONS_MAX:
            if not self._end_unused(now_ms):
                return False
        if len(self._sessions) < self._slots or self._end_unused(now_ms):
            return True
        smallest = self._smallest_evictable()
        if smallest is None or smallest.evictable_size >= size:
            return False
        self.end(smallest.session_id)
        return True

    def _end_unused(self, now_ms: float) -> bool:
        """End the least recently used session, if it has been unused for long enough."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms <= EVICTION_MS:
            return False
        self.end(oldest.session_id)
        return True

    def _count(self, session: ClientFetchSession, size: int) -> None:
        self._partitions += size - session.counted
        session.counted = size

    def _smallest_evictable(self) -> ClientFetchSession | None:
        while self._evictable:
            size, session_id = self._evictable[0]
            session = self._sessions.get(session_id)
            if session is not None and session.evictable_size == size:
                return session
            heapq.heappop(self._evictable)
        return None

    def _unused_id(self) -> int:
        while (session_id := self._new_id()) in self._sessions:
            pass
        return session_id

    def resume(self, session_id: int, epoch: int, *, by_names: bool) -> ClientFetchSession:
        """Return the session that a client continues; raises the error that restarts it."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, {epoch} was sent"
            )
        if session.by_names != by_names:
            raise FetchSessionTopicIdError(
                f"fetch session {session_id} was opened with the other kind of topic names"
            )
        session.next_epoch()
        return session

    def used(self, session: ClientFetchSession, now_ms: float) -> None:
        """Record that a request has continued a session, and that its changes have been applied.

        A session ends if it has no partitions, too many, or impossible names. The client is then
        answered without a session.
        """
        session_id = session.session_id
        if self._sessions.get(session_id) is not session:
            return
        size = len(session.interests)
        self._count(session, size)
        too_many = size > SESSION_PARTITIONS_MAX or self._partitions > PARTITIONS_MAX
        if not size or too_many or session.is_misnamed:
            self._forget(session)
            session.session_id = 0
            return
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id)
        if now_ms - session.created_ms > EVICTION_MS and size != session.evictable_size:
            session.evictable_size = size
            heapq.heappush(self._evictable, (size, session_id))
            if len(self._evictable) > 2 * len(self._sessions) + _STALE_ENTRIES:
                self._evictable = [
                    (one.evictable_size, one.session_id)
                    for one in self._sessions.values()
                    if one.evictable_size >= 0
                ]
                heapq.heapify(self._evictable)

    def end(self, session_id: int) -> None:
        """End a session, if it exists."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._forget(session)
            self._drop(session)

    def _forget(self, session: ClientFetchSession) -> None:
        del self._sessions[session.session_id]
        self._count(session, 0)

    def __len__(self) -> int:
        return len(self._sessions)
