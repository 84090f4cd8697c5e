"""One partition's position and its fetched records."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.offsets import EARLIEST
from raylog.client.retries import Backoff
from raylog.wire.uuids import ZERO_UUID

COMMITTED = -1_000
"""Start at the committed offset, else as `reset` says; besides timestamps, EARLIEST, LATEST."""
BLOCKS_AHEAD = 1
"""How many fetched blocks of a partition may wait while another is handed out."""
NOWHERE = -1
"""No broker: broker ids are not negative."""
_new_generation = count().__next__


@dataclass(slots=True, eq=False)
class Progress:
    """One assigned partition."""

    key: TopicPartition
    topic_id: bytes = ZERO_UUID
    """The topic that the position belongs to; zero: whichever topic has the name."""
    fetch_offset: int | None = None
    """Where the next fetch starts; None until the position is looked up."""
    fetch_epoch: int = -1
    """Leader epoch of the last record before `fetch_offset`; -1: unknown (KIP-320)."""
    checked_epoch: int = -1
    """The leader epoch in which `fetch_offset` was confirmed to be in the log."""
    stop: int | None = None
    """Nothing is fetched from this offset on; None: no end."""
    start: int = EARLIEST
    """What to look up: a timestamp, EARLIEST, LATEST or COMMITTED."""
    position: int | None = None
    """The offset after the last record handed out."""
    epoch: int = -1
    """Leader epoch of that record."""
    generation: int = field(default_factory=_new_generation)
    """Changes with each assignment and seek: responses to older requests are dropped."""
    blocks: deque[FetchedBatches] = field(default_factory=deque)
    is_paused: bool = False
    not_before_ms: float = 0.0
    """When it may be fetched or looked up again after a failure."""
    backoff: Backoff | None = None
    """The backoff after failures; None if the last response succeeded."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    home: int = NOWHERE
    """The broker whose fetch session it is in."""
    replica: int = NOWHERE
    """The preferred read replica (KIP-392)."""
    replica_until_ms: float = 0.0

    @property
    def is_full(self) -> bool:
        """Whether enough is fetched ahead."""
        return len(self.blocks) > BLOCKS_AHEAD

    @property
    def is_at_stop(self) -> bool:
        """Whether everything up to `stop` was fetched."""
        return self.stop is not None and (self.fetch_offset or 0) >= self.stop

    def go_to(self, offset: int, epoch: int = -1) -> None:
        """Continue from an offset, EARLIEST or LATEST; drop what was fetched."""
        if offset < 0:
            self.look_for(offset)
            return
        self._begin_anew()
        self.fetch_offset = self.position = offset
        self.fetch_epoch = self.epoch = epoch

    def look_for(self, start: int) -> None:
        """Continue from a position that must be looked up."""
        self._begin_anew()
        self.fetch_offset = self.position = None
        self.start = start

    def _begin_anew(self) -> None:
        self.generation = _new_generation()
        self.blocks.clear()
        self.fetch_epoch = self.epoch = self.checked_epoch = -1
        self.replica = NOWHERE

    def refetch(self) -> None:
        """Drop fetched records that were not handed out."""
        self.generation = _new_generation()
        self.blocks.clear()
        self.fetch_offset, self.fetch_epoch = self.position, self.epoch

    def lag(self, *, read_committed: bool) -> int | None:
        """Return the records between position and end, as of the last fetch; None if unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end < 0 or self.position is None:
            return None
        return max(0, end - self.position)
