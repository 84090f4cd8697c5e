"""Every step of a member of a KIP-848 group, and every refusal."""

from itertools import pairwise

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.group.consumer import ConsumerMember, Phase
from raylog.client.consumer.group.events import (
    Answered,
    Effect,
    Event,
    Fail,
    ForgetCoordinator,
    LeaveAsked,
    LookUpTopics,
    Polled,
    Release,
    Released,
    Send,
    Subscribed,
    Take,
    Ticked,
    TopicsSeen,
)
from raylog.client.consumer.group.member_settings import MemberSettings
from raylog.client.errors import ConnectionLost
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
T_ID, U_ID = b"t" * 16, b"u" * 16


class Rig:
    """A member, the effects of its last event, and its clock."""

    def __init__(self, instance_id: str | None = None) -> None:
        self.member = ConsumerMember(
            MemberSettings("g", "me", max_poll_interval_ms=60_000, group_instance_id=instance_id)
        )
        self.now_ms = 0.0
        self.effects: list[Effect] = []
        self.do(Subscribed(frozenset({"t"})))
        self.do(TopicsSeen({"t": 3}, {T_ID: "t"}))

    def do(self, event: Event) -> list[Effect]:
        self.effects = self.member.handle(event, self.now_ms)
        return self.effects

    def one(self, kind: type) -> Effect:
        (found,) = [one for one in self.effects if isinstance(one, kind)]
        return found

    @property
    def sent(self) -> ConsumerGroupHeartbeatRequest:
        send = self.one(Send)
        assert isinstance(send, Send)
        assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
        return send.request

    def answer(
        self,
        request: ConsumerGroupHeartbeatRequest,
        epoch: int = 1,
        given: dict[bytes, list[int]] | None = None,
        code: ErrorCode = ErrorCode.NONE,
    ) -> list[Effect]:
        assignment = None
        if given is not None:
            assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in given.items()
                ]
            )
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_id="me",
            member_epoch=epoch,
            heartbeat_interval_ms=5_000,
            assignment=assignment,
        )
        return self.do(Answered(request, response))

    def stable(self, *partitions: int) -> None:
        """Joined, given, acknowledged."""
        self.do(Polled(self.now_ms))
        self.answer(self.sent, given={T_ID: list(partitions)})
        self.answer(self.sent)
        assert self.member.phase is Phase.MEMBER

    def tick(self) -> list[Effect]:
        self.now_ms = max(self.now_ms, self.member.next_ms)
        return self.do(Ticked())


def test_a_member_joins_with_epoch_0_and_says_everything() -> None:
    rig = Rig()
    assert rig.do(Ticked()) == []
    rig.do(Polled(0.0))
    request = rig.sent
    assert (request.member_id, request.member_epoch) == ("me", 0)
    assert request.subscribed_topic_names == ["t"]
    assert request.rebalance_timeout_ms == 60_000
    assert request.topic_partitions == []


def test_an_assignment_is_taken_and_acknowledged_at_once() -> None:
    rig = Rig()
    rig.do(Polled(0.0))
    rig.answer(rig.sent, given={T_ID: [0, 1]})
    take = rig.one(Take)
    assert isinstance(take, Take)
    assert take.partitions == {T0, T1}
    assert rig.sent.topic_partitions == [TopicPartitions(topic_id=T_ID, partitions=[0, 1])]
    assert rig.sent.member_epoch == 1
    assert rig.sent.subscribed_topic_names is None, "what has not changed is left out"


def test_revoked_partitions_are_released_before_the_acknowledgement() -> None:
    rig = Rig()
    rig.stable(0, 1)
    rig.tick()
    rig.answer(rig.sent, 1, {T_ID: [1, 2]})
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.partitions == {T0}
    assert not any(isinstance(effect, Send) for effect in rig.effects)
    rig.do(Released(release))
    take = rig.one(Take)
    assert isinstance(take, Take)
    assert take.partitions == {T2}
    assert rig.sent.topic_partitions == [TopicPartitions(topic_id=T_ID, partitions=[1, 2])]


def test_heartbeats_go_on_while_the_application_gives_up() -> None:
    rig = Rig()
    rig.stable(0, 1)
    rig.tick()
    rig.answer(rig.sent, 1, {T_ID: []})
    rig.tick()
    assert rig.sent.member_epoch == 1
    assert rig.sent.topic_partitions is None, "it still has them"


def test_topics_that_metadata_does_not_know_yet_are_looked_up() -> None:
    rig = Rig()
    rig.do(Polled(0.0))
    rig.answer(rig.sent, given={T_ID: [0], U_ID: [0]})
    assert rig.one(LookUpTopics) == LookUpTopics(frozenset({U_ID}))
    assert rig.member.owned == {T0}
    rig.do(TopicsSeen({"u": 1}, {U_ID: "u"}))
    assert rig.member.owned == {T0, TopicPartition("u", 0)}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_has_lost_all_and_joins_anew(code: ErrorCode) -> None:
    rig = Rig()
    rig.stable(0)
    rig.tick()
    rig.answer(rig.sent, code=code)
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.lost
    assert not rig.member.metadata.is_member
    rig.do(Released(release))
    assert rig.sent.member_epoch == 0
    assert rig.sent.topic_partitions == []


def test_after_a_lost_answer_everything_is_said_again() -> None:
    rig = Rig()
    rig.stable(0)
    rig.tick()
    assert rig.do(Answered(rig.sent, ConnectionLost("gone"))) == [ForgetCoordinator()]
    rig.tick()
    assert rig.sent.subscribed_topic_names == ["t"]
    assert rig.sent.topic_partitions == [TopicPartitions(topic_id=T_ID, partitions=[0])]
    assert rig.sent.member_epoch == 1


def test_a_coordinator_that_moved_is_looked_for_and_nothing_is_lost() -> None:
    rig = Rig()
    rig.stable(0)
    rig.tick()
    assert rig.answer(rig.sent, code=ErrorCode.NOT_COORDINATOR) == [ForgetCoordinator()]
    assert rig.member.owned == {T0}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_fatal_heartbeat_error_is_raised_by_the_poll_and_the_next_poll_rejoins(
    code: ErrorCode,
) -> None:
    rig = Rig()
    rig.do(Polled(0.0))
    rig.answer(rig.sent, code=code)
    failure = rig.one(Fail)
    assert isinstance(failure, Fail)
    assert getattr(failure.error, "code", None) is code
    rig.do(Polled(0.0))
    assert rig.sent.member_epoch == 0


def test_what_waits_for_a_poll_says_so() -> None:
    """Polls are reported only when they matter."""
    rig = Rig("i")
    found = [rig.member.needs_poll]
    rig.stable()
    found.append(rig.member.needs_poll)
    rig.now_ms = 60_000
    rig.do(Ticked())  # it is put out
    found.append(rig.member.needs_poll)
    rig.do(Polled(rig.now_ms))
    rig.answer(rig.sent, code=ErrorCode.FENCED_INSTANCE_ID)  # each poll reports the failure
    found.append(rig.member.needs_poll)
    rig.do(LeaveAsked("closed"))
    assert [*found, rig.member.needs_poll] == [True, False, True, True, False]


def test_a_fenced_static_member_never_joins_again() -> None:
    rig = Rig("i")
    rig.stable(0)
    rig.tick()
    rig.answer(rig.sent, code=ErrorCode.FENCED_INSTANCE_ID)
    release = rig.one(Release)
    assert isinstance(release, Release)
    rig.do(Released(release))
    assert rig.member.phase is Phase.FAILED
    assert [type(effect) for effect in rig.do(Polled(rig.now_ms))] == [Fail]


def test_member_that_does_not_poll_leaves_and_a_later_poll_joins_again() -> None:
    rig = Rig()
    rig.stable(0)
    rig.now_ms = 60_000
    rig.do(Ticked())
    assert rig.sent.member_epoch == -1
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.lost
    rig.now_ms += 7 * 24 * 3_600_000
    assert rig.do(Ticked()) == []
    rig.do(Released(release))
    assert rig.sent.member_epoch == 0


@pytest.mark.parametrize(
    ("instance_id", "leave_group", "epochs"),
    [
        (None, None, [-1]),
        (None, False, []),
        ("i", None, [-2]),
        ("i", False, [-2]),
        ("i", True, [-1]),
    ],
)
def test_member_epoch_of_a_leave_request(
    instance_id: str | None, leave_group: bool | None, epochs: list[int]
) -> None:
    rig = Rig(instance_id)
    rig.stable(0)
    rig.do(LeaveAsked("closed", leave_group))
    sent = [one.request for one in rig.effects if isinstance(one, Send)]
    assert [getattr(request, "member_epoch", None) for request in sent] == epochs
    assert rig.do(Ticked()) == []


def test_a_pattern_goes_to_the_coordinator_and_topics_take_its_place() -> None:
    rig = Rig()
    rig.do(Subscribed(frozenset(), "a.*"))
    rig.do(Polled(0.0))
    assert (rig.sent.subscribed_topic_regex, rig.sent.subscribed_topic_names) == ("a.*", [])
    rig.answer(rig.sent)
    rig.do(Subscribed(frozenset({"t"})))
    assert (rig.sent.subscribed_topic_regex, rig.sent.subscribed_topic_names) == ("", ["t"])


def test_names_that_metadata_does_not_tell_are_asked_for_less_and_less_often() -> None:
    rig = Rig()
    rig.do(Polled(0.0))
    rig.answer(rig.sent, given={T_ID: [0], U_ID: [0]})
    assert rig.one(LookUpTopics) == LookUpTopics(frozenset({U_ID}))
    asked = [rig.now_ms]
    rig.do(TopicsSeen({"t": 3}, {T_ID: "t"}))
    while rig.now_ms < 4_000:
        rig.now_ms = rig.member.next_ms
        if any(isinstance(effect, LookUpTopics) for effect in rig.do(Ticked())):
            asked.append(rig.now_ms)
            rig.do(TopicsSeen({"t": 3}, {T_ID: "t"}))
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == [100, 200, 400, 800, 1_600, 3_200][: len(pauses)]
    assert len(pauses) >= 4


def test_a_topic_that_was_made_anew_is_given_up_and_taken_again() -> None:
    """Its partitions have the same names, and nothing else in common."""
    rig = Rig()
    rig.stable(0, 1)
    rig.do(TopicsSeen({"t": 3}, {U_ID: "t"}))
    rig.tick()
    rig.answer(rig.sent, 2, {U_ID: [0, 1]})
    release = rig.one(Release)
    assert isinstance(release, Release)
    assert release.partitions == {T0, T1}
    rig.do(Released(release))
    take = rig.one(Take)
    assert isinstance(take, Take)
    assert take.partitions == {T0, T1}
    assert rig.sent.topic_partitions == [TopicPartitions(topic_id=U_ID, partitions=[0, 1])]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_that_does_not_poll_leaves_a_static_one_for_its_session(
    instance_id: str | None, epoch: int
) -> None:
    """KIP-345: a static member that comes back in time finds its partitions."""
    rig = Rig(instance_id)
    rig.stable(0)
    rig.now_ms = 60_001
    rig.do(Ticked())
    assert rig.sent.member_epoch == epoch
