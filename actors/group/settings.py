"""What a broker's configuration says about groups, read once."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.metadata.image import MetadataImage

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's group.* and offsets.* keys; times in ms, sizes in bytes or members."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    """Bounds of what a classic member may ask for."""
    size_max: int = 2**31 - 1
    """Most members of a classic group."""
    protocols: tuple[str, ...] = ("classic", "consumer")
    """Which group protocols are served."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    """Between two assignments of a group: who joins meanwhile is taken together."""
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Server-side assignors; the first is the default."""
    consumer_migration_policy: str = "bidirectional"
    """"disabled", "upgrade", "downgrade" or "bidirectional"."""
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 10_080 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    """Time limit of one append to the log."""

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group becomes a consumer group when such a member joins (KIP-848)."""
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group becomes classic when its last KIP-848 member leaves."""
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

    def session_timeout_ms_of(self, image: MetadataImage, group_id: str) -> int:
        """Silence after which a member of this consumer group is out."""
        own = image.configs_of(ResourceType.GROUP, group_id).get("consumer.session.timeout.ms")
        return self.consumer_session_timeout_ms if own is None else int(own)

    def heartbeat_interval_ms_of(self, image: MetadataImage, group_id: str) -> int:
        """Time between heartbeats that members of this consumer group are told."""
        own = image.configs_of(ResourceType.GROUP, group_id).get("consumer.heartbeat.interval.ms")
        return self.consumer_heartbeat_interval_ms if own is None else int(own)

    def assignment_interval_ms_of(self, image: MetadataImage, group_id: str) -> int:
        """Least time between two assignments of this consumer group."""
        own = image.configs_of(ResourceType.GROUP, group_id).get("consumer.assignment.interval.ms")
        return self.consumer_assignment_interval_ms if own is None else int(own)


def group_settings(settings: BrokerSettings) -> GroupSettings:
    """The settings of a broker that was started with these."""
    number = settings.number
    return GroupSettings(
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        session_timeout_min_ms=number("group.min.session.timeout.ms"),
        session_timeout_max_ms=number("group.max.session.timeout.ms"),
        size_max=number("group.max.size"),
        protocols=settings.items("group.coordinator.rebalance.protocols"),
        consumer_session_timeout_ms=number("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=number("group.consumer.assignment.interval.ms"),
        consumer_size_max=number("group.consumer.max.size"),
        consumer_assignors=settings.items("group.consumer.assignors"),
        consumer_migration_policy=settings.raw("group.consumer.migration.policy")
        or "bidirectional",
        offset_metadata_bytes_max=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * _MINUTE_MS,
        offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
        offsets_commit_timeout_ms=number("offsets.commit.timeout.ms"),
    )
