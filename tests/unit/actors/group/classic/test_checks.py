"""Checks that come before the group is looked up."""

import pytest

from raylog.actors.group.rules.classic import check_join, check_sync
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import InconsistentGroupProtocol, InvalidSessionTimeout
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.sync_group import SyncGroupRequest


def _join(session_ms: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g", session_timeout_ms=session_ms, member_id="", protocol_type="consumer"
    )


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeout_outside_the_brokers_limits_is_invalid(session_ms: int) -> None:
    with pytest.raises(InvalidSessionTimeout):
        check_join(_join(session_ms), GroupSettings())


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeout_limits_are_inclusive(session_ms: int) -> None:
    check_join(_join(session_ms), GroupSettings())


@pytest.mark.parametrize(("kind", "name"), [(None, "range"), ("consumer", None), (None, None)])
def test_sync_must_name_the_protocol_from_v5(kind: str | None, name: str | None) -> None:
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", protocol_type=kind, protocol_name=name
    )
    with pytest.raises(InconsistentGroupProtocol):
        check_sync(request, 5)
    check_sync(request, 4)


def test_sync_that_names_the_protocol_passes() -> None:
    check_sync(
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
        ),
        5,
    )
