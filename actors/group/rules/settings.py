"""A broker's settings for groups, parsed once."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.config import ResourceType, setting
from raylog.actors.metadata.image import MetadataImage

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's group.* and offsets.* settings; times in ms, sizes in bytes or members."""

    initial_rebalance_delay_ms: int = setting("group.initial.rebalance.delay.ms")
    session_timeout_min_ms: int = setting("group.min.session.timeout.ms")
    session_timeout_max_ms: int = setting("group.max.session.timeout.ms")
    """Limits for the session timeout that a classic member requests."""
    size_max: int = setting("group.max.size")
    """Maximum number of members of a classic group."""
    protocols: tuple[str, ...] = setting("group.coordinator.rebalance.protocols")
    """The group protocols that are served."""
    consumer_session_timeout_ms: int = setting("group.consumer.session.timeout.ms")
    consumer_heartbeat_interval_ms: int = setting("group.consumer.heartbeat.interval.ms")
    consumer_assignment_interval_ms: int = setting("group.consumer.assignment.interval.ms")
    """Minimum time between two assignments of a group; members that join meanwhile share one."""
    consumer_size_max: int = setting("group.consumer.max.size")
    consumer_assignors: tuple[str, ...] = setting("group.consumer.assignors")
    """Server-side assignors; the first is the default."""
    consumer_migration_policy: str = setting("group.consumer.migration.policy")
    """"disabled", "upgrade", "downgrade" or "bidirectional"."""
    offset_metadata_bytes_max: int = setting("offset.metadata.max.bytes")
    offsets_retention_ms: int = setting("offsets.retention.minutes", _MINUTE_MS)
    offsets_retention_check_interval_ms: int = setting("offsets.retention.check.interval.ms")
    offsets_commit_timeout_ms: int = setting("offsets.commit.timeout.ms")
    """Time limit for one append to the log."""

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group is converted when a KIP-848 member joins."""
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group is converted to classic when its last KIP-848 member leaves."""
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

    def session_timeout_ms_of(self, image: MetadataImage, group_id: str) -> int:
        """Return the session timeout of this consumer group's members."""
        key = "consumer.session.timeout.ms"
        return _own(image, group_id, key, self.consumer_session_timeout_ms)

    def heartbeat_interval_ms_of(self, image: MetadataImage, group_id: str) -> int:
        """Return the heartbeat interval that members of this consumer group must use."""
        key = "consumer.heartbeat.interval.ms"
        return _own(image, group_id, key, self.consumer_heartbeat_interval_ms)

    def assignment_interval_ms_of(self, image: MetadataImage, group_id: str) -> int:
        """Return the minimum time between two assignments of this consumer group."""
        key = "consumer.assignment.interval.ms"
        return _own(image, group_id, key, self.consumer_assignment_interval_ms)


def _own(image: MetadataImage, group_id: str, key: str, default: int) -> int:
    """Return the group's own setting, or else the broker's."""
    return int(image.configs_of(ResourceType.GROUP, group_id).get(key, default))
