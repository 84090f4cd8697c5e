"""The topics in which groups and transactions keep their state: made on first use."""

from __future__ import annotations

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import NewTopic
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC


def internal_topic(name: str, settings: BrokerSettings, brokers: int) -> NewTopic:
    """What to ask the controller for, in a cluster that was declared with so many brokers.

    Kafka refuses to make a topic whose replication factor it cannot reach; here it is at most the
    number of brokers, so that small clusters work with Kafka's defaults.
    """
    if name == OFFSETS_TOPIC:
        return _topic(name, settings, "offsets.topic", brokers, {"compression.type": "producer"})
    assert name == TRANSACTIONS_TOPIC, f"{name} is no internal topic"
    replicas = _replicas(settings, "transaction.state.log", brokers)
    in_sync = min(settings.number("transaction.state.log.min.isr"), replicas)
    configs: dict[str, str | None] = {
        "compression.type": "uncompressed",
        "min.insync.replicas": str(in_sync),
        "unclean.leader.election.enable": "false",
    }
    return _topic(name, settings, "transaction.state.log", brokers, configs)


def _topic(
    name: str,
    settings: BrokerSettings,
    prefix: str,
    brokers: int,
    configs: dict[str, str | None],
) -> NewTopic:
    return NewTopic(
        name,
        settings.number(f"{prefix}.num.partitions"),
        _replicas(settings, prefix, brokers),
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": settings.raw(f"{prefix}.segment.bytes"),
            **configs,
        },
    )


def _replicas(settings: BrokerSettings, prefix: str, brokers: int) -> int:
    return min(settings.number(f"{prefix}.replication.factor"), brokers)
