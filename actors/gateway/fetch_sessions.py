"""Clients' incremental fetch sessions (KIP-227), by session id.

A session is made by a full fetch with epoch 0, goes on with epochs 1, 2, … (wrapping to 1), and is
ended by epoch -1, by being the least recently used when there are too many, or by a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from raylog.actors.gateway.cluster import OpenRoute
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import PartitionKey, TopicId
from raylog.actors.replica.api import FetchedPartition, Interest
from raylog.actors.runtime.base import Link
from raylog.wire.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


@dataclass(slots=True, eq=False)
class ClientFetchSession:
    """What one fetcher watches, and what it was last told."""

    session_id: int
    """0: a full fetch, which leaves no session behind."""
    link_session_id: int
    """Its id towards the Replica actors."""
    by_names: bool
    """Whether the client speaks of topics by name (Fetch below version 13)."""
    epoch: int = INITIAL_EPOCH
    interests: dict[PartitionKey, Interest] = field(default_factory=dict)
    names: dict[PartitionKey, str] = field(default_factory=dict)
    routes: dict[PartitionKey, OpenRoute] = field(default_factory=dict)
    """Partitions that a Replica actor watches for this session."""
    links: dict[Link, int] = field(default_factory=dict)
    """Links with routes, and how many."""
    told: dict[PartitionKey, tuple[int, int]] = field(default_factory=dict)
    """(high watermark, log start offset) the client was last told."""
    left_out: tuple[PartitionKey, ...] = ()
    """Partitions whose records the last answer had no room for: they come first in the next."""

    def next_epoch(self) -> None:
        """Move to the epoch the client's next request must carry."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def watch(self, key: PartitionKey, route: OpenRoute) -> None:
        """Note that the Replica actor at `route` is told of `key`."""
        self.unwatch(key)
        self.routes[key] = route
        self.links[route.link] = self.links.get(route.link, 0) + 1

    def unwatch(self, key: PartitionKey) -> OpenRoute | None:
        """Note that nobody watches `key` for this session; returns who did."""
        route = self.routes.pop(key, None)
        if route is not None:
            left = self.links[route.link] - 1
            if left:
                self.links[route.link] = left
            else:
                del self.links[route.link]
        return route

    def rename_unwatched(self, image: MetadataImage) -> None:
        """Put partitions that nobody watches under the id that their topic's name has by now.

        A client that speaks of names does not say again what it wants when the topic was created,
        or created anew, after it first asked.
        """
        if not self.by_names or len(self.routes) == len(self.interests):
            return
        for key in [key for key in self.interests if key not in self.routes]:
            name = self.names[key]
            renamed = (topic_id_of(name, image), key[1])
            if renamed != key:
                interest = self.interests.pop(key)._replace(topic_id=renamed[0])
                self.interests.setdefault(renamed, interest)
                self.names[renamed] = self.names.pop(key)
                self.told.pop(key, None)

    def is_news(self, part: FetchedPartition) -> bool:
        """Whether an incremental answer must name this partition; notes what is told."""
        figures = (part.high_watermark, part.log_start_offset)
        key = (part.topic_id, part.partition)
        news = bool(part.length or part.error_code or part.diverging)
        if self.told.get(key) != figures:
            self.told[key] = figures
            news = True
        return news


def topic_id_of(name: str, image: MetadataImage) -> TopicId:
    """The id of a topic by name; for an unknown one an id that no topic has, so keys are unique."""
    known = image.topic_ids.get(name)
    return TopicId(b"?" + name.encode()) if known is None else known


class FetchSessionCache:
    """The sessions of one gateway, at most `slots` of them."""

    def __init__(
        self, slots: int, new_id: Callable[[], int], drop: Callable[[ClientFetchSession], None]
    ) -> None:
        self._slots = slots
        self._new_id = new_id
        self._drop = drop
        self._sessions: OrderedDict[int, ClientFetchSession] = OrderedDict()
        self._link_session_id = 0

    def fresh(self, *, keep: bool, by_names: bool) -> ClientFetchSession:
        """A session for a full fetch; `keep` makes it one that the client may go on with."""
        self._link_session_id += 1
        session_id = self._unused_id() if keep and self._slots else 0
        session = ClientFetchSession(session_id, self._link_session_id, by_names)
        if session_id:
            while len(self._sessions) >= self._slots:
                self._drop(self._sessions.popitem(last=False)[1])
            self._sessions[session_id] = session
            session.next_epoch()
        return session

    def _unused_id(self) -> int:
        while (session_id := self._new_id()) in self._sessions:
            pass
        return session_id

    def resume(self, session_id: int, epoch: int) -> ClientFetchSession:
        """The session a client goes on with; raises what tells it to start a new one."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, {epoch} was sent"
            )
        session.next_epoch()
        self._sessions.move_to_end(session_id)
        return session

    def end(self, session_id: int) -> None:
        """End a session if it is there."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._drop(session)

    def __len__(self) -> int:
        return len(self._sessions)
