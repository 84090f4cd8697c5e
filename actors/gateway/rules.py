"""What a topic's configuration demands of a produced batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.actors.config import BrokerConfigs, BrokerSettings, ResourceType, resolve_topic
from raylog.actors.metadata.image import Topic
from raylog.actors.ports import TopicId
from raylog.wire.compression import Codec
from raylog.wire.errors import MessageTooLarge
from raylog.wire.records import (
    BatchHeader,
    check_record_count,
    check_timestamps,
    reencode,
    validate_records,
)

if TYPE_CHECKING:
    from raylog.actors.gateway.cluster import ClusterView

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class TopicRules:
    """One topic's demands, resolved."""

    max_message_bytes: int
    """Of a batch, as it is stored."""
    before_max_ms: int
    after_max_ms: int
    create_time: bool
    codec: Codec | None
    """None: the producer's own."""
    compacted: bool

    def admit(self, batch: memoryview, header: BatchHeader, now_ms: int) -> memoryview:
        """Check a produced batch; returns it as it is to be stored.

        Raises MessageTooLarge, InvalidTimestamp, InvalidRecord.
        """
        if header.size > self.max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {header.size} bytes: at most {self.max_message_bytes} "
                "are allowed (max.message.bytes)"
            )
        earliest, latest = now_ms - self.before_max_ms, now_ms + self.after_max_ms
        if self.create_time:
            check_timestamps(header, earliest, latest)
        if self.compacted:
            validate_records(batch, header, needs_keys=True, earliest_ms=earliest, latest_ms=latest)
        else:
            check_record_count(batch, header)
        if self.codec is not None and self.codec != header.codec:
            return memoryview(bytearray(reencode(batch, self.codec)))
        return batch


def rules_of(config: dict[str, str]) -> TopicRules:
    """The rules of a resolved topic configuration."""
    return TopicRules(
        max_message_bytes=int(config["max.message.bytes"]),
        before_max_ms=int(config["message.timestamp.before.max.ms"]),
        after_max_ms=int(config["message.timestamp.after.max.ms"]),
        create_time=config["message.timestamp.type"] == "CreateTime",
        codec=_CODECS.get(config["compression.type"]),
        compacted="compact" in config["cleanup.policy"],
    )


class TopicRulesCache:
    """Rules by topic, resolved once for each version of the metadata's configurations."""

    def __init__(self, cluster: ClusterView, settings: BrokerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._rules: dict[TopicId, TopicRules] = {}
        self._version = -1

    def of(self, topic: Topic) -> TopicRules:
        """The rules of a topic."""
        if self._cluster.configs_version != self._version:
            self._rules.clear()
            self._version = self._cluster.configs_version
        rules = self._rules.get(topic.topic_id)
        if rules is None:
            own = self._cluster.image.configs_of(ResourceType.TOPIC, topic.name)
            rules = rules_of(resolve_topic(own, self.layers()))
            self._rules[topic.topic_id] = rules
        return rules

    def layers(self) -> BrokerConfigs:
        """The configuration layers under a topic's own, as this broker has them."""
        image = self._cluster.image
        return BrokerConfigs(
            self._settings,
            image.configs_of(ResourceType.BROKER, str(self._cluster.broker_id)),
            image.configs_of(ResourceType.BROKER, ""),
        )
