"""Selects the segments that a log may drop from its front."""

from collections.abc import Callable, Sequence

from raylog.storage.config import LogConfig
from raylog.storage.segment import Segment


def expired_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    largest_timestamp: Callable[[Segment], int],
) -> int:
    """Number of oldest segments to drop: by log start, by age, or by size of the log.

    Only whole segments below the high watermark are dropped, and never one after a segment that
    stays. `largest_timestamp` gives a segment's age. If `cleanup.policy` does not include delete,
    only segments before the log start are dropped, as in Kafka.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.size == 0 or segment.next_offset > high_watermark:
            break
        below_start = segment.next_offset <= log_start_offset
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        too_old = (
            config.delete
            and config.retention_ms >= 0
            and now_ms - largest_timestamp(segment) > config.retention_ms
        )
        if not (below_start or too_old or (config.delete and too_much)):
            break
        excess -= segment.size
        count += 1
    return count
