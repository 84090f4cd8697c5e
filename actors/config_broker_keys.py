"""The table of broker keys; `config_keys.py` has the topic keys and the list of deviations.

Most `log.*` keys are the broker-wide defaults of topic keys and are derived from them here.
"""

from __future__ import annotations

from raylog.actors.config_keys import INT_MAX, LONG_MAX, TOPIC_KEYS, ConfigKey, ConfigType
from raylog.actors.config_network_keys import NETWORK_KEYS
from raylog.actors.config_own_keys import OWN

_T = ConfigType
_HOURS = {
    "log.retention.hours": ("168", -1),
    "log.roll.hours": ("168", 1),
    "log.roll.jitter.hours": ("0", 0),
}
"""Kafka gives these the default, and leaves the finer-grained keys of the same meaning unset."""
_UNSET = ("log.retention.ms", "log.retention.minutes", "log.roll.ms", "log.roll.jitter.ms")


def _topic_default(key: ConfigKey, name: str) -> ConfigKey:
    """The broker key that is a topic key's default."""
    default, low = _HOURS.get(name, (key.default, key.low))
    return ConfigKey(
        name=name,
        type=_T.INT if name in _HOURS or name.endswith("minutes") else key.type,
        default=None if name in _UNSET else default,
        documentation=f"Default of the topic key {key.name}. {key.documentation}",
        low=low,
        high=key.high,
        choices=key.choices,
        also=key.also,
        dynamic=name not in _HOURS and not name.endswith((".minutes", ".scheduler.interval.ms")),
    )


_TOPIC_DEFAULTS = tuple(
    _topic_default(key, synonym.name) for key in TOPIC_KEYS.values() for synonym in key.synonyms
)

_CLUSTER = (
    ConfigKey("broker.id", _T.INT, "-1", "The broker's number; -1 takes it from the data.", low=-1),
    ConfigKey(
        "replica.selector.class",
        _T.STRING,
        None,
        "Which replica consumers are sent to: unset, the leader; rack, an in-sync one in their own "
        "rack (KIP-392), for which Kafka's name of that class stands, too.",
        choices=(
            "rack",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
    ),
    *(
        ConfigKey(name, _T.LONG, str(LONG_MAX), what, low=0, dynamic=True)
        for name, what in (
            (
                "leader.replication.throttled.rate",
                "Bytes a second that the broker sends of throttled replicas that lead, those of "
                "leader.replication.throttled.replicas (KIP-73). Followers in sync count, and "
                "do not wait.",
            ),
            (
                "follower.replication.throttled.rate",
                "Bytes a second that the broker's throttled replicas that follow fetch, those of "
                "follower.replication.throttled.replicas (KIP-73).",
            ),
            (
                "replica.alter.log.dirs.io.max.bytes.per.second",
                "Bytes a second at which replicas move between directories. Accepted for the "
                "tools that set it, without effect: there is one directory.",
            ),
        )
    ),
    ConfigKey(
        "replication.quota.window.num",
        _T.INT,
        "11",
        "For as many windows at most a throttled replica waits after it has moved too much.",
        low=1,
    ),
    ConfigKey(
        "replication.quota.window.size.seconds",
        _T.INT,
        "1",
        "What a throttled rate allows in this time may move at once.",
        low=1,
    ),
    ConfigKey("broker.rack", _T.STRING, None, "Where the broker stands, for placement."),
    ConfigKey("log.dirs", _T.LIST, None, "The data directory. One is supported."),
    ConfigKey(
        "broker.heartbeat.interval.ms",
        _T.INT,
        "500",
        "Time between a broker's heartbeats to the controller.",
        low=10,
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        _T.INT,
        "6000",
        "Silence after which the controller takes a broker for lost.",
        low=100,
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        _T.BOOLEAN,
        "true",
        "Whether a broker hands leadership over before it stops.",
    ),
    ConfigKey(
        "broker.replacement.delay.ms",
        _T.LONG,
        "-1",
        "How long a broker's data directory may be gone, on a Ray of several machines, until the "
        "broker begins anew with an empty one; -1: only by command. Never where no other broker "
        "is known to hold all of a partition.",
        low=-1,
    ),
    ConfigKey(
        "drain.timeout.ms",
        _T.INT,
        "25000",
        "How long a broker that is told to end by SIGTERM may take to hand leadership over and to "
        "close its logs.",
        low=1,
    ),
    ConfigKey(
        "controller.quorum.auto.join.enable",
        _T.BOOLEAN,
        "true",
        "Whether brokers come to vote on metadata by themselves: up to three, and in the place of "
        "their own lost directories.",
    ),
    ConfigKey("num.partitions", _T.INT, "1", "Partitions of a topic made without a count.", low=1),
    ConfigKey(
        "default.replication.factor",
        _T.INT,
        "1",
        "Replicas of a topic made without a count.",
        low=1,
    ),
    ConfigKey(
        "auto.create.topics.enable",
        _T.BOOLEAN,
        "true",
        "Whether a client that asks for a missing topic makes it.",
    ),
    ConfigKey("delete.topic.enable", _T.BOOLEAN, "true", "Whether topics can be deleted."),
    ConfigKey(
        "auto.leader.rebalance.enable",
        _T.BOOLEAN,
        "true",
        "Whether leadership goes back to the preferred replicas by itself.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        _T.LONG,
        "300",
        "Time between looks for partitions that their preferred replica does not lead.",
        low=1,
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        _T.LONG,
        "30000",
        "Time after which a follower that has not caught up leaves the in-sync replicas.",
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        _T.INT,
        "500",
        "Time for which a leader may keep a follower's request when there is nothing new.",
    ),
    ConfigKey(
        "replica.fetch.min.bytes", _T.INT, "1", "Bytes a follower asks a leader to wait for."
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        _T.INT,
        "1048576",
        "Bytes of one partition in an answer to a follower, unless its first batch is larger.",
        low=0,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        _T.INT,
        "10485760",
        "Bytes of an answer to a follower, unless its first batch is larger.",
        low=0,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        _T.INT,
        "1000",
        "Time between a follower's attempts after a failure, at most.",
        low=0,
    ),
    ConfigKey(
        "log.retention.check.interval.ms",
        _T.LONG,
        "300000",
        "Time between looks for segments past retention.",
        low=1,
    ),
    ConfigKey(
        "log.cleaner.enable",
        _T.BOOLEAN,
        "true",
        "Whether topics with the policy compact are compacted.",
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        _T.LONG,
        "15000",
        "Time between looks for logs to compact, while there was none.",
        low=0,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        _T.LONG,
        "134217728",
        "Bytes that the cleaner takes to know keys by while it compacts a log; about 200 for each. "
        "A log with more keys takes several rounds.",
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        _T.DOUBLE,
        "1.7976931348623157E308",
        "Bytes a second that compaction reads and writes on a broker.",
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        _T.INT,
        "86400000",
        "Silence after which a partition forgets a producer's sequence numbers.",
        low=1,
        dynamic=True,
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _T.LONG,
        "20971520",
        "Growth of the metadata log after which it is replaced by a snapshot.",
        low=1,
    ),
    ConfigKey(
        "metadata.log.fsync",
        _T.BOOLEAN,
        "true",
        "Whether a metadata record is synced to the disk before it counts. Only tests do without.",
    ),
    ConfigKey(
        "replica.actors.max",
        _T.INT,
        "0",
        "Processes a broker's partitions are spread over; 0 is as many as cores, at least 2, and 1 "
        "where the gateway lives in that process.",
        low=0,
    ),
    ConfigKey(
        "replica.actors.spare",
        _T.INT,
        "1",
        "Replica processes kept warm, so that no topic and no failover waits for a start.",
        low=0,
        high=16,
    ),
    ConfigKey(
        "gateway.actors",
        _T.INT,
        "1",
        "Processes that serve clients, which share the connections; auto: half as many as the "
        "broker has cores, at least 1. Where several brokers share a machine, each counts all of "
        "its cores: give a number there.",
        low=1,
        high=64,
        also=("auto",),
    ),
    ConfigKey(
        "gateway.in.replica.process",
        _T.STRING,
        "auto",
        "Whether the gateway lives in the replicas' process, which saves a hop to another where "
        "cores are few; auto: on a machine with at most 2 cores and if there is one gateway.",
        choices=("auto", "true", "false"),
    ),
)

_GROUPS = (
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        _T.INT,
        "3000",
        "Time a new group waits for more members before its first rebalance.",
        low=0,
    ),
    ConfigKey(
        "group.min.session.timeout.ms",
        _T.INT,
        "6000",
        "Shortest session timeout a classic member may ask for.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        _T.INT,
        "1800000",
        "Longest session timeout a classic member may ask for.",
    ),
    ConfigKey("group.max.size", _T.INT, str(INT_MAX), "Most members of a classic group.", low=1),
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _T.LIST,
        "classic,consumer",
        "Group protocols that are served.",
        choices=("classic", "consumer"),
    ),
    ConfigKey(
        "group.consumer.session.timeout.ms",
        _T.INT,
        "45000",
        "Silence after which a member of a consumer group is out (KIP-848).",
        low=1,
    ),
    ConfigKey("group.consumer.min.session.timeout.ms", _T.INT, "45000", "Its lower bound.", low=1),
    ConfigKey("group.consumer.max.session.timeout.ms", _T.INT, "60000", "Its upper bound.", low=1),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        _T.INT,
        "5000",
        "Time between heartbeats that members of consumer groups are told (KIP-848).",
        low=1,
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms", _T.INT, "5000", "Its lower bound.", low=1
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms", _T.INT, "15000", "Its upper bound.", low=1
    ),
    ConfigKey(
        "group.consumer.assignment.interval.ms",
        _T.INT,
        "1000",
        "Time between two assignments of a consumer group: who joins meanwhile is taken together.",
        low=0,
    ),
    ConfigKey("group.consumer.min.assignment.interval.ms", _T.INT, "0", "Its lower bound.", low=0),
    ConfigKey(
        "group.consumer.max.assignment.interval.ms", _T.INT, "15000", "Its upper bound.", low=0
    ),
    ConfigKey(
        "group.consumer.max.size", _T.INT, str(INT_MAX), "Most members of a consumer group.", low=1
    ),
    ConfigKey(
        "group.consumer.assignors",
        _T.LIST,
        "uniform,range",
        "Server-side assignors by preference.",
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _T.STRING,
        "bidirectional",
        "Whether a group may change between the classic and the consumer protocol.",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        any_case=True,
    ),
    ConfigKey(
        "offsets.topic.num.partitions", _T.INT, "50", "Partitions of __consumer_offsets.", low=1
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        _T.SHORT,
        "3",
        "Replicas of __consumer_offsets, at most the brokers declared at start.",
        low=1,
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        _T.INT,
        "104857600",
        "Segment size of __consumer_offsets.",
        low=1,
    ),
    ConfigKey(
        "offsets.retention.minutes",
        _T.INT,
        "10080",
        "How long committed offsets of an empty group are kept.",
        low=1,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        _T.LONG,
        "600000",
        "Time between looks for expired offsets.",
        low=1,
    ),
    ConfigKey(
        "offsets.commit.timeout.ms",
        _T.INT,
        "5000",
        "Time limit of writing a commit to the offsets topic.",
        low=1,
    ),
    ConfigKey(
        "offset.metadata.max.bytes", _T.INT, "4096", "Longest metadata text of a commit.", low=0
    ),
)

_TRANSACTIONS = (
    ConfigKey(
        "transaction.state.log.num.partitions",
        _T.INT,
        "50",
        "Partitions of __transaction_state.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        _T.SHORT,
        "3",
        "Replicas of __transaction_state, at most the brokers declared at start.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        _T.INT,
        "2",
        "min.insync.replicas of __transaction_state, at most its replicas.",
        low=1,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _T.INT,
        "104857600",
        "Segment size of __transaction_state.",
        low=1,
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        _T.INT,
        "900000",
        "Longest transaction timeout a producer may ask for.",
        low=1,
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        _T.BOOLEAN,
        "false",
        "Whether producers may hold transactions prepared for somebody else's commit (KIP-939).",
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _T.INT,
        "604800000",
        "Silence after which a transactional id is forgotten.",
        low=1,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        _T.BOOLEAN,
        "true",
        "Whether a partition asks the coordinator before it takes transactional records.",
        dynamic=True,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _T.INT,
        "10000",
        "Time between looks for transactions past their timeout.",
        low=1,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _T.INT,
        "3600000",
        "Time between looks for expired transactional ids.",
        low=1,
    ),
)

BROKER_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in sorted(
        (*NETWORK_KEYS, *_CLUSTER, *_GROUPS, *_TRANSACTIONS, *OWN, *_TOPIC_DEFAULTS),
        key=lambda key: key.name,
    )
}

GROUP_KEYS: dict[str, ConfigKey] = {
    name.removeprefix("group."): ConfigKey(
        name=name.removeprefix("group."),
        type=BROKER_KEYS[name].type,
        default=BROKER_KEYS[name].default,
        documentation=BROKER_KEYS[name].documentation,
        low=BROKER_KEYS[name].low,
        high=LONG_MAX,
    )
    for name in (
        "group.consumer.assignment.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms",
    )
}
"""Settings of one consumer group (KIP-848), between the broker's minimum and maximum."""
