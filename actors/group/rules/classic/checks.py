"""Checks of requests, made before the group is looked up."""

from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.codegen.primitives import STRING_BYTES_MAX
from raylog.wire.errors import (
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
)
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.sync_group import SyncGroupRequest

_SYNC_NAMES_PROTOCOL = 5
NAME_BYTES_MAX = STRING_BYTES_MAX - len("-") - 36
"""Limit for the prefix of a member id, which is followed by a UUID."""


def check_join(request: JoinGroupRequest, settings: GroupSettings, client_id: str = "") -> None:
    """Refuse a session timeout outside the broker's limits, which are inclusive.

    Also refuse names that leave no room for a member id in responses and records, for which Kafka
    fails with UNKNOWN_SERVER_ERROR.
    """
    least, most = settings.session_timeout_min_ms, settings.session_timeout_max_ms
    if not least <= request.session_timeout_ms <= most:
        raise InvalidSessionTimeout(
            f"session timeout of {request.session_timeout_ms} ms is not within {least} to {most}"
        )
    if not request.member_id:
        name = client_id if request.group_instance_id is None else request.group_instance_id
        if len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidRequest(f"a client or instance id has more than {NAME_BYTES_MAX} bytes")


def check_sync(request: SyncGroupRequest, version: int) -> None:
    """Refuse a request that must have protocol type and name but does not (KIP-559)."""
    if version < _SYNC_NAMES_PROTOCOL:
        return
    if request.protocol_type is None or request.protocol_name is None:
        raise InconsistentGroupProtocol(f"SyncGroup v{version} must name the protocol")
