"""What a topic's configuration demands of a produced batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from raylog.actors.config import BrokerConfigs, BrokerSettings, ResourceType, resolve_topic
from raylog.actors.gateway.interception import Interception, TopicInterceptors
from raylog.actors.interceptors.chain import Chain, encoded
from raylog.actors.metadata.image import Topic
from raylog.actors.ports import TopicId
from raylog.actors.runtime.base import Runtime
from raylog.wire.compression import Codec
from raylog.wire.errors import InvalidTimestamp, MessageTooLarge
from raylog.wire.records import (
    BatchHeader,
    check_record_count,
    check_timestamps,
    reencode,
    refuse_records,
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
_LEVEL_KEYS = {
    Codec.GZIP: ("compression.gzip.level", "-1"),
    Codec.LZ4: ("compression.lz4.level", "9"),
    Codec.ZSTD: ("compression.zstd.level", "3"),
}
"""Each codec's key, and the value that stands for the codec's own default."""
LIGHT_RECORDS_MAX = 500
LIGHT_BYTES_MAX = 64 << 10
"""A batch within both is walked or compressed anew in about a millisecond."""
LIGHT_COMPRESSED_BYTES_MAX = 1 << 10
"""Of a compressed batch: it may hold a thousand times as much."""
_ANY_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicRules:
    """One topic's demands, resolved."""

    max_message_bytes: int
    """Of a batch, as it arrives and as it is stored."""
    before_max_ms: int
    after_max_ms: int
    create_time: bool
    codec: Codec | None
    """None: the producer's own."""
    level: int | None
    """Of the codec; None is its default."""
    compacted: bool
    interceptors: TopicInterceptors | None
    keeps_bytes: bool
    """Whether batches are stored as they come, so that a look at them is all it takes."""

    def is_light(self, header: BatchHeader) -> bool:
        """Whether `admit` is quick enough for the event loop."""
        if self.keeps_bytes:
            return True
        if self.interceptors is not None:
            return False
        if self.codec is not None and self.codec != header.codec:
            return header.size <= LIGHT_COMPRESSED_BYTES_MAX
        bytes_max = LIGHT_COMPRESSED_BYTES_MAX if header.codec else LIGHT_BYTES_MAX
        walked = self.compacted and header.record_count > LIGHT_RECORDS_MAX
        return not walked and (not self.compacted or header.size <= bytes_max)

    def admit(self, batch: memoryview, header: BatchHeader, now_ms: int) -> memoryview:
        """Check a produced batch; returns it as it is to be stored.

        Raises MessageTooLarge, InvalidTimestamp, InvalidRecord. Interceptors are not called.
        """
        self._check_size(header.size)
        earliest, latest = self._times(now_ms)
        if self.compacted:
            validate_records(batch, header, needs_keys=True, earliest_ms=earliest, latest_ms=latest)
        else:
            check_record_count(batch, header)
            self._check_times(batch, header, earliest, latest)
        if self.codec is None or self.codec == header.codec:
            return batch
        return self._stored(reencode(batch, self.codec, self.level))

    async def admit_aside(
        self, runtime: Runtime, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> memoryview:
        """The same beside the event loop, interceptors included. Raises InterceptorFailed too."""
        if self.interceptors is None:
            if self.is_light(header):
                return self.admit(batch, header, now_ms)
            return await runtime.run_blocking(self.admit, batch, header, now_ms)
        self._check_size(header.size)
        return await self.interceptors.run(partial(self._intercepted, batch, header, now_ms))

    def _intercepted(
        self, batch: memoryview, header: BatchHeader, now_ms: int, chain: Chain
    ) -> memoryview:
        records, changed = chain.produced(batch, header)
        earliest, latest = self._times(now_ms)
        refuse_records(records, needs_keys=self.compacted, earliest_ms=earliest, latest_ms=latest)
        codec = header.codec if self.codec is None else self.codec
        if not changed and codec == header.codec:
            return batch
        return self._stored(encoded(header.with_codec(codec), records, self.level))

    def _stored(self, batch: bytes) -> memoryview:
        """Writable, since the replica patches offsets in; MESSAGE_TOO_LARGE if it has grown so."""
        self._check_size(len(batch))
        return memoryview(bytearray(batch))

    def _check_size(self, size: int) -> None:
        if size > self.max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {size} bytes: at most {self.max_message_bytes} "
                "are allowed (max.message.bytes)"
            )

    def _times(self, now_ms: int) -> tuple[int, int]:
        """Earliest and latest time a record may have."""
        if self.create_time:
            return now_ms - self.before_max_ms, now_ms + self.after_max_ms
        return -_ANY_TIME, _ANY_TIME

    def _check_times(
        self, batch: memoryview, header: BatchHeader, earliest: int, latest: int
    ) -> None:
        """Look at the header; only to name the records that are wrong, if few, at each of them."""
        try:
            check_timestamps(header, earliest, latest)
        except InvalidTimestamp:
            is_small = header.size <= LIGHT_BYTES_MAX and not header.codec
            if is_small and header.record_count <= LIGHT_RECORDS_MAX:
                validate_records(
                    batch, header, needs_keys=False, earliest_ms=earliest, latest_ms=latest
                )
            raise


def rules_of(config: dict[str, str], interceptors: TopicInterceptors | None = None) -> TopicRules:
    """The rules of a resolved topic configuration."""
    codec = _CODECS.get(config["compression.type"])
    compacted = "compact" in config["cleanup.policy"]
    return TopicRules(
        max_message_bytes=int(config["max.message.bytes"]),
        before_max_ms=int(config["message.timestamp.before.max.ms"]),
        after_max_ms=int(config["message.timestamp.after.max.ms"]),
        create_time=config["message.timestamp.type"] == "CreateTime",
        codec=codec,
        level=_level_of(codec, config),
        compacted=compacted,
        interceptors=interceptors,
        keeps_bytes=codec is None and not compacted and interceptors is None,
    )


def _level_of(codec: Codec | None, config: dict[str, str]) -> int | None:
    if codec not in _LEVEL_KEYS:
        return None
    key, default = _LEVEL_KEYS[codec]
    return None if config[key] == default else int(config[key])


class TopicRulesCache:
    """Rules by topic, resolved once for each version of the metadata's configurations."""

    def __init__(self, runtime: Runtime, cluster: ClusterView, settings: BrokerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._interception = Interception(runtime, settings)
        self._rules: dict[TopicId, TopicRules] = {}
        self._version = -1

    def of(self, topic: Topic) -> TopicRules:
        """The rules of a topic."""
        if self._cluster.configs_version != self._version:
            self._rules.clear()
            self._version = self._cluster.configs_version
            self._interception.retain(self._cluster.image.topics)
        rules = self._rules.get(topic.topic_id)
        if rules is None:
            own = self._cluster.image.configs_of(ResourceType.TOPIC, topic.name)
            config = resolve_topic(own, self.layers())
            interceptors = self._interception.of(topic.topic_id, topic.name, config)
            rules = rules_of(config, interceptors)
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
