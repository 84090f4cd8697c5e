"""Settings in force: a broker's start-up settings under the dynamic ones of the metadata."""

from __future__ import annotations

from raylog.actors.config import BrokerConfigs, BrokerSettings, ResourceType, resolve_topic
from raylog.actors.metadata.image import MetadataImage


def broker_configs(
    image: MetadataImage, settings: BrokerSettings, broker_id: int | None = None
) -> BrokerConfigs:
    """The layers of a broker's settings; without a broker id only the cluster-wide ones."""
    own = {} if broker_id is None else image.configs_of(ResourceType.BROKER, str(broker_id))
    return BrokerConfigs(settings, own, image.configs_of(ResourceType.BROKER, ""))


def topic_config(image: MetadataImage, name: str, broker: BrokerConfigs) -> dict[str, str]:
    """Every topic key with the value in force for a topic."""
    return resolve_topic(image.configs_of(ResourceType.TOPIC, name), broker)


def replica_config(image: MetadataImage, name: str, broker: BrokerConfigs) -> dict[str, str]:
    """What a partition replica of a topic obeys: its topic keys, and broker keys its log needs."""
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
