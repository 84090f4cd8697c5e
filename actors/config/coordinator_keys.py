"""Broker keys of group coordinators and transaction coordinators."""

from __future__ import annotations

from functools import partial

from raylog.actors.config.keys import INT_MAX, ConfigKey, ConfigType, ResourceType

_T = ConfigType
_broker = partial(ConfigKey, ResourceType.BROKER)

COORDINATOR_KEYS = (
    _broker(
        "group.initial.rebalance.delay.ms",
        _T.INT,
        "3000",
        "How long the coordinator waits for more members to join a new classic group before the "
        "first rebalance.",
        low=0,
        reader="group.rules.settings",
    ),
    _broker(
        "group.min.session.timeout.ms",
        _T.INT,
        "6000",
        "Minimum session timeout that a member of a classic group may request.",
        reader="group.rules.settings",
    ),
    _broker(
        "group.max.session.timeout.ms",
        _T.INT,
        "1800000",
        "Maximum session timeout that a member of a classic group may request.",
        reader="group.rules.settings",
    ),
    _broker(
        "group.max.size",
        _T.INT,
        str(INT_MAX),
        "Maximum number of members in a classic group.",
        low=1,
        reader="group.rules.settings",
    ),
    _broker(
        "group.coordinator.rebalance.protocols",
        _T.LIST,
        "classic,consumer",
        "The group protocols that coordinators accept: classic, consumer (KIP-848).",
        choices=("classic", "consumer"),
        reader="group.rules.settings",
    ),
    _broker(
        "group.consumer.session.timeout.ms",
        _T.INT,
        "45000",
        "A member of a consumer group that sends no heartbeat for this time is removed from the "
        "group (KIP-848).",
        low=1,
        reader="group.rules.settings",
    ),
    _broker(
        "group.consumer.min.session.timeout.ms",
        _T.INT,
        "45000",
        "Lower bound of group.consumer.session.timeout.ms, and of a group's own value.",
        low=1,
        reader="controller.rules.configs",
    ),
    _broker(
        "group.consumer.max.session.timeout.ms",
        _T.INT,
        "60000",
        "Upper bound of group.consumer.session.timeout.ms, and of a group's own value.",
        low=1,
        reader="controller.rules.configs",
    ),
    _broker(
        "group.consumer.heartbeat.interval.ms",
        _T.INT,
        "5000",
        "Time between heartbeats that the coordinator sets for members of consumer groups "
        "(KIP-848).",
        low=1,
        reader="group.rules.settings",
    ),
    _broker(
        "group.consumer.min.heartbeat.interval.ms",
        _T.INT,
        "5000",
        "Lower bound of group.consumer.heartbeat.interval.ms, and of a group's own value.",
        low=1,
        reader="controller.rules.configs",
    ),
    _broker(
        "group.consumer.max.heartbeat.interval.ms",
        _T.INT,
        "15000",
        "Upper bound of group.consumer.heartbeat.interval.ms, and of a group's own value.",
        low=1,
        reader="controller.rules.configs",
    ),
    _broker(
        "group.consumer.assignment.interval.ms",
        _T.INT,
        "1000",
        "Least time between two assignments of a consumer group. Members that join in the meantime "
        "are assigned together.",
        low=0,
        reader="group.rules.settings",
    ),
    _broker(
        "group.consumer.min.assignment.interval.ms",
        _T.INT,
        "0",
        "Lower bound of group.consumer.assignment.interval.ms, and of a group's own value.",
        low=0,
        reader="controller.rules.configs",
    ),
    _broker(
        "group.consumer.max.assignment.interval.ms",
        _T.INT,
        "15000",
        "Upper bound of group.consumer.assignment.interval.ms, and of a group's own value.",
        low=0,
        reader="controller.rules.configs",
    ),
    _broker(
        "group.consumer.max.size",
        _T.INT,
        str(INT_MAX),
        "Maximum number of members in a consumer group.",
        low=1,
        reader="group.rules.settings",
    ),
    _broker(
        "group.consumer.assignors",
        _T.LIST,
        "uniform,range",
        "Names of the server-side assignors of consumer groups. The first one is the default.",
        reader="group.rules.settings",
    ),
    _broker(
        "group.consumer.migration.policy",
        _T.STRING,
        "bidirectional",
        "Which groups are converted when members of the other protocol join or leave: upgrade "
        "(classic to consumer), downgrade (consumer to classic), bidirectional (both) or disabled.",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        any_case=True,
        reader="group.rules.settings",
    ),
    _broker(
        "offsets.topic.num.partitions",
        _T.INT,
        "50",
        "Number of partitions of __consumer_offsets.",
        low=1,
        reader="controller.rules.internal_topics",
    ),
    _broker(
        "offsets.topic.replication.factor",
        _T.SHORT,
        "3",
        "Replication factor of __consumer_offsets. A cluster with fewer brokers starts with one "
        "replica per broker, and adds the others later.",
        low=1,
        reader="controller.rules.internal_topics",
    ),
    _broker(
        "offsets.topic.segment.bytes",
        _T.INT,
        "104857600",
        "Segment size of __consumer_offsets.",
        low=1,
        reader="controller.rules.internal_topics",
    ),
    _broker(
        "offsets.retention.minutes",
        _T.INT,
        "10080",
        "How long a committed offset is kept after the commit or, if that was later, after the "
        "group lost its last member. Offsets of topics that members subscribe to do not expire.",
        low=1,
        reader="group.rules.settings",
    ),
    _broker(
        "offsets.retention.check.interval.ms",
        _T.LONG,
        "600000",
        "How often the coordinator checks for expired offsets.",
        low=1,
        reader="group.rules.settings",
    ),
    _broker(
        "offsets.commit.timeout.ms",
        _T.INT,
        "5000",
        "An offset commit fails if __consumer_offsets has not replicated it within this time.",
        low=1,
        reader="group.rules.settings",
    ),
    _broker(
        "offset.metadata.max.bytes",
        _T.INT,
        "4096",
        "Maximum size of the metadata that a client commits with an offset.",
        low=0,
        reader="group.rules.settings",
    ),
    _broker(
        "transaction.state.log.num.partitions",
        _T.INT,
        "50",
        "Number of partitions of __transaction_state.",
        low=1,
        reader="controller.rules.internal_topics",
    ),
    _broker(
        "transaction.state.log.replication.factor",
        _T.SHORT,
        "3",
        "Replication factor of __transaction_state. A cluster with fewer brokers starts with one "
        "replica per broker, and adds the others later.",
        low=1,
        reader="controller.rules.internal_topics",
    ),
    _broker(
        "transaction.state.log.min.isr",
        _T.INT,
        "2",
        "min.insync.replicas of __transaction_state. It is lowered to the number of replicas if "
        "that is smaller.",
        low=1,
        reader="controller.rules.internal_topics",
    ),
    _broker(
        "transaction.state.log.segment.bytes",
        _T.INT,
        "104857600",
        "Segment size of __transaction_state.",
        low=1,
        reader="controller.rules.internal_topics",
    ),
    _broker(
        "transaction.max.timeout.ms",
        _T.INT,
        "900000",
        "Maximum transaction timeout that a producer may request.",
        low=1,
        reader="transaction.rules.settings",
    ),
    _broker(
        "transaction.two.phase.commit.enable",
        _T.BOOLEAN,
        "false",
        "Whether producers may take part in two-phase commits of an external transaction manager "
        "(KIP-939). Their transactions do not time out.",
        reader="transaction.rules.settings",
    ),
    _broker(
        "transactional.id.expiration.ms",
        _T.INT,
        "604800000",
        "A transactional id that has not been used for this time is forgotten, unless its "
        "transaction is open.",
        low=1,
        reader="transaction.rules.settings",
    ),
    _broker(
        "transaction.partition.verification.enable",
        _T.BOOLEAN,
        "true",
        "Whether a partition checks with the coordinator that it was added to the transaction "
        "before it appends transactional records (KIP-890).",
        dynamic=True,
        reader="replica.rules.config",
    ),
    _broker(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _T.INT,
        "10000",
        "How often the coordinator checks for transactions that have exceeded their timeout, and "
        "aborts them.",
        low=1,
        reader="transaction.rules.settings",
    ),
    _broker(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _T.INT,
        "3600000",
        "How often the coordinator removes transactional ids that have expired "
        "(transactional.id.expiration.ms).",
        low=1,
        reader="transaction.rules.settings",
    ),
)
