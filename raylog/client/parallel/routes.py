"""Where a failed record goes: a retry topic or the dead-letter topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raylog.client.cluster import TopicPartition
from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.effects import WindowSettings
from raylog.client.parallel.letters import Origin, letter, origin_of, size_of, value_left_out
from raylog.client.parallel.policy import Failure, FailureTopics
from raylog.wire.record import Record


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a record was run in its cell, and when it first failed, in ms since 1970."""

    count: int
    failed_first_ms: int


class Letter(NamedTuple):
    """The record that is produced in place of a failed one."""

    sent: ProducerRecord
    is_retry: bool
    """Whether it goes to a retry topic rather than to the dead-letter topic."""


class FailureRoutes:
    """Routes a failed record through its topic's retry topics, then to the dead-letter topic."""

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._topics = FailureTopics(settings.group, settings.retry, settings.dead_letter)
        self._levels: dict[str, tuple[str, int]] = {}

    def watch(self, topic: str) -> list[str]:
        """Register a topic's retry topics; return their names."""
        names = self._topics.retry_topics(topic)
        for level, name in enumerate(names, 1):
            self._levels[name] = (topic, level)
        return names

    def is_retry_topic(self, topic: str) -> bool:
        """Return whether it is the retry topic of a watched topic."""
        return topic in self._levels

    def letter(
        self,
        key: TopicPartition,
        record: Record,
        failure: Failure,
        attempts: Attempts,
        wall_ms: int,
    ) -> Letter | None:
        """Build the record for the next topic; None if there is none."""
        settings = self._settings
        source, level = self._levels.get(key.topic, (key.topic, 0))
        delays = settings.retry.topic_delays_ms
        delay_ms: float | None = None
        topic: str | None
        if level < len(delays):
            topic, delay_ms = self._topics.retry_topic(source, level + 1), delays[level]
        else:
            topic = self._topics.dead_letter_topic(source)
        if topic is None:
            return None
        made = letter(
            topic,
            record,
            self._origin(key, record, attempts),
            failure,
            group=settings.group,
            now_ms=wall_ms,
            delay_ms=delay_ms,
        )
        if size_of(made) > settings.record_bytes_max and made.value is not None:
            made = value_left_out(made)
        return Letter(made, is_retry=delay_ms is not None)

    def _origin(self, key: TopicPartition, record: Record, attempts: Attempts) -> Origin:
        """Return a record's origin, with the runs and failures in its cell added."""
        origin = Origin(key.topic, key.partition, record.offset, record.timestamp)
        if self.is_retry_topic(key.topic):
            origin = origin_of(key, record)
        first_ms = origin.first_failure_ms
        return Origin(
            origin.topic,
            origin.partition,
            origin.offset,
            origin.timestamp_ms,
            origin.attempts + attempts.count,
            attempts.failed_first_ms if first_ms is None else first_ms,
        )
