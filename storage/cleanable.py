"""Whether a log is worth cleaning, how far, and which of its segments become one."""

from collections.abc import Iterable, Sequence

from raylog.storage.config import LogConfig
from raylog.storage.segment import Segment

_OFFSETS_MAX = 2**31 - 1


def cleanable_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    first_dirty_offset: int,
    limit: int,
    now_ms: int,
) -> list[Segment]:
    """The segments, from the first on, that a cleaning should take now; none if it should wait.

    It takes whole segments that end at or before offset `limit`, but not the growing one, and of
    those not cleaned before none that `min.compaction.lag.ms` protects. It is due when more than
    `min.cleanable.dirty.ratio` of their bytes were not cleaned yet, or some of those records are
    older than `max.compaction.lag.ms`.
    """
    taken: list[Segment] = []
    dirty: list[Segment] = []
    youngest = now_ms - config.min_compaction_lag_ms
    for segment in segments[:-1]:
        is_dirty = segment.next_offset > first_dirty_offset
        protected = config.min_compaction_lag_ms > 0 and segment.max_timestamp > youngest
        if segment.next_offset > limit or (is_dirty and protected):
            break
        taken.append(segment)
        if is_dirty:
            dirty.append(segment)
    dirty_bytes = _bytes_of(dirty)
    if dirty_bytes == 0:
        return []
    oldest = min([each.first_timestamp for each in dirty if each.first_timestamp >= 0], default=-1)
    must = 0 <= oldest < now_ms - config.max_compaction_lag_ms
    due = dirty_bytes > config.min_cleanable_dirty_ratio * _bytes_of(taken)
    return taken if must or due else []


def _bytes_of(segments: Iterable[Segment]) -> int:
    return sum([segment.size for segment in segments])


def fits(cleaned: Segment, following: Segment, segment_bytes: int) -> bool:
    """Whether a segment that was cleaned so far takes in the following one, be it left whole."""
    return (
        cleaned.size + following.size <= segment_bytes
        and following.next_offset - cleaned.base_offset <= _OFFSETS_MAX
    )
