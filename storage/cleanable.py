"""Whether a log is worth cleaning, how far, and which of its segments become one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from raylog.storage.config import NEVER, LogConfig
from raylog.storage.segment import Segment

_OFFSETS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What a cleaning would process now."""

    segments: list[Segment]
    """Whole segments from the start of the log, without the growing one."""
    dirty_ratio: float
    """Share of their bytes not cleaned yet; the log with the largest share is cleaned first."""
    is_due: bool
    waits: bool
    """Whether a later call may return more: segments are too young, not replicated or undecided."""


def cleanable(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    first_dirty_offset: int,
    limit: int,
    now_ms: int,
    largest_timestamp: Callable[[Segment], int],
) -> Cleanable:
    """Select the segments that a cleaning should process, and whether it should begin now.

    Only whole segments that end at or before offset `limit` qualify, and never the growing one. The
    selection ends at the first uncleaned segment that `min.compaction.lag.ms` protects (KIP-58),
    given its age by `largest_timestamp`. A cleaning is due if more than `min.cleanable.dirty.ratio`
    of the bytes were not cleaned yet, or if some of those records are older than
    `max.compaction.lag.ms` (KIP-354).
    """
    taken: list[Segment] = []
    dirty: list[Segment] = []
    waits = False
    youngest = now_ms - config.min_compaction_lag_ms
    for segment in segments[:-1]:
        is_dirty = segment.next_offset > first_dirty_offset
        protected = config.min_compaction_lag_ms > 0 and largest_timestamp(segment) > youngest
        if segment.next_offset > limit or (is_dirty and protected):
            waits = True
            break
        taken.append(segment)
        if is_dirty:
            dirty.append(segment)
    dirty_bytes, all_bytes = _bytes_of(dirty), _bytes_of(taken)
    if dirty_bytes == 0:
        return Cleanable(taken, 0.0, is_due=False, waits=waits)
    oldest = min([each.first_timestamp for each in dirty if each.first_timestamp >= 0], default=-1)
    must = 0 <= oldest < now_ms - config.max_compaction_lag_ms
    due = dirty_bytes > config.min_cleanable_dirty_ratio * all_bytes
    waits = waits or config.max_compaction_lag_ms < NEVER
    return Cleanable(taken, dirty_bytes / all_bytes, is_due=must or due, waits=waits)


def _bytes_of(segments: Iterable[Segment]) -> int:
    return sum([segment.size for segment in segments])


class Neighbour(Protocol):
    """A segment that could be joined to another one."""

    @property
    def size(self) -> int:
        """Size of the data in bytes."""

    @property
    def next_offset(self) -> int:
        """Exclusive end of the segment."""


def fits(cleaned: Segment, following: Neighbour, segment_bytes: int) -> bool:
    """Whether the following segment fits after a cleaned one even if it keeps all its records."""
    return (
        cleaned.size + following.size <= segment_bytes
        and following.next_offset - cleaned.base_offset <= _OFFSETS_MAX
    )
