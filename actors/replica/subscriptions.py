"""Sessions that watch partitions of one process, and their requests that wait for news."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from raylog.actors.common_messages import PartitionKey
from raylog.actors.replica.rules.sessions import Session

if TYPE_CHECKING:
    from raylog.actors.replica.partition import Partition

S = TypeVar("S", bound=Session[Any])
R = TypeVar("R")


class Subscriptions(Generic[S, R]):
    """The sessions of gateways, or of followers."""

    def __init__(
        self,
        partitions: Mapping[PartitionKey, Partition],
        watchers: Callable[[Partition], dict[S, None]],
    ) -> None:
        """`watchers` gives a partition's sessions."""
        self._partitions = partitions
        self._watchers = watchers
        self.known: dict[tuple[int, int], S] = {}
        """By link and number."""
        self.parked: dict[S, R] = {}
        """Waiting requests, at most one per session."""

    def add(self, session: S) -> S:
        """Add a session."""
        self.known[session.link, session.number] = session
        return session

    def forget(self, session: S, key: PartitionKey) -> None:
        """Stop watching a partition."""
        session.forget(key)
        self._leave(session, key)

    def _leave(self, session: S, key: PartitionKey) -> None:
        partition = self._partitions.get(key)
        if partition is not None:
            self._watchers(partition).pop(session, None)
            partition.answer_deletions()

    def end(self, session: S) -> None:
        """End a session; its waiting request gets no answer."""
        del self.known[session.link, session.number]
        self.parked.pop(session, None)
        for key in session.interests:
            self._leave(session, key)

    def link_lost(self, link: int) -> None:
        """End the sessions of a lost link."""
        for session in self:
            if session.link == link:
                self.end(session)

    def __iter__(self) -> Iterator[S]:
        return iter(tuple(self.known.values()))
