"""Checks of requests that come before the group is looked up."""

from raylog.actors.group.settings import GroupSettings
from raylog.wire.errors import InconsistentGroupProtocol, InvalidSessionTimeout
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.sync_group import SyncGroupRequest

_SYNC_NAMES_PROTOCOL = 5


def check_join(request: JoinGroupRequest, settings: GroupSettings) -> None:
    """Refuse a session timeout outside the broker's limits, which are inclusive."""
    least, most = settings.session_timeout_min_ms, settings.session_timeout_max_ms
    if not least <= request.session_timeout_ms <= most:
        raise InvalidSessionTimeout(
            f"session timeout of {request.session_timeout_ms} ms is not within {least} to {most}"
        )


def check_sync(request: SyncGroupRequest, version: int) -> None:
    """Refuse a request that should name protocol type and name but does not (KIP-559)."""
    if version < _SYNC_NAMES_PROTOCOL:
        return
    if request.protocol_type is None or request.protocol_name is None:
        raise InconsistentGroupProtocol(f"SyncGroup v{version} must name the protocol")
