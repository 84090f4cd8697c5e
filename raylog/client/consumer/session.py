"""A fetch session with one broker (KIP-227), without I/O: requests name only what changed.

Broker and consumer both keep the list of partitions. Epoch 0 opens a session with a full list; each
later request increments the epoch and names only partitions that are new, have another offset, or
leave. A broker that opens no session (id 0), or is too old for sessions, gets full lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raylog.client.cluster import TopicPartition
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.fetch import ForgottenTopic

_OPEN = 0
"""Epoch of a request that opens a session."""
_NONE = -1
"""Epoch of a request without a session."""
_EPOCH_MAX = 2**31 - 1
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of a whole request after which the session starts again."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the broker was last sent for one partition."""

    key: TopicPartition
    topic_id: bytes
    offset: int
    generation: int
    """Of the position: a response to an older generation is dropped."""
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The part of a fetch that the session decides."""

    session_id: int
    epoch: int
    partitions: list[TopicPartition]
    """Partitions to list with their offsets."""
    forgotten: list[Asked]
    """Partitions to list as leaving."""


@dataclass(slots=True, eq=False)
class FetchSession:
    """One broker's session. At most one request is in flight."""

    session_id: int = 0
    epoch: int = _OPEN
    wanted: dict[TopicPartition, None] = field(default_factory=dict)
    """The partitions to fetch from this broker."""
    in_session: dict[TopicPartition, Asked] = field(default_factory=dict)
    """The partitions in the broker's session."""
    names: dict[bytes, str] = field(default_factory=dict)
    """Topic names by id, as of when the partitions were sent; metadata may have changed since."""
    _changed: dict[TopicPartition, None] = field(default_factory=dict)
    _leaving: dict[TopicPartition, None] = field(default_factory=dict)

    def want(self, key: TopicPartition, topic_id: bytes) -> None:
        """Fetch a partition from this broker, at its current position."""
        self.wanted[key] = None
        self._changed[key] = None
        asked = self.in_session.get(key)
        if asked is not None and asked.topic_id != topic_id:
            self._leaving[key] = None  # otherwise the broker has it twice, under both ids
        else:
            self._leaving.pop(key, None)

    def drop(self, key: TopicPartition) -> None:
        """Stop fetching a partition from this broker."""
        self.wanted.pop(key, None)
        self._changed.pop(key, None)
        if key in self.in_session:
            self._leaving[key] = None

    def next(self, *, with_session: bool) -> SessionRequest:
        """Return what the next request lists; `tell` must follow for each of its partitions."""
        if self.epoch == _OPEN or not with_session:
            session_id, epoch = (self.session_id, _OPEN) if with_session else (0, _NONE)
            self.in_session.clear()
            self.names.clear()
            self._changed.clear()
            self._leaving.clear()
            return SessionRequest(session_id, epoch, list(self.wanted), [])
        forgotten = [self.in_session.pop(key) for key in self._leaving]
        changed = list(self._changed)
        self._changed.clear()
        self._leaving.clear()
        return SessionRequest(self.session_id, self.epoch, changed, forgotten)

    def tell(self, asked: Iterable[Asked]) -> None:
        """Record the partitions that a request listed."""
        for one in asked:
            self.in_session[one.key] = one
            self.names[one.topic_id] = one.key.topic

    def answered(self, session_id: int) -> None:
        """Handle a successful response."""
        if session_id == 0:
            self.session_id, self.epoch = 0, _OPEN
            return
        if session_id != self.session_id:
            self.session_id, self.epoch = session_id, _OPEN
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def begin_anew(self, code: ErrorCode | None = None) -> None:
        """Handle a refused or lost request: the next one opens a new session with a full list.

        It replaces the old session, unless the broker no longer has it
        (FETCH_SESSION_ID_NOT_FOUND).
        """
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = 0
        self.epoch = _OPEN


def forgotten(leaving: list[Asked]) -> list[ForgottenTopic]:
    """Group the partitions that leave a session by topic."""
    grouped: dict[tuple[str, bytes], list[int]] = {}
    for asked in leaving:
        grouped.setdefault((asked.key.topic, asked.topic_id), []).append(asked.key.partition)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in grouped.items()
    ]
