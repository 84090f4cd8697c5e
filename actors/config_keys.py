"""The table of configuration keys: Kafka 4.3's names, types, ranges and defaults.

Plain data without pydantic, whose import and model building take longer than an embedded broker may
take to start; `config_models.py` builds pydantic models from this table where people type input.

Deviations from Kafka:
- `broker.heartbeat.interval.ms` 500 (Kafka 2,000) and `broker.session.timeout.ms` 6,000 (9,000):
  a lost broker is noticed sooner.
- `max.connections` 0 is refused: nobody could connect, to change it either.
- `controller.quorum.auto.join.enable` true (Kafka false): voters are brokers here, and a cluster
  that has three shall survive the loss of one. Whom somebody removes by hand stays out.
- `socket.send.buffer.bytes` and `socket.receive.buffer.bytes` are left to the system (Kafka
  102,400): a fetch is then one system call.
- Keys of tiered storage (`remote.*`, `local.retention.*`), of JVM security providers, of ZooKeeper
  and of thread pools do not exist: giving one is an error.
- `preallocate`, `segment.jitter.ms` and `replica.alter.log.dirs.io.max.bytes.per.second` are
  accepted and have no effect: segments take their space as they grow, and a broker has one
  directory.
- `raylog.*`, `replica.actors.*`, `link.*`, `external.host.command`, `gateway.actors`,
  `gateway.in.replica.process`, `health.listener` and `metadata.log.fsync` are ours.
- `log.cleaner.dedupe.buffer.size`, as the other keys of the cleaner itself, holds from the broker's
  start on; a key takes about 200 bytes of it (Kafka 24). There is one cleaner per broker.
- `log.flush.interval.ms` is unset in Kafka and then means `log.flush.scheduler.interval.ms`; here
  it has that key's default itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class ConfigType(IntEnum):
    """Type of a value, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key whose value is a topic key's value if the topic does not set its own."""

    name: str
    factor: int = 1
    """What the broker key's unit is in the topic key's unit: hours are 3,600,000 ms."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configuration key. Values are text, as on the wire; the type says how it is read."""

    name: str
    type: ConfigType
    default: str | None
    """None: unset."""
    documentation: str
    low: float | None = None
    high: float | None = None
    """Bounds, both inclusive."""
    choices: tuple[str, ...] = ()
    """Allowed values, of each item for a LIST; empty: any."""
    any_case: bool = False
    """Whether a choice may be written in any case."""
    also: tuple[str, ...] = ()
    """Values allowed beside the range, such as gzip's -1."""
    names_replicas: bool = False
    """Whether a LIST is `partition:broker` pairs or the literal `*`."""
    counts_hosts: bool = False
    """Whether a STRING is hosts with a count for each."""
    dynamic: bool = False
    """Whether a broker key can be changed while the broker runs."""
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False
    """Accepted but not described: for tests."""


_T = ConfigType


def _topic(
    name: str,
    kind: ConfigType,
    default: str,
    documentation: str,
    *synonyms: str | Synonym,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    names_replicas: bool = False,
    internal: bool = False,
) -> ConfigKey:
    chain = tuple(Synonym(one) if isinstance(one, str) else one for one in synonyms)
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        documentation=documentation,
        low=low,
        high=high,
        choices=choices,
        also=also,
        names_replicas=names_replicas,
        synonyms=chain,
        internal=internal,
    )


_TOPIC_TABLE = (
    _topic(
        "cleanup.policy",
        _T.LIST,
        "delete",
        "What happens to old data: delete drops segments past retention, compact keeps the latest "
        "record of each key; both may be given, and none keeps everything.",
        "log.cleanup.policy",
        choices=("compact", "delete"),
    ),
    _topic(
        "compression.gzip.level",
        _T.INT,
        "-1",
        "Level used when compression.type is gzip; -1 is the library's default.",
        "compression.gzip.level",
        low=1,
        high=9,
        also=("-1",),
    ),
    _topic(
        "compression.lz4.level",
        _T.INT,
        "9",
        "Level used when compression.type is lz4.",
        "compression.lz4.level",
        low=1,
        high=17,
    ),
    _topic(
        "compression.type",
        _T.STRING,
        "producer",
        "Codec in which batches are stored; producer keeps each as it came.",
        "compression.type",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _topic(
        "compression.zstd.level",
        _T.INT,
        "3",
        "Level used when compression.type is zstd.",
        "compression.zstd.level",
        low=-131072,
        high=22,
    ),
    _topic(
        "delete.retention.ms",
        _T.LONG,
        str(_DAY_MS),
        "How long compaction keeps tombstones, and so the time a reader that starts at the "
        "beginning has to see a complete state.",
        "log.cleaner.delete.retention.ms",
        low=0,
    ),
    _topic(
        "file.delete.delay.ms",
        _T.LONG,
        "60000",
        "How long a file that was dropped stays readable before it is removed.",
        "log.segment.delete.delay.ms",
        low=0,
    ),
    _topic(
        "flush.messages",
        _T.LONG,
        str(LONG_MAX),
        "Records after which the log is synced to the disk; 1 syncs before every acknowledgement.",
        "log.flush.interval.messages",
        low=1,
    ),
    _topic(
        "flush.ms",
        _T.LONG,
        str(LONG_MAX),
        "Time after which appended records are synced to the disk.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        low=0,
    ),
    _topic(
        "follower.replication.throttled.replicas",
        _T.LIST,
        "",
        "Replicas that follow throttled, as partition:broker pairs, or * for all: they fetch no "
        "faster than their broker's follower.replication.throttled.rate (KIP-73).",
        names_replicas=True,
    ),
    _topic(
        "index.interval.bytes",
        _T.INT,
        "4096",
        "Distance of entries in the offset index.",
        "log.index.interval.bytes",
        low=0,
    ),
    _topic(
        "leader.replication.throttled.replicas",
        _T.LIST,
        "",
        "Replicas that lead throttled, as partition:broker pairs, or * for all: followers that "
        "are not in sync get no more of them than their broker's "
        "leader.replication.throttled.rate (KIP-73).",
        names_replicas=True,
    ),
    _topic(
        "max.compaction.lag.ms",
        _T.LONG,
        str(LONG_MAX),
        "Longest time a record stays out of compaction.",
        "log.cleaner.max.compaction.lag.ms",
        low=1,
    ),
    _topic(
        "max.message.bytes",
        _T.INT,
        "1048588",
        "Largest record batch accepted, as it arrives.",
        "message.max.bytes",
        low=0,
    ),
    _topic(
        "message.timestamp.after.max.ms",
        _T.LONG,
        str(_HOUR_MS),
        "How far a record's timestamp may lie ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms",
        low=0,
    ),
    _topic(
        "message.timestamp.before.max.ms",
        _T.LONG,
        str(LONG_MAX),
        "How far a record's timestamp may lie behind the broker's clock.",
        "log.message.timestamp.before.max.ms",
        low=0,
    ),
    _topic(
        "message.timestamp.type",
        _T.STRING,
        "CreateTime",
        "Whose clock stamps the records: the producer's or the broker's at the append.",
        "log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        _T.DOUBLE,
        "0.5",
        "Part of the log that must be uncompacted before it is compacted again.",
        "log.cleaner.min.cleanable.ratio",
        low=0,
        high=1,
    ),
    _topic(
        "min.compaction.lag.ms",
        _T.LONG,
        "0",
        "Shortest time a record stays out of compaction.",
        "log.cleaner.min.compaction.lag.ms",
        low=0,
    ),
    _topic(
        "min.insync.replicas",
        _T.INT,
        "1",
        "In-sync replicas, the leader included, that a write with acks=all needs.",
        "min.insync.replicas",
        low=1,
    ),
    _topic(
        "preallocate",
        _T.BOOLEAN,
        "false",
        "Whether a segment's space is reserved when it is made. Accepted without effect: segments "
        "take their space as they grow.",
        "log.preallocate",
    ),
    _topic(
        "retention.bytes",
        _T.LONG,
        "-1",
        "Size of a partition past which old segments are dropped; -1 is without limit.",
        "log.retention.bytes",
    ),
    _topic(
        "retention.ms",
        _T.LONG,
        str(7 * _DAY_MS),
        "Age past which segments are dropped; -1 is without limit.",
        "log.retention.ms",
        Synonym("log.retention.minutes", 60_000),
        Synonym("log.retention.hours", _HOUR_MS),
        low=-1,
    ),
    _topic(
        "segment.bytes",
        _T.INT,
        "1073741824",
        "Size at which a segment is closed and the next begins.",
        "log.segment.bytes",
        low=1024 * 1024,
    ),
    _topic(
        "segment.index.bytes",
        _T.INT,
        "10485760",
        "Largest size of a segment's index; a full one closes the segment.",
        "log.index.size.max.bytes",
        low=4,
    ),
    _topic(
        "segment.jitter.ms",
        _T.LONG,
        "0",
        "Largest random time taken off segment.ms. Accepted without effect.",
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", _HOUR_MS),
        low=0,
    ),
    _topic(
        "segment.ms",
        _T.LONG,
        str(7 * _DAY_MS),
        "Age at which a segment is closed even if it is small.",
        "log.roll.ms",
        Synonym("log.roll.hours", _HOUR_MS),
        low=1,
    ),
    _topic(
        "unclean.leader.election.enable",
        _T.BOOLEAN,
        "false",
        "Whether a replica that is not in sync may lead when no other is left, losing data.",
        "unclean.leader.election.enable",
    ),
    _topic(
        "internal.segment.bytes",
        _T.INT,
        "",
        "Overrides segment.bytes without its lower bound; for tests.",
        low=1,
        also=("",),
        internal=True,
    ),
    _topic(
        "raylog.interceptors",
        _T.LIST,
        "",
        "Interceptors that see this topic's records, in the order in which they are called. Their "
        "options are raylog.interceptor.NAME.OPTION.",
    ),
    _topic(
        "raylog.replica.dedicated",
        _T.BOOLEAN,
        "false",
        "Whether each partition gets a process of its own even when the pool is full.",
    ),
    _topic(
        "raylog.replicas.auto.grow",
        _T.BOOLEAN,
        "true",
        "Whether partitions of __consumer_offsets and __transaction_state get the replicas that "
        "they lack by themselves when there are brokers for it; false once somebody has taken "
        "replicas away.",
    ),
)

TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TOPIC_TABLE}

INTERCEPTOR_OPTION_PREFIX = "raylog.interceptor."


def interceptor_option(name: str) -> ConfigKey:
    """The topic key of an interceptor's option, of which only the plug-in knows more."""
    return _topic(name, _T.STRING, "", "An option of an interceptor of this topic.")
