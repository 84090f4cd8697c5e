"""Effective settings: those of the metadata, and below them a broker's start-up settings."""

from __future__ import annotations

from raylog.actors.config import BrokerConfigs, BrokerSettings, ResourceType, resolve_topic
from raylog.actors.metadata.image import MetadataImage


def broker_configs(
    image: MetadataImage, settings: BrokerSettings, broker_id: int | None = None
) -> BrokerConfigs:
    """Return the layers of a broker's settings; without a broker id only the cluster-wide ones."""
    own = {} if broker_id is None else image.configs_of(ResourceType.BROKER, str(broker_id))
    return BrokerConfigs(settings, own, image.configs_of(ResourceType.BROKER, ""))


def topic_config(image: MetadataImage, name: str, broker: BrokerConfigs) -> dict[str, str]:
    """Return the effective value of every topic setting for a topic."""
    return resolve_topic(image.configs_of(ResourceType.TOPIC, name), broker)


def replica_config(image: MetadataImage, name: str, broker: BrokerConfigs) -> dict[str, str]:
    """Return the settings of a topic's replicas: all topic settings, and some of the broker's."""
    config = topic_config(image, name, broker)
    for key in _BROKER_KEYS_OF_REPLICAS:
        config[key] = broker.effective(key) or ""
    return config


_BROKER_KEYS_OF_REPLICAS = (
    "producer.id.expiration.ms",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "transaction.partition.verification.enable",
)
