"""Checks produced batches against the topic's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from raylog.actors.common_messages import TopicId
from raylog.actors.config import BrokerConfigs, BrokerSettings, ResourceType, resolve_topic
from raylog.actors.gateway.interception import Interception, TopicInterceptors
from raylog.actors.interceptors.chain import Chain, encoded
from raylog.actors.metadata.image import Topic
from raylog.actors.runtime.base import Runtime
from raylog.wire.compression import LEVELS, Codec
from raylog.wire.errors import MessageTooLarge
from raylog.wire.records import (
    ANY_TIME,
    DECOMPRESSED_BYTES_MAX,
    TIMESTAMP_MAX,
    BatchHeader,
    Validated,
    compressed,
    refuse_records,
    set_max_timestamp,
    validate_records,
)
from raylog.wire.walk import Patience

if TYPE_CHECKING:
    from raylog.actors.gateway.cluster import ClusterView

_CODECS = {codec.label if codec else "uncompressed": codec for codec in Codec}
_LEVEL_KEYS = {
    codec: (f"compression.{codec.label}.level", str(levels.default))
    for codec, levels in LEVELS.items()
}
"""Each codec's setting, and the value that means the codec's own default."""
LIGHT_RECORDS_MAX = 1_000
"""Walking this many records one by one, or refusing them by name, takes less than a millisecond."""
LIGHT_REQUEST_RECORDS_MAX = 20_000
"""The same limit for all batches of one request."""
LIGHT_BODY_BYTES_MAX = 256 << 10
"""Decompressing this much takes half a millisecond; copying or walking it takes less."""
_BYTES_A_RECORD = 512
"""Decompressing this many bytes takes as long as checking one record."""
LIGHT_COMPRESSING_BYTES_MAX = 1 << 10
"""Limit for a batch that must be recompressed; it may hold a thousand times as much."""
LARGE_BODY_BYTES = 4 << 20
"""Larger decompressed batches are handled one at a time, to bound the memory for bombs."""
_one_large = Lock()


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The resolved rules of one topic."""

    max_message_bytes: int
    """Limit for a batch, both as received and as stored."""
    before_max_ms: int
    after_max_ms: int
    create_time: bool
    codec: Codec | None
    """None keeps the producer's codec."""
    level: int | None
    """Compression level; None means the codec's default."""
    compacted: bool
    interceptors: TopicInterceptors | None

    def admit_at_once(
        self, batch: memoryview, header: BatchHeader, now_ms: int, patience: Patience
    ) -> memoryview | None:
        """Check a produced batch if that is quick; return it as it will be stored.

        Returns None if the check must be done in a thread (`admit_aside`). `patience` limits the
        work for the whole request. A wrong maximum timestamp is patched in place. Raises
        MessageTooLarge, InvalidTimestamp, InvalidRecord.
        """
        self._check_size(header.size)
        compresses = self.codec not in (None, Codec.NONE, header.codec)
        if self.interceptors is not None or (
            compresses and header.size > LIGHT_COMPRESSING_BYTES_MAX
        ):
            return None
        if patience.left <= 0:
            return None
        bytes_max = LIGHT_BODY_BYTES_MAX if header.codec else header.size
        given = min(LIGHT_RECORDS_MAX, patience.left)
        light = Patience(given)
        found = None
        try:
            found = self._validated(batch, header, now_ms, bytes_max, light)
        except MessageTooLarge:
            return None
        finally:
            body_bytes = bytes_max if found is None else len(found.body)
            patience.left -= given - max(light.left, 0)
            patience.left -= body_bytes // _BYTES_A_RECORD if header.codec else 0
        return None if found is None else self._stored(batch, header, found)

    async def admit_aside(
        self,
        runtime: Runtime,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        takes_long: bool,
    ) -> memoryview:
        """Check a batch however long that takes, with interceptors; also raises InterceptorFailed.

        `takes_long` means that `admit_at_once` has deferred the batch to this method.
        """
        if not takes_long:
            admitted = self.admit_at_once(batch, header, now_ms, Patience(LIGHT_RECORDS_MAX))
            if admitted is not None:
                return admitted
        if self.interceptors is not None:
            return await self.interceptors.run(partial(self._intercepted, batch, header, now_ms))
        return await runtime.run_blocking(
            lambda: self._stored(batch, header, self._walked(batch, header, now_ms))
        )

    def _intercepted(
        self, batch: memoryview, header: BatchHeader, now_ms: int, chain: Chain
    ) -> memoryview:
        found = self._walked(batch, header, None)
        records, changed = chain.produced(batch, header)
        earliest, latest = self._times(now_ms)
        refuse_records(records, needs_keys=self.compacted, earliest_ms=earliest, latest_ms=latest)
        if not changed:
            return self._stored(batch, header, found)
        codec = header.codec if self.codec is None else self.codec
        right = header.with_codec(codec)._replace(max_timestamp=found.max_timestamp)
        return self._fitting(encoded(right, records, self.level))

    def _walked(self, batch: memoryview, header: BatchHeader, now_ms: int | None) -> Validated:
        """Walk all records; without a time, check only what holds for all topics."""
        if not header.codec:
            found = self._validated(batch, header, now_ms, header.size)
        else:
            try:
                found = self._validated(batch, header, now_ms, LARGE_BODY_BYTES)
            except MessageTooLarge:
                with _one_large:
                    found = self._validated(batch, header, now_ms, DECOMPRESSED_BYTES_MAX)
        assert found is not None, "patience has no end here"
        return found

    def _validated(
        self,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int | None,
        bytes_max: int,
        patience: Patience | None = None,
    ) -> Validated | None:
        if now_ms is None:
            return validate_records(batch, header, max_bytes=bytes_max, patience=patience)
        earliest, latest = self._times(now_ms)
        return validate_records(
            batch,
            header,
            needs_keys=self.compacted,
            earliest_ms=earliest,
            latest_ms=latest,
            max_bytes=bytes_max,
            patience=patience,
        )

    def _stored(self, batch: memoryview, header: BatchHeader, found: Validated) -> memoryview:
        """Return a batch as it will be stored, given the records found in it."""
        differs = self.create_time and header.max_timestamp != found.max_timestamp
        if self.codec is None or self.codec == header.codec:
            if differs:
                set_max_timestamp(batch, found.max_timestamp)
            return batch
        if differs:
            header = header._replace(max_timestamp=found.max_timestamp)
        return self._fitting(compressed(header, found.body, self.codec, self.level))

    def _fitting(self, batch: bytes) -> memoryview:
        """Return a writable copy, since the replica patches offsets; raises MessageTooLarge."""
        self._check_size(len(batch))
        return memoryview(bytearray(batch))

    def _check_size(self, size: int) -> None:
        if size > self.max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {size} bytes: at most {self.max_message_bytes} "
                "are allowed (max.message.bytes)"
            )

    def _times(self, now_ms: int) -> tuple[int, int]:
        """Return the earliest and the latest timestamp that a record may have."""
        if self.create_time:
            return now_ms - self.before_max_ms, min(now_ms + self.after_max_ms, TIMESTAMP_MAX)
        return -ANY_TIME, ANY_TIME  # it gets the time of the append


def rules_of(config: dict[str, str], interceptors: TopicInterceptors | None = None) -> TopicRules:
    """Build the rules of a resolved topic configuration."""
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
    )


def _level_of(codec: Codec | None, config: dict[str, str]) -> int | None:
    if codec not in _LEVEL_KEYS:
        return None
    key, default = _LEVEL_KEYS[codec]
    return None if config[key] == default else int(config[key])


class TopicRulesCache:
    """Rules by topic, resolved once for each version of the settings."""

    def __init__(self, runtime: Runtime, cluster: ClusterView, settings: BrokerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._interception = Interception(runtime, settings)
        self._rules: dict[TopicId, TopicRules] = {}
        self._version = -1

    def of(self, topic: Topic) -> TopicRules:
        """Return the rules of a topic."""
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
        """Return the configuration layers below a topic's own settings, as this broker has them."""
        image = self._cluster.image
        return BrokerConfigs(
            self._settings,
            image.configs_of(ResourceType.BROKER, str(self._cluster.broker_id)),
            image.configs_of(ResourceType.BROKER, ""),
        )
