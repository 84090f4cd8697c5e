"""Topic keys: Kafka 4.3's names, types, ranges and defaults. `keys.py` lists the deviations.

The defaults of settings that logs use come from `LogConfig`.
"""

from __future__ import annotations

from functools import partial

from raylog.actors.config.keys import LONG_MAX, ConfigKey, ConfigType, ResourceType
from raylog.storage.config import LogConfig
from raylog.wire.compression import LEVELS, Codec

_HOUR_MS = 3_600_000
_LOG = LogConfig()
_T = ConfigType
_topic = partial(ConfigKey, ResourceType.TOPIC)


def _level_of(codec: Codec) -> ConfigKey:
    """Return the key that sets a codec's compression level."""
    levels, name = LEVELS[codec], f"compression.{codec.label}.level"
    default, text = str(levels.default), f"Level used when compression.type is {codec.label}"
    is_librarys = levels.default < levels.low
    return _topic(
        name,
        _T.INT,
        default,
        f"{text}; {default} is the library's default." if is_librarys else f"{text}.",
        synonyms={name: 1},
        reader="gateway.topic_rules",
        low=levels.low,
        high=levels.high,
        also=(default,) if is_librarys else (),
    )


_TABLE = (
    _topic(
        "cleanup.policy",
        _T.LIST,
        "delete",
        "What happens to old data. delete removes segments that exceed retention.ms or "
        "retention.bytes; compact keeps the latest record of each key; delete,compact does both. "
        "An empty value keeps everything.",
        synonyms={"log.cleanup.policy": 1},
        choices=("compact", "delete"),
        reader="replica.rules.config",
    ),
    *(_level_of(codec) for codec in LEVELS),
    _topic(
        "compression.type",
        _T.STRING,
        "producer",
        "The codec in which batches are stored. producer keeps the codec that the producer used.",
        synonyms={"compression.type": 1},
        choices=("uncompressed", *(codec.label for codec in reversed(Codec) if codec), "producer"),
        reader="gateway.topic_rules",
    ),
    _topic(
        "delete.retention.ms",
        _T.LONG,
        str(_LOG.delete_retention_ms),
        "How long compaction keeps tombstones. A consumer that starts at the beginning must reach "
        "the end within this time to see a valid final state.",
        synonyms={"log.cleaner.delete.retention.ms": 1},
        low=0,
        reader="replica.rules.config",
    ),
    _topic(
        "file.delete.delay.ms",
        _T.LONG,
        str(_LOG.file_delete_delay_ms),
        "How long deleted segment files remain on disk, so that reads in progress can finish.",
        synonyms={"log.segment.delete.delay.ms": 1},
        low=0,
        reader="replica.rules.config",
    ),
    _topic(
        "flush.messages",
        _T.LONG,
        str(_LOG.flush_messages),
        "The log is synced to disk after this number of records. 1 syncs every write before it is "
        "acknowledged; the maximum value disables this.",
        synonyms={"log.flush.interval.messages": 1},
        low=1,
        reader="replica.rules.config",
    ),
    _topic(
        "flush.ms",
        _T.LONG,
        str(_LOG.flush_ms),
        "Longest time before appended records are synced to disk. The maximum value disables this.",
        synonyms={"log.flush.interval.ms": 1, "log.flush.scheduler.interval.ms": 1},
        low=0,
        reader="replica.rules.config",
    ),
    _topic(
        "follower.replication.throttled.replicas",
        _T.LIST,
        "",
        "Replicas that are throttled as followers, as partition:broker pairs, or * for all. They "
        "fetch no faster than follower.replication.throttled.rate of their broker (KIP-73).",
        names_replicas=True,
        reader="replica.rules.config",
    ),
    _topic(
        "index.interval.bytes",
        _T.INT,
        str(_LOG.index_interval_bytes),
        "Bytes of log between two entries of the offset index.",
        synonyms={"log.index.interval.bytes": 1},
        low=0,
        reader="replica.rules.config",
    ),
    _topic(
        "leader.replication.throttled.replicas",
        _T.LIST,
        "",
        "Replicas that are throttled as leaders, as partition:broker pairs, or * for all. Their "
        "followers that are not in sync get no more than leader.replication.throttled.rate of the "
        "leader's broker (KIP-73).",
        names_replicas=True,
        reader="replica.rules.config",
    ),
    _topic(
        "max.compaction.lag.ms",
        _T.LONG,
        str(_LOG.max_compaction_lag_ms),
        "Longest time that a record may remain uncompacted.",
        synonyms={"log.cleaner.max.compaction.lag.ms": 1},
        low=1,
        reader="replica.rules.config",
    ),
    _topic(
        "max.message.bytes",
        _T.INT,
        "1048588",
        "Maximum size of a record batch, after compression by the producer.",
        synonyms={"message.max.bytes": 1},
        low=0,
        reader="gateway.topic_rules",
    ),
    _topic(
        "message.timestamp.after.max.ms",
        _T.LONG,
        str(_HOUR_MS),
        "A record is rejected if its timestamp is later than the broker's clock by more than this. "
        "Ignored if message.timestamp.type is LogAppendTime.",
        synonyms={"log.message.timestamp.after.max.ms": 1},
        low=0,
        reader="gateway.topic_rules",
    ),
    _topic(
        "message.timestamp.before.max.ms",
        _T.LONG,
        str(LONG_MAX),
        "A record is rejected if its timestamp is earlier than the broker's clock by more than "
        "this. Ignored if message.timestamp.type is LogAppendTime.",
        synonyms={"log.message.timestamp.before.max.ms": 1},
        low=0,
        reader="gateway.topic_rules",
    ),
    _topic(
        "message.timestamp.type",
        _T.STRING,
        "CreateTime",
        "Whether a record's timestamp is its creation time, set by the producer (CreateTime), or "
        "the time of the append, set by the broker (LogAppendTime).",
        synonyms={"log.message.timestamp.type": 1},
        choices=("CreateTime", "LogAppendTime"),
        reader="gateway.topic_rules",
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        _T.DOUBLE,
        str(_LOG.min_cleanable_dirty_ratio),
        "A log is compacted when more than this fraction of its bytes has not been compacted.",
        synonyms={"log.cleaner.min.cleanable.ratio": 1},
        low=0,
        high=1,
        reader="replica.rules.config",
    ),
    _topic(
        "min.compaction.lag.ms",
        _T.LONG,
        str(_LOG.min_compaction_lag_ms),
        "Shortest time that a record remains uncompacted.",
        synonyms={"log.cleaner.min.compaction.lag.ms": 1},
        low=0,
        reader="replica.rules.config",
    ),
    _topic(
        "min.insync.replicas",
        _T.INT,
        "1",
        "Number of in-sync replicas, including the leader, that a write with acks=all requires.",
        synonyms={"min.insync.replicas": 1},
        low=1,
        reader="replica.rules.config",
    ),
    _topic(
        "preallocate",
        _T.BOOLEAN,
        "false",
        "Whether the space of a segment is reserved when the segment is created. Accepted without "
        "effect: segments take their space as they grow.",
        synonyms={"log.preallocate": 1},
    ),
    _topic(
        "retention.bytes",
        _T.LONG,
        str(_LOG.retention_bytes),
        "Maximum size of a partition before its oldest segments are deleted. -1 means no limit.",
        synonyms={"log.retention.bytes": 1},
        reader="replica.rules.config",
    ),
    _topic(
        "retention.ms",
        _T.LONG,
        str(_LOG.retention_ms),
        "Segments are deleted when all their records are older than this. -1 means no limit.",
        synonyms={
            "log.retention.ms": 1,
            "log.retention.minutes": 60_000,
            "log.retention.hours": _HOUR_MS,
        },
        low=-1,
        reader="replica.rules.config",
    ),
    _topic(
        "segment.bytes",
        _T.INT,
        str(_LOG.segment_bytes),
        "Maximum size of a segment before a new one is started.",
        synonyms={"log.segment.bytes": 1},
        low=1024 * 1024,
        reader="replica.rules.config",
    ),
    _topic(
        "segment.index.bytes",
        _T.INT,
        str(_LOG.max_index_size_bytes),
        "Maximum size of a segment's offset index. When it is full, a new segment is started.",
        synonyms={"log.index.size.max.bytes": 1},
        low=4,
        reader="replica.rules.config",
    ),
    _topic(
        "segment.jitter.ms",
        _T.LONG,
        "0",
        "Maximum random time that is subtracted from segment.ms. Accepted without effect.",
        synonyms={"log.roll.jitter.ms": 1, "log.roll.jitter.hours": _HOUR_MS},
        low=0,
    ),
    _topic(
        "segment.ms",
        _T.LONG,
        str(_LOG.segment_ms),
        "Maximum age of a segment before a new one is started, even if it is not full.",
        synonyms={"log.roll.ms": 1, "log.roll.hours": _HOUR_MS},
        low=1,
        reader="replica.rules.config",
    ),
    _topic(
        "unclean.leader.election.enable",
        _T.BOOLEAN,
        "false",
        "Whether a replica that is not in the ISR can become leader as a last resort, which may "
        "lose records.",
        synonyms={"unclean.leader.election.enable": 1},
        reader="controller.rules.partitions",
    ),
    _topic(
        "internal.segment.bytes",
        _T.INT,
        "",
        "Overrides segment.bytes without its lower bound. For tests.",
        low=1,
        also=("",),
        internal=True,
        reader="config",
    ),
    _topic(
        "raylog.interceptors",
        _T.LIST,
        "",
        "Names of the interceptors of this topic's records, in the order in which they are called. "
        "Their options are raylog.interceptor.NAME.OPTION.",
        reader="gateway.interception",
    ),
    _topic(
        "raylog.replica.dedicated",
        _T.BOOLEAN,
        "false",
        "Whether each partition gets its own Replica process, even beyond replica.actors.max.",
        reader="broker.rules.machine",
    ),
    _topic(
        "raylog.replicas.auto.grow",
        _T.BOOLEAN,
        "true",
        "Whether partitions of __consumer_offsets and __transaction_state get missing replicas "
        "automatically when more brokers join. It becomes false when somebody reduces the replicas "
        "of the topic.",
        reader="controller.rules.internal_topics",
    ),
)

TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TABLE}

INTERCEPTOR_OPTION_PREFIX = "raylog.interceptor."


def interceptor_option(name: str) -> ConfigKey:
    """Return the key of an interceptor's option; only the interceptor knows its type and range."""
    what = "An option of one of the topic's interceptors."
    return _topic(name, _T.STRING, "", what, reader="config")
