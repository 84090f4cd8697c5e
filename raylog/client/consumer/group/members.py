"""Creating the membership machine that a consumer's settings ask for."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from raylog.assignors.api import Assignor, PluginError, load
from raylog.client.consumer.group.classic import ClassicMember
from raylog.client.consumer.group.consumer import ConsumerMember
from raylog.client.consumer.group.member_settings import MemberSettings
from raylog.client.consumer.group.shell import Membership
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.errors import InvalidSetting


def load_assignors(settings: ConsumerSettings) -> tuple[Assignor, ...]:
    """Load the assignors in the settings (none for KIP-848); raise InvalidSetting."""
    if settings.group_protocol != "classic":
        return ()
    try:
        return tuple(map(load, settings.partition_assignment_strategy))
    except PluginError as error:
        raise InvalidSetting(f"partition.assignment.strategy: {error}") from error


def new_member(
    settings: ConsumerSettings,
    assignors: Sequence[Assignor],
    retry_backoff_ms: int,
    chance: Callable[[], float],
) -> Membership:
    """Create a member of the group, not joined yet."""
    assert settings.group_id is not None, "members have a group"
    is_classic = settings.group_protocol == "classic"
    own = MemberSettings(
        settings.group_id,
        "" if is_classic else _member_id(chance),
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        max_poll_interval_ms=settings.max_poll_interval_ms,
        retry_backoff_ms=retry_backoff_ms,
        group_instance_id=settings.group_instance_id,
        rack=settings.client_rack or None,
        remote_assignor=settings.group_remote_assignor,
    )
    return ClassicMember(own, assignors) if is_classic else ConsumerMember(own)


def _member_id(chance: Callable[[], float]) -> str:
    """Return a random UUID, reproducible in a simulation."""
    high, low = (int(chance() * 2**53) for _ in range(2))
    return str(uuid.UUID(int=high << 75 | low, version=4))
