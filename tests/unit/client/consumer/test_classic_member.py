"""Every step of a classic member, and every refusal. Quotes are the project's promises.

"Phases: FindCoordinator → JoinGroup → SyncGroup → Heartbeat".
"""

from collections.abc import Collection, Sequence

import pytest

from raylog.assignors.api import Assignor, Member, MemberAssignment, load
from raylog.assignors.range import RangeAssignor
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.group import protocol
from raylog.client.consumer.group.classic import ClassicMember, Phase
from raylog.client.consumer.group.events import (
    Answered,
    Divide,
    Divided,
    DivideFailed,
    Effect,
    Event,
    Fail,
    ForgetCoordinator,
    LeaveAsked,
    Polled,
    RejoinAsked,
    Release,
    Released,
    Send,
    Subscribed,
    Take,
    Ticked,
    TopicsSeen,
)
from raylog.client.consumer.group.member_settings import MemberSettings
from raylog.client.errors import ConnectionLost, NotKafka
from raylog.wire.errors import ErrorCode, FencedInstanceId
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
SETTINGS = MemberSettings("g", heartbeat_interval_ms=3_000, max_poll_interval_ms=60_000)


class Rig:
    """A member, the effects of its last event, and its clock."""

    def __init__(
        self, assignors: Sequence[str] = ("range",), settings: MemberSettings = SETTINGS
    ) -> None:
        self.member = ClassicMember(settings, [load(name) for name in assignors])
        self.now_ms = 0.0
        self.effects: list[Effect] = []
        self.do(Subscribed(frozenset({"t"})))

    def do(self, event: Event) -> list[Effect]:
        self.effects = self.member.handle(event, self.now_ms)
        return self.effects

    def poll(self) -> list[Effect]:
        return self.do(Polled(self.now_ms))

    def sent(self, kind: type) -> object:
        (request,) = [
            one.request
            for one in self.effects
            if isinstance(one, Send) and isinstance(one.request, kind)
        ]
        return request

    def one(self, kind: type) -> Effect:
        (found,) = [one for one in self.effects if isinstance(one, kind)]
        return found

    def join(self) -> JoinGroupRequest:
        request = self.sent(JoinGroupRequest)
        assert isinstance(request, JoinGroupRequest)
        return request

    def joined(self, generation: int = 1, leader: str = "other") -> list[Effect]:
        """The coordinator answers the join that was sent last."""
        answer = JoinGroupResponse(
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=next(iter(self.member._assignors)),
            leader=leader,
            member_id="me",
            members=[_member("me"), _member("you")] if leader == "me" else [],
        )
        return self.do(Answered(self.join(), answer))

    def synced(self, *keys: TopicPartition) -> list[Effect]:
        given = MemberAssignment({"t": [key.partition for key in keys]})
        blob = protocol.encode_assignment(given)
        return self.do(Answered(self.sent(SyncGroupRequest), SyncGroupResponse(assignment=blob)))

    def stable(self, *keys: TopicPartition) -> None:
        self.poll()
        self.joined()
        self.synced(*keys)
        assert self.member.phase is Phase.STABLE

    def beat(self, code: ErrorCode = ErrorCode.NONE) -> list[Effect]:
        """Let a heartbeat leave and be answered."""
        self.now_ms = max(self.now_ms, self.member.next_ms)
        self.do(Ticked())
        return self.do(Answered(self.sent(HeartbeatRequest), HeartbeatResponse(error_code=code)))

    def release(self) -> list[Effect]:
        release = self.one(Release)
        assert isinstance(release, Release)
        return self.do(Released(release))


def _member(member_id: str) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member_id, metadata=protocol.encode_subscription(["t"], b"")
    )


def test_nothing_is_sent_before_the_first_poll() -> None:
    rig = Rig()
    assert rig.do(Ticked()) == []
    assert rig.member.next_ms == float("inf")


def test_the_first_join_carries_no_member_id_and_the_next_one_the_given() -> None:
    """ "First join carries no member id; the coordinator gives <client.id>-<UUID>"."""
    rig = Rig()
    rig.poll()
    first = rig.join()
    assert first.member_id == ""
    rig.do(
        Answered(
            first,
            JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me", protocol_name=None
            ),
        )
    )
    assert rig.join().member_id == "me"


def test_a_follower_syncs_without_an_assignment() -> None:
    """ "Only the leader's SyncGroup carries an assignment"."""
    rig = Rig()
    rig.poll()
    rig.joined()
    sync = rig.sent(SyncGroupRequest)
    assert isinstance(sync, SyncGroupRequest)
    assert sync.assignments == []
    rig.synced(T0, T1)
    take = rig.one(Take)
    assert isinstance(take, Take)
    assert take.partitions == {T0, T1}
    assert rig.member.owned == {T0, T1}


def test_the_leader_divides_and_syncs_for_all() -> None:
    """ "Only the leader's JoinGroup answer lists the members with their metadata"."""
    rig = Rig()
    rig.poll()
    rig.joined(leader="me")
    divide = rig.one(Divide)
    assert isinstance(divide, Divide)
    assert [member.member_id for member in divide.members] == ["me", "you"]
    given = {"me": MemberAssignment({"t": [0]}), "you": MemberAssignment({"t": [1]})}
    rig.do(Divided(divide, given, {"t": 2}))
    sync = rig.sent(SyncGroupRequest)
    assert isinstance(sync, SyncGroupRequest)
    assert [one.member_id for one in sync.assignments] == ["me", "you"]


def test_new_partitions_make_the_leader_join_again() -> None:
    """ "partitions of a subscribed topic … changing (classic: the client notices)"."""
    rig = Rig()
    rig.poll()
    rig.joined(leader="me")
    divide = rig.one(Divide)
    assert isinstance(divide, Divide)
    rig.do(Divided(divide, {}, {"t": 2}))
    rig.synced()
    assert rig.do(TopicsSeen({"t": 2}, {})) == []
    rig.do(TopicsSeen({"t": 3}, {}))
    assert rig.join().reason == "the partitions of t have changed"


def test_an_eager_member_gives_up_all_before_it_joins() -> None:
    """ "Listener: on_partitions_revoked before rejoin, on_partitions_assigned after"."""
    rig = Rig()
    rig.stable(T0, T1)
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.partitions == {T0, T1}
    assert not release.lost
    assert not any(isinstance(effect, Send) for effect in rig.effects)
    rig.release()
    assert rig.join().member_id == "me"
    assert rig.member.owned == frozenset()


def test_heartbeats_go_on_while_the_application_gives_up_and_stop_while_rejoining() -> None:
    """ "heartbeats stop while rejoining"."""
    rig = Rig()
    rig.stable(T0)
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    release = rig.one(Release)
    assert isinstance(release, Release)
    rig.now_ms = rig.member.next_ms
    rig.do(Ticked())
    assert rig.sent(HeartbeatRequest)
    rig.do(Released(release))
    assert rig.member.phase is Phase.JOINING
    rig.now_ms += 30_000
    assert rig.do(Ticked()) == []
    assert rig.member.next_ms == float("inf")


def test_a_cooperative_member_keeps_what_stays_and_joins_twice() -> None:
    """KIP-429: what moves on is given up after the sync, then the group rebalances once more."""
    rig = Rig(("cooperative-sticky",))
    rig.stable(T0, T1)
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = rig.join()
    blob = protocol.decode_member(
        JoinGroupResponseMember(member_id="me", metadata=join.protocols[0].metadata)
    )
    assert (blob.owned, blob.generation) == ({"t": (0, 1)}, 1)
    rig.joined(2)
    rig.synced(T0)
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.partitions == {T1}
    rig.release()
    assert rig.member.owned == {T0}
    assert rig.join().member_id == "me"


def leading(rig: Rig, *, is_complete: bool) -> None:
    """Lead the group, and hand partitions out, or some of them."""
    rig.poll()
    rig.joined(leader="me")
    divide = rig.one(Divide)
    assert isinstance(divide, Divide)
    rig.do(Divided(divide, {}, {"t": 2}, is_complete))
    rig.synced(T0)


def test_a_leader_that_left_partitions_out_joins_again_if_nobody_else_does() -> None:
    """Who was to give them up may have died: as a static member it is back with nothing to give."""
    rig = Rig(("cooperative-sticky",))
    leading(rig, is_complete=False)
    rig.now_ms = SETTINGS.max_poll_interval_ms
    rig.do(Polled(rig.now_ms))
    assert rig.join().member_id == "me"


def test_a_leader_that_gave_all_out_stays() -> None:
    rig = Rig(("cooperative-sticky",))
    leading(rig, is_complete=True)
    rig.now_ms = SETTINGS.max_poll_interval_ms
    rig.do(Polled(rig.now_ms))
    assert rig.member.phase is Phase.STABLE


def test_leader_does_not_rejoin_after_another_rebalance() -> None:
    rig = Rig(("cooperative-sticky",))
    leading(rig, is_complete=False)
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    rig.joined(2, leader="other")
    rig.synced(T0)
    rig.now_ms = SETTINGS.max_poll_interval_ms
    rig.do(Polled(rig.now_ms))
    assert rig.member.phase is Phase.STABLE


def test_a_static_leader_that_is_back_asks_for_another_round() -> None:
    """It does not know whether the one before it left partitions out."""
    rig = Rig(("cooperative-sticky",))
    rig.poll()
    answer = JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        leader="me",
        member_id="me",
        skip_assignment=True,
    )
    rig.do(Answered(rig.join(), answer))
    rig.synced(T0)
    rig.now_ms = SETTINGS.max_poll_interval_ms
    rig.do(Polled(rig.now_ms))
    assert rig.join().member_id == "me"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_removed_member_loses_its_partitions(code: ErrorCode) -> None:
    rig = Rig()
    rig.stable(T0)
    rig.beat(code)
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.lost
    assert not rig.member.metadata.is_member
    rig.release()
    expected = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else "me"
    assert rig.join().member_id == expected


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_generation_and_assignment_survive_a_coordinator_that_moves(code: ErrorCode) -> None:
    """ "generation and assignment survive, only a join in progress is repeated"."""
    rig = Rig()
    rig.stable(T0)
    assert rig.beat(code) == [ForgetCoordinator()]
    assert rig.member.owned == {T0}
    assert rig.beat() == []
    assert rig.member.metadata.generation_id == 1


def test_a_join_that_is_lost_is_repeated() -> None:
    rig = Rig()
    rig.poll()
    assert rig.do(Answered(rig.join(), ConnectionLost("gone"))) == [ForgetCoordinator()]
    rig.now_ms = rig.member.next_ms
    rig.do(Ticked())
    assert rig.join().member_id == ""


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_GROUP_ID,
    ],
)
def test_fatal_join_error_is_raised_by_the_poll_and_the_next_poll_rejoins(code: ErrorCode) -> None:
    """ "A member that shares no protocol with the group: INCONSISTENT_GROUP_PROTOCOL"."""
    rig = Rig()
    rig.poll()
    rig.do(Answered(rig.join(), JoinGroupResponse(error_code=code, protocol_name=None)))
    failure = rig.one(Fail)
    assert isinstance(failure, Fail)
    assert getattr(failure.error, "code", None) is code
    assert rig.do(Ticked()) == []
    rig.poll()
    assert rig.join()


def test_a_leader_that_gets_no_metadata_joins_again() -> None:
    rig = Rig()
    rig.poll()
    rig.joined(leader="me")
    divide = rig.one(Divide)
    assert isinstance(divide, Divide)
    assert rig.do(DivideFailed(divide, ConnectionLost("killed"))) == []
    rig.now_ms = rig.member.next_ms
    rig.do(Ticked())
    assert rig.join().member_id == "me"
    assert rig.do(DivideFailed(divide, ConnectionLost("killed"))) == []


def test_what_waits_for_a_poll_says_so() -> None:
    """Polls are reported only when they matter."""
    member = ClassicMember(SETTINGS, [load("range")])
    member.handle(Polled(0.0), 0.0)
    assert not member.needs_poll, "a pattern is not resolved yet: polls change nothing"
    rig = Rig(settings=MemberSettings("g", max_poll_interval_ms=60_000, group_instance_id="i"))
    found = [rig.member.needs_poll]
    rig.stable()
    found.append(rig.member.needs_poll)
    rig.now_ms = 60_000
    rig.do(Ticked())  # it is put out
    found.append(rig.member.needs_poll)
    rig.stable()
    rig.beat(ErrorCode.FENCED_INSTANCE_ID)  # each poll reports the failure
    found.append(rig.member.needs_poll)
    rig.do(LeaveAsked("closed"))
    assert [*found, rig.member.needs_poll] == [True, False, True, True, False]


def test_a_fenced_static_member_never_joins_again() -> None:
    rig = Rig(settings=MemberSettings("g", group_instance_id="i"))
    rig.stable(T0)
    rig.beat(ErrorCode.FENCED_INSTANCE_ID)
    failure = rig.one(Fail)
    assert isinstance(failure, Fail)
    assert isinstance(failure.error, FencedInstanceId)
    rig.release()
    assert rig.member.phase is Phase.FAILED
    rig.poll()
    assert rig.effects == [Fail(failure.error)]


def test_member_that_does_not_poll_leaves_and_a_later_poll_joins_again() -> None:
    """ "max.poll.interval.ms … a member that has not rejoined by then is out"."""
    rig = Rig()
    rig.stable(T0)
    rig.now_ms = 60_000
    rig.do(Ticked())
    leave = rig.sent(LeaveGroupRequest)
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].reason == "max.poll.interval.ms has passed without a poll"
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.lost
    rig.now_ms += 7 * 24 * 3_600_000
    assert rig.do(Ticked()) == []
    assert rig.poll() == []
    rig.do(Released(release))
    assert rig.join().member_id == ""


def test_a_listener_that_hangs_does_not_bring_old_partitions_back() -> None:
    rig = Rig()
    rig.stable(T0)
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    hanging = rig.one(Release)
    assert isinstance(hanging, Release)
    rig.now_ms = 60_000
    rig.do(Ticked())
    lost = rig.one(Release)
    assert isinstance(lost, Release)
    assert lost.lost
    assert rig.do(Released(hanging)) == []
    rig.do(Released(lost))
    assert rig.join().member_id == ""


def test_a_heartbeat_that_is_late_says_nothing_about_the_new_generation() -> None:
    rig = Rig()
    rig.stable(T0)
    rig.now_ms = rig.member.next_ms
    rig.do(Ticked())
    late = rig.sent(HeartbeatRequest)
    rig.do(RejoinAsked("now"))
    rig.release()
    rig.joined(2)
    sync = rig.sent(SyncGroupRequest)
    answer = HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
    assert rig.do(Answered(late, answer)) == []
    blob = protocol.encode_assignment(MemberAssignment({"t": [1]}))
    rig.do(Answered(sync, SyncGroupResponse(assignment=blob)))
    assert rig.member.owned == {T1}


def test_another_groups_answer_is_refused() -> None:
    rig = Rig()
    rig.poll()
    strange = JoinGroupResponse(
        generation_id=1, protocol_type="connect", protocol_name="range", leader="x", member_id="me"
    )
    rig.do(Answered(rig.join(), strange))
    failure = rig.one(Fail)
    assert isinstance(failure, Fail)
    assert isinstance(failure.error, NotKafka)


def test_unsubscribed_topics_of_an_assignment_are_ignored() -> None:
    rig = Rig()
    rig.poll()
    rig.joined()
    blob = protocol.encode_assignment(MemberAssignment({"t": [0], "strange": [0]}))
    sync = rig.sent(SyncGroupRequest)
    rig.do(Answered(sync, SyncGroupResponse(assignment=blob)))
    take = rig.one(Take)
    assert isinstance(take, Take)
    assert take.partitions == {T0}
    rig.now_ms = rig.member.next_ms
    rig.do(Ticked())
    assert rig.one(Release), "it joins again, but not at once"


def test_an_assignor_that_raises_is_reported() -> None:
    rig = Rig()
    rig.poll()
    rig.joined(leader="me")
    divide = rig.one(Divide)
    assert isinstance(divide, Divide)
    rig.do(DivideFailed(divide, ValueError("bad")))
    assert [type(effect) for effect in rig.effects] == [Fail]


def test_leave_request_states_the_reason_and_static_members_send_none() -> None:
    rig = Rig()
    rig.stable(T0)
    rig.do(LeaveAsked("closed"))
    leave = rig.sent(LeaveGroupRequest)
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].reason == "closed"
    static = Rig(settings=MemberSettings("g", group_instance_id="i"))
    static.stable(T0)
    assert static.do(LeaveAsked("closed")) == []
    assert static.do(Ticked()) == []


def test_a_new_subscription_is_joined_with() -> None:
    rig = Rig()
    rig.stable(T0)
    rig.do(Subscribed(frozenset({"t", "u"})))
    rig.release()
    decoded = protocol.decode_member(
        JoinGroupResponseMember(member_id="me", metadata=rig.join().protocols[0].metadata)
    )
    assert decoded.topics == {"t", "u"}


def test_only_assignors_that_are_all_cooperative_make_a_cooperative_member() -> None:
    def member(*names: str) -> ClassicMember:
        return ClassicMember(SETTINGS, [load(name) for name in names])

    assert not member("range", "cooperative-sticky").is_cooperative
    assert member("cooperative-sticky").is_cooperative


class _Weighted(Assignor):
    name = "weighted"

    def __init__(self) -> None:
        self.calls: list[tuple[MemberAssignment, int]] = []

    def subscription_user_data(self, topics: object) -> bytes:
        del topics
        return b"weight 3"

    def assign(self, members: Sequence[Member], topics: object) -> dict[str, MemberAssignment]:
        del members, topics
        return {}

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self.calls.append((assignment, generation))


def test_a_custom_assignor_adds_its_data_and_is_called_back() -> None:
    """ "custom assignor … may add user data to its own subscription, is called back"."""
    assignor = _Weighted()
    rig = Rig()
    rig.member = ClassicMember(SETTINGS, [assignor])
    rig.do(Subscribed(frozenset({"t"})))
    rig.poll()
    decoded = protocol.decode_member(
        JoinGroupResponseMember(member_id="me", metadata=rig.join().protocols[0].metadata)
    )
    assert decoded.user_data == b"weight 3"
    rig.joined(7)
    rig.synced(T2)
    assert assignor.calls == [(MemberAssignment({"t": [2]}), 7)]


def test_a_rejoin_that_is_due_waits_for_a_release_without_being_looked_at() -> None:
    """`next_ms` in the past, with nothing to do then, would keep an event loop busy for ever."""
    rig = Rig()
    rig.poll()
    rig.joined()
    blob = protocol.encode_assignment(MemberAssignment({"t": [0], "strange": [0]}))
    rig.do(Answered(rig.sent(SyncGroupRequest), SyncGroupResponse(assignment=blob)))
    rig.do(RejoinAsked("the application asked for it"))
    assert rig.member.phase is Phase.RELEASING
    rig.now_ms = rig.member.next_ms
    assert rig.do(Ticked()), "a heartbeat"
    assert rig.member.next_ms > rig.now_ms


class Raising(RangeAssignor):
    """Raises an exception where it is told to."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        if self.where == "subscription":
            raise ZeroDivisionError("mine")
        return super().subscription_user_data(topics)

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        if self.where == "assignment":
            raise ZeroDivisionError("mine")


@pytest.mark.parametrize("where", ["subscription", "assignment"])
def test_an_assignor_that_raises_is_reported_to_the_application_at_each_poll(where: str) -> None:
    rig = Rig()
    rig.member = ClassicMember(SETTINGS, [Raising(where)])
    rig.do(Subscribed(frozenset({"t"})))
    for generation in (1, 2):
        rig.poll()
        if where == "assignment":
            rig.joined(generation)
            rig.synced(T0)
        fail = rig.one(Fail)
        assert isinstance(fail, Fail)
        assert "'range' raised ZeroDivisionError: mine" in str(fail.error)
        assert rig.member.next_ms == float("inf"), "no heartbeats of a member that has nothing"
