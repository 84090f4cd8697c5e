"""The definition of a configuration key. `KEYS_OF` holds all tables of keys.

Plain dataclasses: importing pydantic and building its models would slow down the start of an
embedded broker too much.

Deviations from Kafka:
- `broker.heartbeat.interval.ms` 500 (Kafka 2,000) and `broker.session.timeout.ms` 6,000 (9,000):
  the loss of a broker is detected sooner.
- `max.connections` 0 is refused: nobody could connect to change it back.
- `controller.quorum.auto.join.enable` true (Kafka false): voters are brokers here, and a cluster of
  three must survive the loss of one. A voter that was removed by command does not rejoin.
- `socket.send.buffer.bytes` and `socket.receive.buffer.bytes` default to the operating
  system's sizes (Kafka 102,400), with which a fetch response takes one system call.
- Keys of tiered storage (`remote.*`, `local.retention.*`), of JVM security providers, of ZooKeeper
  and of thread pools do not exist, and setting one is an error.
- `preallocate`, `segment.jitter.ms` and `replica.alter.log.dirs.io.max.bytes.per.second` are
  accepted without effect: segments take their space as they grow, and a broker has one directory.
- `raylog.*`, `replica.actors.*`, `gateway.*`, `link.*`, `metrics.topics.max`,
  `metrics.groups.max`, `metrics.reporters`, `metrics.report.interval.ms`, `health.listener`,
  `external.host.command`, `metadata.log.fsync`, `drain.timeout.ms` and
  `broker.replacement.delay.ms` exist only in Raylog.
- `log.cleaner.dedupe.buffer.size` and the other settings of the cleaner are read when the broker
  starts. A key takes about 200 bytes of the buffer (Kafka 24). There is one cleaner per broker.
- `log.flush.interval.ms` is unset in Kafka, which then uses `log.flush.scheduler.interval.ms`; here
  it has the default of that key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from raylog.actors.message import keeps_place

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


@keeps_place
class ConfigType(IntEnum):
    """The type of a value; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ResourceType(IntEnum):
    """What a configuration belongs to; the numbers are those of DescribeConfigs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ResourceType.__module__ = "raylog.actors.config"  # where other builds look for it


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A configuration key. Values are text, as on the wire, and `type` says how to parse them."""

    scope: ResourceType
    """The kind of resource that it configures."""
    name: str
    type: ConfigType
    default: str | None
    """None means unset."""
    documentation: str
    low: float | None = None
    high: float | None = None
    """Bounds, both inclusive; None means no bound."""
    choices: tuple[str, ...] = ()
    """Allowed values, for a LIST of each item; empty allows any."""
    any_case: bool = False
    """Whether choices ignore upper and lower case."""
    also: tuple[str, ...] = ()
    """Values allowed in addition to the range, such as gzip's -1."""
    names_replicas: bool = False
    """Whether a LIST consists of `partition:broker` pairs or is the literal `*`."""
    counts_hosts: bool = False
    """Whether a STRING consists of `host:count` items."""
    dynamic: bool = False
    """Whether a broker key can be changed while the broker is running."""
    synonyms: Mapping[str, int] = field(default_factory=dict)
    """Broker keys that supply a topic key's value if the topic does not, by precedence, each with
    the factor that converts its unit: 3,600,000 from hours to a topic key in ms."""
    internal: bool = False
    """Accepted but not listed; for tests."""
    reader: str = ""
    """The module of `raylog.actors` that reads it; empty for a key without effect."""
