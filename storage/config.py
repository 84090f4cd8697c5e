"""The topic settings that a log uses."""

from dataclasses import dataclass

_DAY_MS = 24 * 60 * 60 * 1000
NEVER = 2**63 - 1
"""A duration or count that is never reached."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic settings with Kafka's defaults; sizes in bytes, durations in ms."""

    segment_bytes: int = 1024**3  # segment.bytes: a segment that would grow past it is closed
    segment_ms: int = 7 * _DAY_MS  # segment.ms: maximum age of a segment
    retention_bytes: int = -1  # retention.bytes: -1 keeps everything
    retention_ms: int = 7 * _DAY_MS  # retention.ms: -1 keeps everything
    index_interval_bytes: int = 4096  # index.interval.bytes: bytes between index entries
    max_index_size_bytes: int = 10 * 1024**2  # segment.index.bytes, at Kafka's 8 bytes an entry
    flush_messages: int = NEVER  # flush.messages: records that may be unsynced
    flush_ms: int = NEVER  # flush.ms: how long a record may be unsynced
    file_delete_delay_ms: int = 60_000  # file.delete.delay.ms: expired files stay readable
    index_checkpoint_bytes: int = 16 * 1024**2  # Raylog's: growth between saves of the index
    producer_expiration_ms: int = _DAY_MS  # producer.id.expiration.ms (a broker setting)
    delete: bool = True  # cleanup.policy: whether it includes delete
    compact: bool = False  # cleanup.policy: whether it includes compact
    min_cleanable_dirty_ratio: float = 0.5  # min.cleanable.dirty.ratio
    delete_retention_ms: int = _DAY_MS  # delete.retention.ms: for tombstones, once cleaned
    min_compaction_lag_ms: int = 0  # min.compaction.lag.ms
    max_compaction_lag_ms: int = NEVER  # max.compaction.lag.ms
