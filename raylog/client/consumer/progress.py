"""How far one partition is, and what is fetched of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from raylog.client.backoff import Backoff
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.offsets import EARLIEST
from raylog.wire.uuids import ZERO_UUID

COMMITTED = -1_000
"""Where the group has committed, else where `reset` says; beside timestamps, EARLIEST, LATEST."""
BLOCKS_AHEAD = 1
"""Fetched blocks of a partition that may wait while another is handed out."""
NOWHERE = -1
"""No broker; ids of brokers are not negative."""
_new_generation = count().__next__


@dataclass(slots=True, eq=False)
class Progress:
    """One assigned partition."""

    key: TopicPartition
    topic_id: bytes = ZERO_UUID
    """Of the topic in which the position is; zero: whichever has the name."""
    fetch_offset: int | None = None
    """Where the next fetch starts; None until the position is looked up."""
    fetch_epoch: int = -1
    """Leader epoch of the last record before `fetch_offset`; -1: unknown (KIP-320)."""
    checked_epoch: int = -1
    """The leader epoch under which `fetch_offset` is known to be in the log."""
    stop: int | None = None
    """Nothing is fetched from there on; None: there is no end."""
    start: int = EARLIEST
    """What to look up: a timestamp, EARLIEST, LATEST or COMMITTED."""
    position: int | None = None
    """Offset behind the last record handed out."""
    epoch: int = -1
    """Leader epoch of that record."""
    generation: int = field(default_factory=_new_generation)
    """A new one for each assignment and seek: answers to older requests are dropped."""
    blocks: deque[FetchedBatches] = field(default_factory=deque)
    is_paused: bool = False
    not_before_ms: float = 0.0
    """When it may be fetched or looked up again after a failure."""
    backoff: Backoff | None = None
    """Of its failures; None: there is none since the last answer."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    home: int = NOWHERE
    """The broker in whose session it is."""
    replica: int = NOWHERE
    """A nearer replica that the leader named (KIP-392)."""
    replica_until_ms: float = 0.0

    @property
    def is_full(self) -> bool:
        """Whether enough is fetched ahead."""
        return len(self.blocks) > BLOCKS_AHEAD

    @property
    def is_at_stop(self) -> bool:
        """Whether all that is wanted was fetched."""
        return self.stop is not None and (self.fetch_offset or 0) >= self.stop

    def go_to(self, offset: int, epoch: int = -1) -> None:
        """Go on from an offset, EARLIEST or LATEST; what was fetched is dropped."""
        if offset < 0:
            self.look_for(offset)
            return
        self._begin_anew()
        self.fetch_offset = self.position = offset
        self.fetch_epoch = self.epoch = epoch

    def look_for(self, start: int) -> None:
        """Go on from what has to be looked up."""
        self._begin_anew()
        self.fetch_offset = self.position = None
        self.start = start

    def _begin_anew(self) -> None:
        self.generation = _new_generation()
        self.blocks.clear()
        self.fetch_epoch = self.epoch = self.checked_epoch = -1
        self.replica = NOWHERE

    def refetch(self) -> None:
        """Forget what was fetched and not handed out."""
        self.generation = _new_generation()
        self.blocks.clear()
        self.fetch_offset, self.fetch_epoch = self.position, self.epoch

    def lag(self, *, read_committed: bool) -> int | None:
        """Records behind the end, as the last fetch told; None if unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end < 0 or self.position is None:
            return None
        return max(0, end - self.position)
