"""A member of a classic group under any events agrees with its application on what it owns."""

from hypothesis import given
from hypothesis import strategies as st

from raylog.assignors.api import MemberAssignment, load
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.group import protocol
from raylog.client.consumer.group.classic import ClassicMember
from raylog.client.consumer.group.events import (
    Answered,
    Divide,
    Divided,
    Effect,
    Polled,
    RejoinAsked,
    Release,
    Released,
    Send,
    Subscribed,
    Take,
    Ticked,
)
from raylog.client.consumer.group.member_settings import MemberSettings
from raylog.client.errors import ConnectionLost
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

CODES = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
]


class Application:
    """Carries effects out late, and checks each against its state."""

    def __init__(self, cooperative: bool) -> None:
        name = "cooperative-sticky" if cooperative else "range"
        self.name = name
        self.member = ClassicMember(MemberSettings("g"), [load(name)])
        self.now_ms = 0.0
        self.has: set[TopicPartition] = set()
        self.steps: list[Release | Take] = []
        self.requests: list[object] = []
        self.divides: list[Divide] = []
        self.generation = 0

    def feed(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Release(lost=True):
                    self.steps = [effect]
                case Release() | Take():
                    self.steps.append(effect)
                case Send(request):
                    self.requests.append(request)
                case Divide():
                    self.divides.append(effect)
                case _:
                    pass

    def step(self) -> None:
        """Do what a poll does."""
        self.feed(self.member.handle(Polled(self.now_ms), self.now_ms))
        while self.steps:
            step = self.steps.pop(0)
            if isinstance(step, Take):
                assert not step.partitions & self.has, "what it has is not given again"
                self.has |= step.partitions
            else:
                self.has -= step.partitions
                self.feed(self.member.handle(Released(step), self.now_ms))
        assert self.has == self.member.owned

    def answer(self, data: st.DataObject) -> None:
        if self.divides:
            divide = self.divides.pop()
            self.feed(self.member.handle(Divided(divide, {}, {"t": 4}), self.now_ms))
        if not self.requests:
            return
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        code = data.draw(st.sampled_from([*CODES, None]))
        answer: object = ConnectionLost("gone")
        if code is not None and isinstance(request, JoinGroupRequest):
            self.generation += 1
            leads = data.draw(st.booleans())
            described = JoinGroupResponseMember(
                member_id="me", metadata=protocol.encode_subscription(["t"], b"")
            )
            answer = JoinGroupResponse(
                error_code=code,
                generation_id=self.generation,
                protocol_name=self.name,
                leader="me" if leads else "you",
                member_id="me",
                members=[described] if leads else [],
            )
        elif code is not None and isinstance(request, SyncGroupRequest):
            some = data.draw(st.sets(st.integers(0, 3)))
            blob = protocol.encode_assignment(MemberAssignment({"t": sorted(some)}))
            answer = SyncGroupResponse(error_code=code, assignment=blob)
        elif code is not None and isinstance(request, HeartbeatRequest):
            answer = HeartbeatResponse(error_code=code)
        self.feed(self.member.handle(Answered(request, answer), self.now_ms))


@given(st.data(), st.booleans())
def test_application_and_member_agree_on_owned_partitions(
    data: st.DataObject, cooperative: bool
) -> None:
    """Whatever is answered, lost or late: after each poll both agree, and eager members join
    with nothing in hand."""
    app = Application(cooperative)
    app.feed(app.member.handle(Subscribed(frozenset({"t"})), 0.0))
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["poll", "answer", "answer", "time", "rejoin"])):
            case "poll":
                app.step()
            case "answer":
                app.answer(data)
            case "time":
                app.now_ms += data.draw(st.sampled_from([100, 3_000, 300_000]))
                app.feed(app.member.handle(Ticked(), app.now_ms))
            case _:
                app.feed(app.member.handle(RejoinAsked("asked"), app.now_ms))
        joins = [one for one in app.requests if isinstance(one, JoinGroupRequest)]
        if joins and not cooperative and app.member._awaited is joins[-1]:
            assert not app.has, "an eager member gives up all before it joins"
        if not app.member.metadata.is_member and not cooperative:
            released = any(isinstance(step, Release) and step.lost for step in app.steps)
            assert not app.member.owned or released, "what was lost is told"
