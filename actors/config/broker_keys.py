"""The table of all broker settings, and the group settings whose defaults they are.

The settings of the cluster, replicas and actors are defined here. Other modules define those of
listeners, of coordinators and of health and metrics (`raylog_keys`). Most `log.*` settings are
broker-wide defaults of topic settings, and are derived from these.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from raylog.actors.config.coordinator_keys import COORDINATOR_KEYS
from raylog.actors.config.keys import LONG_MAX, ConfigKey, ConfigType, ResourceType
from raylog.actors.config.network_keys import NETWORK_KEYS
from raylog.actors.config.raylog_keys import RAYLOG_KEYS
from raylog.actors.config.topic_keys import TOPIC_KEYS

_T = ConfigType
_broker = partial(ConfigKey, ResourceType.BROKER)
_HOURS = {
    "log.retention.hours": ("168", -1),
    "log.roll.hours": ("168", 1),
    "log.roll.jitter.hours": ("0", 0),
}
"""Default and lower bound. Kafka sets a default for these and none for their `.ms` variants."""
_UNSET = ("log.retention.ms", "log.retention.minutes", "log.roll.ms", "log.roll.jitter.ms")


def _topic_default(key: ConfigKey, name: str) -> ConfigKey:
    """Return the broker key that sets the default of a topic key."""
    default, low = _HOURS.get(name, (key.default, key.low))
    return replace(
        key,
        scope=ResourceType.BROKER,
        name=name,
        type=_T.INT if name in _HOURS or name.endswith("minutes") else key.type,
        default=None if name in _UNSET else default,
        documentation=f"Default of the topic key {key.name}. {key.documentation}",
        low=low,
        dynamic=name not in _HOURS and not name.endswith((".minutes", ".scheduler.interval.ms")),
        names_replicas=False,
        synonyms={},
        internal=False,
    )


_TOPIC_DEFAULTS = tuple(
    _topic_default(key, name) for key in TOPIC_KEYS.values() for name in key.synonyms
)

_CLUSTER = (
    _broker(
        "broker.id",
        _T.INT,
        "-1",
        "The id of the broker. -1 takes the id from the data directory.",
        low=-1,
        reader="broker.child_processes",
    ),
    _broker(
        "replica.selector.class",
        _T.STRING,
        None,
        "How the broker chooses the replica that a consumer reads from. Unset: the leader. rack, "
        "or Kafka's RackAwareReplicaSelector: an in-sync replica in the consumer's rack (KIP-392).",
        choices=(
            "rack",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
        reader="gateway.rules.replica_selection",
    ),
    _broker(
        "leader.replication.throttled.rate",
        _T.LONG,
        str(LONG_MAX),
        "Upper bound, in bytes per second, on what the broker sends to followers of throttled "
        "replicas that it leads (leader.replication.throttled.replicas, KIP-73). Traffic to "
        "in-sync followers counts, but is never delayed. The maximum value means no limit.",
        low=0,
        dynamic=True,
        reader="replica.throttler",
    ),
    _broker(
        "follower.replication.throttled.rate",
        _T.LONG,
        str(LONG_MAX),
        "Upper bound, in bytes per second, on what the broker's throttled follower replicas fetch "
        "(follower.replication.throttled.replicas, KIP-73). The maximum value means no limit.",
        low=0,
        dynamic=True,
        reader="replica.throttler",
    ),
    _broker(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _T.LONG,
        str(LONG_MAX),
        "Upper bound, in bytes per second, on moving replicas between log directories. Accepted "
        "for compatibility with Kafka's tools, but without effect: a broker has one directory.",
        low=0,
        dynamic=True,
    ),
    _broker(
        "replication.quota.window.num",
        _T.INT,
        "11",
        "A throttled replica that has exceeded its rate waits for at most this number of windows.",
        low=1,
        reader="replica.rules.config",
    ),
    _broker(
        "replication.quota.window.size.seconds",
        _T.INT,
        "1",
        "Length of a window of the replication quotas. Throttled replicas that were idle may "
        "transfer the bytes of one window at once.",
        low=1,
        reader="replica.rules.config",
    ),
    _broker(
        "broker.rack",
        _T.STRING,
        None,
        "The rack of the broker. Replicas are spread over racks, and consumers can read from their "
        "own (replica.selector.class).",
        reader="broker.actor",
    ),
    _broker(
        "log.dirs",
        _T.LIST,
        None,
        "The data directory. Only one directory is supported.",
        reader="broker.child_processes",
    ),
    _broker(
        "broker.heartbeat.interval.ms",
        _T.INT,
        "500",
        "Time between heartbeats that the broker sends to the controller. It must be the same for "
        "all brokers, and several heartbeats must fit into broker.session.timeout.ms.",
        low=10,
        reader="broker.actor",
    ),
    _broker(
        "broker.session.timeout.ms",
        _T.INT,
        "6000",
        "The controller fences a broker that has sent no heartbeat for this time. It must be the "
        "same for all brokers.",
        low=100,
        reader="controller.rules.brokers",
    ),
    _broker(
        "controlled.shutdown.enable",
        _T.BOOLEAN,
        "true",
        "Whether the broker hands over the leadership of its partitions before it stops.",
        reader="broker.actor",
    ),
    _broker(
        "broker.replacement.delay.ms",
        _T.LONG,
        "-1",
        "In a cluster on several machines: how long a broker's data directory may be missing "
        "before the broker is started with an empty one. -1 replaces a broker only on command. A "
        "broker is never replaced while a partition has no complete replica on another broker.",
        low=-1,
        reader="supervisor.rules.machine",
    ),
    _broker(
        "drain.timeout.ms",
        _T.INT,
        "25000",
        "Longest time that a broker takes after SIGTERM to hand over leadership and to close its "
        "logs.",
        low=1,
        reader="broker.spec",
    ),
    _broker(
        "controller.quorum.auto.join.enable",
        _T.BOOLEAN,
        "true",
        "Whether brokers join the metadata quorum automatically until it has three voters, and "
        "replace voters whose data directories were lost.",
        reader="controller.actor",
    ),
    _broker(
        "num.partitions",
        _T.INT,
        "1",
        "Default number of partitions of a topic that is created without a partition count.",
        low=1,
        reader="controller.rules.topics",
    ),
    _broker(
        "default.replication.factor",
        _T.INT,
        "1",
        "Default replication factor of a topic that is created without a replica count.",
        low=1,
        reader="controller.rules.topics",
    ),
    _broker(
        "auto.create.topics.enable",
        _T.BOOLEAN,
        "true",
        "Whether a topic that does not exist is created when a client requests its metadata.",
        reader="gateway.handlers.metadata",
    ),
    _broker(
        "delete.topic.enable",
        _T.BOOLEAN,
        "true",
        "Whether topics can be deleted.",
        reader="controller.rules.topics",
    ),
    _broker(
        "auto.leader.rebalance.enable",
        _T.BOOLEAN,
        "true",
        "Whether leadership is returned to the preferred replicas automatically.",
        reader="controller.rules.leaders",
    ),
    _broker(
        "leader.imbalance.check.interval.seconds",
        _T.LONG,
        "300",
        "How often the controller checks for partitions that are not led by their preferred "
        "replica.",
        low=1,
        reader="controller.rules.leaders",
    ),
    _broker(
        "replica.lag.time.max.ms",
        _T.LONG,
        "30000",
        "A follower that has not caught up with the leader for this time is removed from the ISR.",
        reader="replica.rules.config",
    ),
    _broker(
        "replica.fetch.wait.max.ms",
        _T.INT,
        "500",
        "Longest time that a leader holds a follower's fetch when there are no new records.",
        reader="replica.rules.config",
    ),
    _broker(
        "replica.fetch.min.bytes",
        _T.INT,
        "1",
        "Least number of bytes for which a leader answers a follower's fetch at once. With less, "
        "it waits up to replica.fetch.wait.max.ms.",
        reader="replica.rules.config",
    ),
    _broker(
        "replica.fetch.max.bytes",
        _T.INT,
        "1048576",
        "Most bytes of one partition in a fetch response to a follower. A first batch that is "
        "larger is sent whole.",
        low=0,
        reader="replica.rules.config",
    ),
    _broker(
        "replica.fetch.response.max.bytes",
        _T.INT,
        "10485760",
        "Most bytes in a fetch response to a follower. A first batch that is larger is sent whole.",
        low=0,
        reader="replica.rules.config",
    ),
    _broker(
        "replica.fetch.backoff.ms",
        _T.INT,
        "1000",
        "Longest time that a follower waits after a failed fetch of a partition before it tries "
        "again.",
        low=0,
        reader="replica.rules.config",
    ),
    _broker(
        "log.retention.check.interval.ms",
        _T.LONG,
        "300000",
        "How often logs are checked for segments that have exceeded their retention.",
        low=1,
        reader="broker.child_processes",
    ),
    _broker(
        "log.cleaner.enable",
        _T.BOOLEAN,
        "true",
        "Whether topics with cleanup.policy=compact are compacted.",
        reader="replica.rules.config",
    ),
    _broker(
        "log.cleaner.backoff.ms",
        _T.LONG,
        "15000",
        "How long the cleaner waits before it checks for logs to compact again, if there were "
        "none.",
        low=0,
        reader="replica.rules.config",
    ),
    _broker(
        "log.cleaner.dedupe.buffer.size",
        _T.LONG,
        "134217728",
        "Most memory, in bytes, for the keys of the log that the cleaner compacts; a key takes "
        "about 200 bytes. A log with more keys takes several passes.",
        reader="replica.rules.config",
    ),
    _broker(
        "log.cleaner.io.max.bytes.per.second",
        _T.DOUBLE,
        "1.7976931348623157E308",
        "Upper bound, in bytes per second, on the cleaner's reads and writes together. 0 counts as "
        "1; a negative value means no limit, as in Kafka.",
        reader="replica.rules.config",
    ),
    _broker(
        "producer.id.expiration.ms",
        _T.INT,
        "86400000",
        "A partition forgets the sequence numbers of a producer that has written nothing for this "
        "time.",
        low=1,
        dynamic=True,
        reader="replica.rules.config",
    ),
    _broker(
        "metadata.log.max.record.bytes.between.snapshots",
        _T.LONG,
        "20971520",
        "A snapshot of the metadata is written when the log has grown by this many bytes since the "
        "last one.",
        low=1,
        reader="controller.actor",
    ),
    _broker(
        "metadata.log.fsync",
        _T.BOOLEAN,
        "true",
        "Whether metadata records are synced to disk before they count as written. Disable it only "
        "in tests.",
        reader="broker.actor",
    ),
    _broker(
        "replica.actors.max",
        _T.INT,
        "0",
        "Most Replica processes that the broker's partitions are spread over. 0: as many as the "
        "broker has cores, at least 2; 1 if the gateway runs in that process.",
        low=0,
        reader="broker.rules.pool",
    ),
    _broker(
        "replica.actors.spare",
        _T.INT,
        "1",
        "Replica processes without partitions that are kept running, so that a new topic or a "
        "failover does not wait for a process to start.",
        low=0,
        high=16,
        reader="broker.rules.pool",
    ),
    _broker(
        "gateway.actors",
        _T.INT,
        "1",
        "Number of processes that serve clients and share their connections. auto: half as many as "
        "the broker has cores, at least 1. Set a number if several brokers share a machine, "
        "because each counts all of its cores.",
        low=1,
        high=64,
        also=("auto",),
        reader="broker.rules.pool",
    ),
    _broker(
        "gateway.in.replica.process",
        _T.STRING,
        "auto",
        "Whether the gateway runs in a Replica process, which avoids a hop between processes. "
        "auto: on machines with up to 2 cores, if gateway.actors is 1.",
        choices=("auto", "true", "false"),
        reader="broker.rules.pool",
    ),
)

BROKER_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in sorted(
        (*NETWORK_KEYS, *_CLUSTER, *COORDINATOR_KEYS, *RAYLOG_KEYS, *_TOPIC_DEFAULTS),
        key=lambda key: key.name,
    )
}

GROUP_KEYS: dict[str, ConfigKey] = {
    name.removeprefix("group."): replace(
        BROKER_KEYS[name],
        scope=ResourceType.GROUP,
        name=name.removeprefix("group."),
        high=LONG_MAX,
    )
    for name in (
        "group.consumer.assignment.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms",
    )
}
"""Settings of a consumer group (KIP-848); they must be within the broker's limits."""
