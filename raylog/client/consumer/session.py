"""A fetch session with one broker (KIP-227), without I/O: only what changed is asked for.

Broker and consumer both keep the list of partitions. Epoch 0 opens a session with a full list; each
request after it has the next epoch and names partitions that are new, have another offset, or
leave. A broker that gives no session (id 0), or is too old to know them, gets full lists.
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
"""Refusals of a whole request after which the session begins anew."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the broker was told of one partition."""

    key: TopicPartition
    topic_id: bytes
    offset: int
    generation: int
    """Of the position: an answer to another one is dropped."""
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The part of a fetch that the session decides."""

    session_id: int
    epoch: int
    partitions: list[TopicPartition]
    """To be named with their offsets."""
    forgotten: list[Asked]
    """To be named as leaving."""


@dataclass(slots=True, eq=False)
class FetchSession:
    """One broker's session. At most one request is on its way."""

    session_id: int = 0
    epoch: int = _OPEN
    wanted: dict[TopicPartition, None] = field(default_factory=dict)
    """What is to be fetched here."""
    told: dict[TopicPartition, Asked] = field(default_factory=dict)
    """What the broker has on its list."""
    names: dict[bytes, str] = field(default_factory=dict)
    """Topics by their ids, as the broker was told; metadata may know others by now."""
    _changed: dict[TopicPartition, None] = field(default_factory=dict)
    _leaving: dict[TopicPartition, None] = field(default_factory=dict)

    def want(self, key: TopicPartition, topic_id: bytes) -> None:
        """Fetch a partition here, from where it is now."""
        self.wanted[key] = None
        self._changed[key] = None
        told = self.told.get(key)
        if told is not None and told.topic_id != topic_id:
            self._leaving[key] = None  # the broker has it twice otherwise, once by each id
        else:
            self._leaving.pop(key, None)

    def drop(self, key: TopicPartition) -> None:
        """Fetch a partition here no more."""
        self.wanted.pop(key, None)
        self._changed.pop(key, None)
        if key in self.told:
            self._leaving[key] = None

    def next(self, *, with_session: bool) -> SessionRequest:
        """What the next request names; `tell` must follow for each of its partitions."""
        if self.epoch == _OPEN or not with_session:
            session_id, epoch = (self.session_id, _OPEN) if with_session else (0, _NONE)
            self.told.clear()
            self.names.clear()
            self._changed.clear()
            self._leaving.clear()
            return SessionRequest(session_id, epoch, list(self.wanted), [])
        forgotten = [self.told.pop(key) for key in self._leaving]
        changed = list(self._changed)
        self._changed.clear()
        self._leaving.clear()
        return SessionRequest(self.session_id, self.epoch, changed, forgotten)

    def tell(self, asked: Iterable[Asked]) -> None:
        """Remember what a request named."""
        for one in asked:
            self.told[one.key] = one
            self.names[one.topic_id] = one.key.topic

    def answered(self, session_id: int) -> None:
        """A request succeeded."""
        if session_id == 0:
            self.session_id, self.epoch = 0, _OPEN
            return
        if session_id != self.session_id:
            self.session_id, self.epoch = session_id, _OPEN
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def begin_anew(self, code: ErrorCode | None = None) -> None:
        """A request was refused or lost: name all again, in place of the old session if it lives.

        With a code that is not the session's trouble nothing changes but the order of epochs.
        """
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = 0
        self.epoch = _OPEN


def forgotten(leaving: list[Asked]) -> list[ForgottenTopic]:
    """What leaves a session."""
    grouped: dict[tuple[str, bytes], list[int]] = {}
    for asked in leaving:
        grouped.setdefault((asked.key.topic, asked.topic_id), []).append(asked.key.partition)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in grouped.items()
    ]
