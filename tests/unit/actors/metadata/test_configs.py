"""Effective settings, computed from the metadata."""

from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.metadata.configs import broker_configs, replica_config, topic_config
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ConfigChanged


def test_a_brokers_own_settings_come_before_those_for_all() -> None:
    image = MetadataImage()
    image.apply_all(
        [
            ConfigChanged(ResourceType.BROKER, "", "log.retention.ms", "1"),
            ConfigChanged(ResourceType.BROKER, "", "producer.id.expiration.ms", "9"),
            ConfigChanged(ResourceType.BROKER, "0", "log.retention.ms", "2"),
            ConfigChanged(ResourceType.BROKER, "0", "leader.replication.throttled.rate", "7"),
            ConfigChanged(ResourceType.TOPIC, "own", "retention.ms", "3"),
        ]
    )
    settings = BrokerSettings({"log.retention.hours": "1"})
    first, second = (broker_configs(image, settings, broker_id) for broker_id in (0, 1))
    everyone = broker_configs(image, settings)
    assert topic_config(image, "t", first)["retention.ms"] == "2"
    assert topic_config(image, "t", second)["retention.ms"] == "1"
    assert topic_config(image, "t", everyone)["retention.ms"] == "1"
    assert topic_config(image, "own", first)["retention.ms"] == "3"
    assert replica_config(image, "own", first)["producer.id.expiration.ms"] == "9"
    assert replica_config(image, "own", first)["leader.replication.throttled.rate"] == "7"
