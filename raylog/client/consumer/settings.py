"""A consumer's settings, and Kafka's names for them."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from raylog.client.errors import InvalidSetting
from raylog.client.setting_types import (
    BOOLEAN,
    NAMES,
    OPTIONAL_TEXT,
    RESET,
    TEXT,
    Setting,
    choice,
    integer,
    mapped,
    milliseconds,
    size,
)
from raylog.client.settings import require_choice, require_order
from raylog.client.values import Values

_ASSIGNORS = ("range", "cooperative-sticky")
_log = logging.getLogger("raylog.client")
_DURATION = r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConsumerSettings(Values):
    """How records are fetched, and how the consumer behaves in its group."""

    group_id: str | None = None
    """The group that the consumer joins, and whose offsets it commits."""
    read_committed: bool = False
    """Withhold records of open transactions and leave out those of aborted ones (KIP-98)."""
    max_wait_ms: int = 500
    """How long a broker may hold a fetch for which it has less than `min_bytes`."""
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    """Limit of one fetch; a first batch that is larger comes whole."""
    partition_max_bytes: int = 4 * 1024 * 1024
    reset: str = "earliest"
    """Where to restart without a position in the log: "earliest", "latest", "by_duration:PT1H30M"
    for that long ago (KIP-1106), or "none": raise."""
    decompressed_bytes_max: int = 256 * 1024 * 1024
    """Limit of one batch."""
    group_instance_id: str | None = None
    """Makes it a static member, which may be away for `session_timeout_ms` without a rebalance
    (KIP-345)."""
    group_protocol: str = "classic"
    """"classic", or "consumer": the coordinator assigns (KIP-848)."""
    group_remote_assignor: str | None = None
    """With group_protocol "consumer": the coordinator's assignor, such as "uniform" or "range"."""
    partition_assignment_strategy: tuple[str, ...] = _ASSIGNORS
    """Assignors by name in order of preference; with group_protocol "classic"."""
    session_timeout_ms: int = 45_000
    """A member is removed from its group after this long without a heartbeat."""
    heartbeat_interval_ms: int = 3_000
    """Must be less than `session_timeout_ms`, and should be at most a third of it."""
    max_poll_interval_ms: int = 300_000
    """A consumer that does not poll for this long leaves its group."""
    max_poll_records: int = 500
    """How many records one poll returns at most."""
    enable_auto_commit: bool = True
    """Commit what earlier polls returned; only with a group and `subscribe`."""
    auto_commit_interval_ms: int = 5_000
    client_rack: str = ""
    """The consumer's location: brokers may name a nearer replica to read from (KIP-392)."""
    check_crcs: bool = True
    """Verify the checksum of each batch that is read."""
    allow_auto_create_topics: bool = True
    """Let brokers create topics that are subscribed to and do not exist."""
    exclude_internal_topics: bool = True
    """Never match internal topics such as __consumer_offsets with a pattern."""
    prefetch_bytes: int = 64 * 1024 * 1024
    """Limit of records fetched ahead of `poll`, for all partitions together."""
    interceptors: tuple[str, ...] = ()
    """Names of interceptors that installed packages provide."""

    def __post_init__(self) -> None:
        if _duration_ms(self.reset) is None:
            require_choice(self, "reset", ("earliest", "latest", "none"))
        require_choice(self, "group_protocol", ("classic", "consumer"))
        require_order(self, "min_bytes", "max_bytes")
        if self.max_poll_records < 1:
            raise InvalidSetting(
                f"expected max_poll_records of 1 or more, found {self.max_poll_records}"
            )
        self._check_heartbeats()
        self._check_protocol()
        if self.group_instance_id is not None and self.group_id is None:
            raise InvalidSetting("group_instance_id needs a group_id, found none")

    @property
    def reset_duration_ms(self) -> int:
        """The duration in `reset`; 0 if it has none."""
        return _duration_ms(self.reset) or 0

    def _check_heartbeats(self) -> None:
        """Check the heartbeat settings, which only the classic protocol uses."""
        heartbeat_ms, session_ms = self.heartbeat_interval_ms, self.session_timeout_ms
        if not 0 < heartbeat_ms < session_ms:
            raise InvalidSetting(
                f"expected heartbeat_interval_ms between 0 and session_timeout_ms={session_ms}, "
                f"found {heartbeat_ms}"
            )
        if 3 * heartbeat_ms > session_ms:
            _log.warning(
                "heartbeat_interval_ms=%d is more than a third of session_timeout_ms=%d: "
                "two lost heartbeats cost the membership",
                heartbeat_ms,
                session_ms,
            )

    def _check_protocol(self) -> None:
        """Refuse settings of one group protocol with the other."""
        if self.group_protocol == "classic":
            if self.group_remote_assignor is not None:
                raise InvalidSetting(
                    "group_remote_assignor needs group_protocol='consumer', found 'classic'"
                )
            if not self.partition_assignment_strategy:
                raise InvalidSetting("expected an assignor or more, found none")
        elif self.partition_assignment_strategy != _ASSIGNORS:
            raise InvalidSetting(
                "partition_assignment_strategy needs group_protocol='classic', found 'consumer': "
                "name the coordinator's assignor by group_remote_assignor"
            )


def _duration_ms(text: str) -> int | None:
    """Parse "by_duration:P1DT2H3M4.5S" (ISO 8601, days and smaller); None if invalid."""
    found = re.fullmatch(_DURATION, text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int(1_000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days))))


_JAVA_ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def _assignors(names: object) -> tuple[str, ...]:
    """Convert assignor names; Java's class names are accepted."""
    assert isinstance(names, tuple), "NAMES reads a tuple"
    return tuple(_JAVA_ASSIGNORS.get(name, str(name)) for name in names)


CONSUMER = (
    Setting("group.id", "group_id", OPTIONAL_TEXT, "Consumer group of this consumer."),
    Setting(
        "group.instance.id",
        "group_instance_id",
        OPTIONAL_TEXT,
        "Makes this a static member: it can be away for session.timeout.ms without a rebalance.",
    ),
    Setting(
        "group.protocol",
        "group_protocol",
        choice({"classic": "classic", "consumer": "consumer"}),
        "Who assigns partitions: a member (classic) or the coordinator (consumer, KIP-848).",
    ),
    Setting(
        "group.remote.assignor",
        "group_remote_assignor",
        OPTIONAL_TEXT,
        "Assignor that the coordinator uses, such as uniform or range. Only with "
        "group.protocol=consumer.",
    ),
    Setting(
        "partition.assignment.strategy",
        "partition_assignment_strategy",
        mapped(NAMES, _assignors),
        "Assignors in order of preference, by name or Java class. Only with "
        "group.protocol=classic.",
    ),
    Setting(
        "session.timeout.ms",
        "session_timeout_ms",
        milliseconds(1),
        "A member that sends no heartbeat for this time is removed from its group.",
    ),
    Setting(
        "heartbeat.interval.ms",
        "heartbeat_interval_ms",
        milliseconds(1),
        "Time between heartbeats. Must be less than session.timeout.ms, and should be at most "
        "a third of it.",
    ),
    Setting(
        "max.poll.interval.ms",
        "max_poll_interval_ms",
        milliseconds(1),
        "A consumer that does not poll for this time leaves its group.",
    ),
    Setting(
        "max.poll.records",
        "max_poll_records",
        integer(1),
        "Most records that one poll returns.",
    ),
    Setting(
        "enable.auto.commit",
        "enable_auto_commit",
        BOOLEAN,
        "Commit the offsets of records returned by earlier polls. Needs group.id and subscribe.",
    ),
    Setting(
        "auto.commit.interval.ms",
        "auto_commit_interval_ms",
        milliseconds(),
        "Time between automatic commits.",
    ),
    Setting(
        "auto.offset.reset",
        "reset",
        RESET,
        "Where to start without a committed offset, or if it is no longer in the log. none: raise "
        "an error. by_duration:PT1H: one hour ago.",
        "latest",
    ),
    Setting(
        "isolation.level",
        "read_committed",
        choice({"read_uncommitted": False, "read_committed": True}),
        "read_committed: return only records of committed transactions, and those outside "
        "transactions.",
    ),
    Setting(
        "fetch.max.wait.ms",
        "max_wait_ms",
        milliseconds(),
        "Longest time that a broker waits for fetch.min.bytes before it answers a fetch.",
    ),
    Setting(
        "fetch.min.bytes",
        "min_bytes",
        integer(),
        "Bytes that a broker collects before it answers a fetch, within fetch.max.wait.ms.",
    ),
    Setting(
        "fetch.max.bytes",
        "max_bytes",
        integer(),
        "Most bytes in the answer to a fetch. A larger first batch is still returned whole.",
        "52428800",
    ),
    Setting(
        "max.partition.fetch.bytes",
        "partition_max_bytes",
        integer(),
        "Most bytes of one partition in the answer to a fetch.",
        "1048576",
    ),
    Setting(
        "client.rack",
        "client_rack",
        TEXT,
        "Rack of this consumer. Brokers can tell it to read from a replica in the same rack.",
    ),
    Setting("check.crcs", "check_crcs", BOOLEAN, "Verify the checksum of each batch."),
    Setting(
        "allow.auto.create.topics",
        "allow_auto_create_topics",
        BOOLEAN,
        "Let brokers create missing topics that the consumer subscribes to.",
    ),
    Setting(
        "exclude.internal.topics",
        "exclude_internal_topics",
        BOOLEAN,
        "Patterns do not match internal topics such as __consumer_offsets.",
    ),
    Setting(
        "fetch.prefetch.bytes",
        "prefetch_bytes",
        size(1),
        "Most bytes fetched ahead of poll, over all partitions. Not a setting of Kafka.",
    ),
    Setting(
        "fetch.decompressed.max.bytes",
        "decompressed_bytes_max",
        size(1),
        "Largest size of one batch after decompression. Not a setting of Kafka.",
    ),
    Setting(
        "interceptor.classes",
        "interceptors",
        NAMES,
        "Names of interceptors that installed packages have registered.",
    ),
)
