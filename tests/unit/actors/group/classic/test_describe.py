"""DescribeGroups and ListGroups: a group's states, and the description in each."""

from raylog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tests.worlds.coordination.steps import CLIENT_HOST
from tests.worlds.group.classic import GROUP, Session, subscription


def _member(member_id: str, metadata: bytes, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member_id,
        group_instance_id=None,
        client_id="client",
        client_host=CLIENT_HOST,
        member_metadata=metadata,
        member_assignment=assignment,
    )


def _group(state: str, kind: str, protocol: str, *members: DescribedGroupMember) -> DescribedGroup:
    return DescribedGroup(
        error_code=0,
        group_id=GROUP,
        group_state=state,
        protocol_type=kind,
        protocol_data=protocol,
        members=list(members),
    )


def test_a_group_through_its_states() -> None:
    session = Session()
    member = session.join().answer.member_id
    assert session.describe() == _group("Empty", "", "")
    session.join(member)
    assert session.describe() == _group(
        "PreparingRebalance", "consumer", "", _member(member, b"", b"")
    )
    session.world.advance(0)
    assert session.describe() == _group(
        "CompletingRebalance", "consumer", "", _member(member, b"", b"")
    )
    session.sync(member, {member: b"given"})
    assert session.describe() == _group(
        "Stable", "consumer", "range", _member(member, subscription("t"), b"given")
    )
    newcomer = session.enter().asked.request.member_id
    assert session.describe() == _group(
        "PreparingRebalance",
        "consumer",
        "",
        _member(member, b"", b"given"),
        _member(newcomer, b"", b""),
    )
    session.leave(member, newcomer)
    assert session.describe() == _group("Empty", "consumer", "")
    assert session.group.is_empty()
