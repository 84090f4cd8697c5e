"""Which segments a log may drop from its front."""

from collections.abc import Sequence

from raylog.storage.config import LogConfig
from raylog.storage.segment import Segment


def expired_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
) -> int:
    """How many of the oldest segments are to go: by log start, by age, or by size of the log.

    Only whole segments below the high watermark go, and never one behind one that stays. A
    segment is as old as its newest record, or as itself if its records have no timestamps. Where
    `cleanup.policy` does not say delete, only segments before the log start go, as in Kafka.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.size == 0 or segment.next_offset > high_watermark:
            break
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        below_start = segment.next_offset <= log_start_offset
        too_old = 0 <= config.retention_ms < now_ms - newest
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        if not (below_start or (config.delete and (too_old or too_much))):
            break
        excess -= segment.size
        count += 1
    return count
