"""A member of a classic group, without I/O.

    OUT ──poll──▶ JOINING ──leader──▶ DIVIDING ──▶ SYNCING ──▶ STABLE
                     ▲  └───────follower────────────▲             │ REBALANCE_IN_PROGRESS,
                     │                                            ▼ new topics, enforce_rebalance
                     └──────────── released ─────────────── RELEASING

FindCoordinator is the shell's. Eager members give up all before they join again; cooperative ones
(KIP-429, when every assignor is cooperative) keep what they have, learn in the sync what moves on,
give that up and join once more. Heartbeats stop while joining and syncing, and go on while the
application gives partitions up. Whatever says that the coordinator has put us out
(UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION) makes what we have lost; a coordinator that moved does not:
generation and assignment survive, only a join in progress is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from raylog.assignors.api import Assignor, MemberAssignment, PluginError, raised
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.group import protocol
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
    Taken,
    Ticked,
    TopicsSeen,
)
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import ClientError, NotKafka, NotSupported
from raylog.wire.errors import DecodeError, ErrorCode, FencedInstanceId, KafkaError, error_of
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from raylog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from raylog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

NEVER = float("inf")
_NO_GENERATION = -1
_JOIN_SLACK_MS = 5_000
"""How much later than the rebalance timeout the answer to a join may come."""
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_PUT_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_AGAIN = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, *_MOVED}
)


class Phase(Enum):
    """Where a member is; the module's docstring draws it."""

    OUT = auto()
    JOINING = auto()
    DIVIDING = auto()
    SYNCING = auto()
    STABLE = auto()
    RELEASING = auto()
    FAILED = auto()
    """Fenced: another member has our instance id."""
    GONE = auto()


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """What the machine needs to know."""

    group_id: str
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    group_instance_id: str | None = None
    rack: str | None = None


class ClassicMember:
    """One consumer's membership; `handle` takes an event and returns effects."""

    def __init__(self, settings: ClassicSettings, assignors: Sequence[Assignor]) -> None:
        """The preferred assignor comes first."""
        self.settings = settings
        self.phase = Phase.OUT
        self.owned: frozenset[TopicPartition] = frozenset()
        """What the application has, or is about to be given."""
        self.is_cooperative = all(assignor.cooperative for assignor in assignors)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._topics: frozenset[str] | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._member_id = ""
        self._generation = _NO_GENERATION
        self._protocol = ""
        self._is_leader = False
        self._divided: Mapping[str, int] | None = None
        """What the assignor knew of the topics, if we ran it."""
        self._seen: dict[str, int] = {}
        self._awaited: object = None
        """The request, Divide or Release whose outcome moves us on."""
        self._heartbeat: object = None
        """A heartbeat on its way."""
        self._heartbeat_at_ms = NEVER
        self._join_at_ms = NEVER
        """When to join; NEVER: when the application polls."""
        self._rejoin_at_ms = NEVER
        """When a stable member joins again, because its assignment made no sense."""
        self._poll_until_ms = NEVER
        self._reason: str | None = None
        """Why to join again as soon as possible."""
        self._to_take: frozenset[TopicPartition] | None = None
        """Given to us, once a release is over."""
        self._failure: Exception | None = None

    @property
    def metadata(self) -> GroupMetadata:
        """Whom the coordinator knows."""
        return GroupMetadata(
            self.settings.group_id,
            self._generation,
            self._member_id,
            self.settings.group_instance_id,
        )

    @property
    def is_rebalancing(self) -> bool:
        """Whether the assignment is about to change."""
        return self.phase not in (Phase.STABLE, Phase.OUT, Phase.GONE, Phase.FAILED)

    @property
    def next_ms(self) -> float:
        """When `Ticked` should come at the latest."""
        if self.phase is Phase.OUT:
            return self._join_at_ms
        if self._has_heartbeats:
            beat_ms = NEVER if self._heartbeat is not None else self._heartbeat_at_ms
            rejoin_ms = self._rejoin_at_ms if self.phase is Phase.STABLE else NEVER
            return min(self._poll_until_ms, rejoin_ms, beat_ms)
        return NEVER

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Take an event at a time that never goes back."""
        match event:
            case Ticked():
                return self._tick(now_ms)
            case Polled(at_ms):
                return self._polled(at_ms, now_ms)
            case Answered(request, answer):
                return self._answered(request, answer, now_ms)
            case Released(release):
                return self._released(release) if release is self._awaited else []
            case LeaveAsked(reason, leave_group):
                return self._leave(reason, leave_group)
            case _:
                return self._changed(event, now_ms)

    def _changed(self, event: Event, now_ms: float) -> list[Effect]:
        """Events that may make us join again."""
        match event:
            case Subscribed(topics):
                self._topics = topics
                if self.phase is Phase.GONE:
                    self.phase = Phase.OUT
                return self._rejoin("the subscription has changed")
            case TopicsSeen(partitions):
                self._seen.update(partitions)
                return self._rejoin_if_stale()
            case RejoinAsked(reason):
                self._reason = reason
                return self._rejoin(reason)
            case Divided(divide):
                return self._divided_by(event, now_ms) if divide is self._awaited else []
            case DivideFailed(divide, error):
                return self._fail(error) if divide is self._awaited else []
            case Taken():
                return []
            case _:
                raise AssertionError(f"a classic member takes no {event}")

    # -- time ------------------------------------------------------------------------------------

    @property
    def _has_heartbeats(self) -> bool:
        return self.phase in (Phase.STABLE, Phase.RELEASING) and self._generation >= 0

    def _tick(self, now_ms: float) -> list[Effect]:
        if self.phase is Phase.OUT and now_ms >= self._join_at_ms:
            return self._join()
        if not self._has_heartbeats:
            return []
        if now_ms >= self._poll_until_ms:
            return self._expire()
        if self.phase is Phase.STABLE and now_ms >= self._rejoin_at_ms:
            return self._prepare()
        if self._heartbeat is None and now_ms >= self._heartbeat_at_ms:
            return self._beat(now_ms)
        return []

    def _polled(self, at_ms: float, now_ms: float) -> list[Effect]:
        self._poll_until_ms = at_ms + self.settings.max_poll_interval_ms
        if self.phase is Phase.FAILED:
            assert self._failure is not None
            return [Fail(self._failure)]
        if self.phase is Phase.OUT and self._topics is not None and self._join_at_ms == NEVER:
            return self._join()
        return self._tick(now_ms)

    def _beat(self, now_ms: float) -> list[Effect]:
        request = HeartbeatRequest(
            group_id=self.settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.settings.group_instance_id,
        )
        self._heartbeat = request
        self._heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms
        return [Send(request, HeartbeatResponse)]

    def _expire(self) -> list[Effect]:
        """The application has not polled for too long: leave, so that others get its partitions."""
        left = self._leave_request("max.poll.interval.ms has passed without a poll", None)
        self._forget_membership(keep_id=False)
        return left + self._lose()

    # -- joining -----------------------------------------------------------------------------------

    def _rejoin_if_stale(self) -> list[Effect]:
        """The leader looks after the topics that it divided."""
        if self._divided is None or not self._is_leader:
            return []
        changed = [
            topic for topic, count in self._divided.items() if self._seen.get(topic, 0) != count
        ]
        if not changed:
            return []
        return self._rejoin(f"the partitions of {sorted(changed)[0]} have changed")

    def _rejoin(self, reason: str) -> list[Effect]:
        """Join again, now or when what is under way has ended."""
        if self.phase in (Phase.JOINING, Phase.DIVIDING, Phase.SYNCING, Phase.RELEASING):
            self._reason = self._reason or reason
            return []
        if self.phase is not Phase.STABLE:
            return []
        if self._reason is None and self._topics == self._joined_topics and self._is_current():
            return []
        self._reason = reason
        return self._prepare()

    def _is_current(self) -> bool:
        """Whether the topics that we divided, if we did, are as they were."""
        if not self._is_leader or self._divided is None:
            return True
        return all(self._seen.get(topic, 0) == count for topic, count in self._divided.items())

    def _prepare(self) -> list[Effect]:
        """Give up what has to be given up before joining."""
        going = self.owned
        if self.is_cooperative:
            wanted = self._topics or frozenset()
            going = frozenset(key for key in self.owned if key.topic not in wanted)
        if going:
            return self._release(Release(going))
        return self._join()

    def _release(self, release: Release) -> list[Effect]:
        self.phase = Phase.RELEASING
        self._awaited = release
        return [release]

    def _released(self, release: Release) -> list[Effect]:
        """The application has no more of it; go on with what made it give that up."""
        self._awaited = None
        self.owned -= release.partitions
        if self._generation == _NO_GENERATION:
            if self.owned:
                return self._lose()
            if self._failure is not None:
                self.phase = Phase.FAILED
                return []
            return self._join()
        if self._to_take is not None:
            given, self._to_take = self._to_take, None
            return self._take(given) + self._prepare()
        return self._prepare()

    def _join(self) -> list[Effect]:
        """Send a JoinGroup; an assignor that raises is the application's to see."""
        assert self._topics is not None, "a member without a subscription joins nothing"
        settings = self.settings
        try:
            protocols = self._protocols(self._topics)
        except PluginError as error:
            return self._fail(error)
        self.phase = Phase.JOINING
        self._join_at_ms = self._rejoin_at_ms = NEVER
        self._joined_topics = self._topics
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=protocol.PROTOCOL_TYPE,
            protocols=protocols,
            reason=self._reason,
        )
        self._reason = None
        self._awaited = request
        timeout_ms = settings.max_poll_interval_ms + _JOIN_SLACK_MS
        return [Send(request, JoinGroupResponse, timeout_ms)]

    def _protocols(self, topics: frozenset[str]) -> list[JoinGroupRequestProtocol]:
        """What this member tells the leader, once for each assignor; raises PluginError."""
        owned = self.owned if self.is_cooperative else frozenset()
        found = []
        for name, assignor in self._assignors.items():
            try:
                user_data = assignor.subscription_user_data(topics)
            except Exception as error:
                raise raised(name, error) from error
            metadata = protocol.encode_subscription(
                topics, user_data, owned, generation=self._generation, rack=self.settings.rack
            )
            found.append(JoinGroupRequestProtocol(name=name, metadata=metadata))
        return found

    def _join_later(self, now_ms: float) -> list[Effect]:
        self.phase = Phase.OUT
        self._join_at_ms = now_ms + self.settings.retry_backoff_ms
        return []

    def _joined(self, answer: JoinGroupResponse, now_ms: float) -> list[Effect]:
        """The group's new generation."""
        if answer.protocol_type not in (None, protocol.PROTOCOL_TYPE):
            return self._fail(
                NotKafka(f"expected a group of consumers, found {answer.protocol_type!r}")
            )
        name = answer.protocol_name or ""
        if name not in self._assignors or not answer.member_id or answer.generation_id < 0:
            return self._fail(
                NotKafka(
                    f"expected one of {sorted(self._assignors)}, a member id and a generation, "
                    f"found {name!r}, {answer.member_id!r}, {answer.generation_id}"
                )
            )
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        self._protocol = name
        self._is_leader = answer.leader == answer.member_id
        self._divided = None
        if not self._is_leader:
            return self._sync({})
        if answer.skip_assignment:  # a static member that is back, and does not know what it gave
            if self.is_cooperative:
                self._expect_another_round(now_ms)
            return self._sync({})
        try:
            members = tuple(protocol.decode_member(member) for member in answer.members)
        except DecodeError as error:
            return self._fail(error)
        divide = Divide(name, tuple(sorted(members, key=lambda member: member.member_id)))
        self.phase = Phase.DIVIDING
        self._awaited = divide
        return [divide]

    def _divided_by(self, divided: Divided, now_ms: float) -> list[Effect]:
        self._divided = dict(divided.partitions)
        self._seen.update(divided.partitions)
        if not divided.is_complete:
            self._expect_another_round(now_ms)
        return self._sync(divided.assignments)

    def _expect_another_round(self, now_ms: float) -> None:
        """Who gives partitions up joins again; we do if it is back with none (KIP-345)."""
        self._rejoin_at_ms = now_ms + self.settings.max_poll_interval_ms

    def _sync(self, assignments: Mapping[str, MemberAssignment]) -> list[Effect]:
        request = SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.settings.group_instance_id,
            protocol_type=protocol.PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=protocol.encode_assignment(assignment)
                )
                for member_id, assignment in sorted(assignments.items())
            ],
        )
        self.phase = Phase.SYNCING
        self._awaited = request
        timeout_ms = self.settings.max_poll_interval_ms + _JOIN_SLACK_MS
        return [Send(request, SyncGroupResponse, timeout_ms)]

    def _synced(self, answer: SyncGroupResponse, now_ms: float) -> list[Effect]:
        """Our assignment."""
        if answer.protocol_type not in (None, protocol.PROTOCOL_TYPE) or (
            answer.protocol_name not in (None, self._protocol)
        ):
            found = f"{answer.protocol_type!r}, {answer.protocol_name!r}"
            return self._fail(NotKafka(f"expected {self._protocol!r}, found {found}"))
        try:
            assignment = protocol.decode_assignment(answer.assignment)
        except DecodeError as error:
            return self._fail(error)
        given = protocol.partitions_of(assignment)
        self.phase = Phase.STABLE
        self._awaited = None
        self._heartbeat = None
        self._heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms
        strange = {key.topic for key in given} - self._joined_topics
        if strange:
            self._reason = f"{sorted(strange)[0]} was assigned, and is not subscribed to"
            given = frozenset(key for key in given if key.topic in self._joined_topics)
        try:
            self._assignors[self._protocol].on_assignment(assignment, self._generation)
        except Exception as error:  # noqa: BLE001 - the application's poll raises it
            return self._fail(raised(self._protocol, error))
        going = self.owned - given
        if going:
            self._to_take = given
            self._reason = self._reason or "partitions were given up for others (KIP-429)"
            return self._release(Release(going))
        effects = self._take(given)
        if strange:  # not at once: the leader may see the same for a while
            self._rejoin_at_ms = now_ms + self.settings.retry_backoff_ms
            return effects
        if self._reason is not None or self._topics != self._joined_topics:
            return effects + self._rejoin(self._reason or "the subscription has changed")
        return effects + self._rejoin_if_stale()

    def _take(self, given: frozenset[TopicPartition]) -> list[Effect]:
        added = given - self.owned
        self.owned = given
        return [Take(added)]

    # -- answers -----------------------------------------------------------------------------------

    def _answered(self, request: object, answer: object, now_ms: float) -> list[Effect]:
        """Take an answer, unless it is to something that no longer matters."""
        if request is self._heartbeat:
            self._heartbeat = None
            return self._beaten(answer, now_ms) if self._has_heartbeats else []
        if request is not self._awaited:
            return []
        self._awaited = None
        refusal = _refusal(answer)
        if refusal is not None:
            return self._refused(request, answer, refusal, now_ms)
        if isinstance(answer, JoinGroupResponse):
            return self._joined(answer, now_ms)
        assert isinstance(answer, SyncGroupResponse), f"{answer} answers nothing of ours"
        return self._synced(answer, now_ms)

    def _refused(
        self, request: object, answer: object, refusal: Exception, now_ms: float
    ) -> list[Effect]:
        """A join or a sync was refused, or lost on the way."""
        if not isinstance(refusal, KafkaError):
            if isinstance(refusal, NotSupported | NotKafka):
                return self._fail(refusal)
            return [ForgetCoordinator(), *self._join_later(now_ms)]
        code = refusal.code
        if code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(answer, JoinGroupResponse):
            if not answer.member_id:
                return self._fail(NotKafka("expected a member id, found none"))
            self._member_id = answer.member_id
            return self._join()
        if code in _PUT_OUT:
            self._forget_membership(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
            return self._lose() if self.owned else self._join_later(now_ms)
        if code in _AGAIN or code.retriable:
            forget: list[Effect] = [ForgetCoordinator()] if code in _MOVED else []
            if code is ErrorCode.REBALANCE_IN_PROGRESS and isinstance(request, SyncGroupRequest):
                return self._join()  # somebody came meanwhile
            return forget + self._join_later(now_ms)
        return self._fail(refusal)

    def _beaten(self, answer: object, now_ms: float) -> list[Effect]:
        """A heartbeat was answered."""
        refusal = _refusal(answer)
        if refusal is None:
            return []
        soon_ms = now_ms + min(self.settings.retry_backoff_ms, self.settings.heartbeat_interval_ms)
        if not isinstance(refusal, KafkaError):
            self._heartbeat_at_ms = soon_ms
            return [ForgetCoordinator()]
        code = refusal.code
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.phase is Phase.RELEASING:
                return []
            self._reason = "the group rebalances"
            return self._prepare()
        if code in _PUT_OUT:
            self._forget_membership(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
            if self.owned:
                return self._lose()
            return self._join_later(now_ms)
        if code in _AGAIN or code.retriable:
            self._heartbeat_at_ms = soon_ms
            return [ForgetCoordinator()] if code in _MOVED else []
        return self._fail(refusal)

    def _fail(self, error: Exception) -> list[Effect]:
        """What no repeat by us cures: tell the application; its next poll tries again.

        A fenced static member never tries again: the other one would be fenced in turn.
        """
        self._awaited = None
        self._forget_membership(keep_id=True)
        self._join_at_ms = NEVER
        self.phase = Phase.OUT
        if isinstance(error, FencedInstanceId):
            self._failure = error
            self.phase = Phase.FAILED
        lost = self._lose() if self.owned else []
        return [*lost, Fail(error)]

    # -- ends --------------------------------------------------------------------------------------

    def _lose(self) -> list[Effect]:
        """The application learns that it has nothing any more; then we join anew."""
        if not self.owned:
            self.phase = Phase.OUT
            self._join_at_ms = NEVER
            return []
        self._to_take = None
        return self._release(Release(self.owned, lost=True))

    def _forget_membership(self, *, keep_id: bool) -> None:
        """The coordinator does not count us any more."""
        self._generation = _NO_GENERATION
        self._is_leader = False
        self._divided = None
        self._heartbeat = None
        self._heartbeat_at_ms = NEVER
        if not keep_id:
            self._member_id = ""

    def _leave_request(self, reason: str, leave_group: bool | None) -> list[Effect]:
        """Tell the coordinator, if it knows us and is to be told."""
        static = self.settings.group_instance_id
        leaves = static is None if leave_group is None else leave_group
        if not leaves or not self._member_id:
            return []
        request = LeaveGroupRequest(
            group_id=self.settings.group_id,
            members=[
                MemberIdentity(member_id=self._member_id, group_instance_id=static, reason=reason)
            ],
        )
        return [Send(request, LeaveGroupResponse)]

    def _leave(self, reason: str, leave_group: bool | None) -> list[Effect]:
        effects = self._leave_request(reason, leave_group)
        self._forget_membership(keep_id=False)
        self.phase = Phase.GONE
        self.owned = frozenset()
        self._topics = None
        self._awaited = self._to_take = self._reason = None
        self._join_at_ms = NEVER
        return effects

    def topics_to_watch(self) -> frozenset[str]:
        """Whose partitions matter: of a leader all that it divided."""
        return (self._topics or frozenset()) | frozenset(self._divided or ())


def _refusal(answer: object) -> Exception | None:
    """The error in an answer."""
    if isinstance(answer, Exception):
        assert isinstance(answer, KafkaError | ClientError | DecodeError), repr(answer)
        return answer
    assert isinstance(answer, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
    return error_of(answer.error_code, "group") if answer.error_code != ErrorCode.NONE else None
