"""A member of a classic group, without I/O.

    OUT ──poll──▶ JOINING ──leader──▶ DIVIDING ──▶ SYNCING ──▶ STABLE
                     ▲  └───────follower────────────▲             │ REBALANCE_IN_PROGRESS,
                     │                                            ▼ new topics, enforce_rebalance
                     └──────────── released ─────────────── RELEASING

The shell sends FindCoordinator. Eager members give up all partitions before they rejoin.
Cooperative members (KIP-429, when every assignor is cooperative) keep theirs, learn from the sync
which ones move, give those up and rejoin. Heartbeats stop during joins and syncs, and continue
while the application gives partitions up. An error that ends the membership (UNKNOWN_MEMBER_ID,
ILLEGAL_GENERATION) makes all partitions lost. When the coordinator moves, generation and assignment
survive; only a join in progress is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from raylog.client.consumer.group.member_settings import MemberSettings
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import ClientError, NotKafka, NotSupported
from raylog.client.refusals import refusal
from raylog.client.retries import MEMBERSHIP_ENDED, has_coordinator_moved, is_retriable
from raylog.wire.errors import DecodeError, ErrorCode, FencedInstanceId, KafkaError
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
"""How much later than the rebalance timeout a JoinGroup response may come."""


class Phase(Enum):
    """A member's phase; the module's docstring shows the transitions."""

    OUT = auto()
    JOINING = auto()
    DIVIDING = auto()
    SYNCING = auto()
    STABLE = auto()
    RELEASING = auto()
    FAILED = auto()
    """Fenced: another member has the same group.instance.id."""
    GONE = auto()


class ClassicMember:
    """One consumer's membership; `handle` takes an event and returns effects."""

    def __init__(self, settings: MemberSettings, assignors: Sequence[Assignor]) -> None:
        """`assignors` are in order of preference."""
        self.settings = settings
        self.phase = Phase.OUT
        self.owned: frozenset[TopicPartition] = frozenset()
        """Partitions that the application has, or is about to get."""
        self.is_cooperative = all(assignor.cooperative for assignor in assignors)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._topics: frozenset[str] | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._member_id = ""
        self._generation = _NO_GENERATION
        self._protocol = ""
        self._is_leader = False
        self._divided: Mapping[str, int] | None = None
        """The partition counts that the assignor used, if this member ran it."""
        self._seen: dict[str, int] = {}
        self._awaited: object = None
        """The request, Divide or Release whose outcome comes next."""
        self._heartbeat: object = None
        """The heartbeat in flight."""
        self._heartbeat_at_ms = NEVER
        self._join_at_ms = NEVER
        """When to join; NEVER: when the application polls."""
        self._rejoin_at_ms = NEVER
        """When a stable member rejoins, because a further rebalance is needed."""
        self._poll_until_ms = NEVER
        self._reason: str | None = None
        """Why to rejoin as soon as possible."""
        self._to_take: frozenset[TopicPartition] | None = None
        """The assignment to take once a release is done."""
        self._failure: Exception | None = None

    @property
    def metadata(self) -> GroupMetadata:
        """The member as the coordinator knows it."""
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
    def needs_poll(self) -> bool:
        """Whether the next `Polled` makes it join, or report its failure again."""
        if self.phase is Phase.OUT:
            return self._topics is not None and self._join_at_ms == NEVER
        return self.phase is Phase.FAILED

    @property
    def next_ms(self) -> float:
        """The latest time for the next `Ticked`."""
        if self.phase is Phase.OUT:
            return self._join_at_ms
        if self._has_heartbeats:
            beat_ms = NEVER if self._heartbeat is not None else self._heartbeat_at_ms
            rejoin_ms = self._rejoin_at_ms if self.phase is Phase.STABLE else NEVER
            return min(self._poll_until_ms, rejoin_ms, beat_ms)
        return NEVER

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Handle an event. `now_ms` must never go back."""
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
        """Handle events that may require a rejoin."""
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
                if divide is not self._awaited:
                    return []
                return self._join_later(now_ms) if is_retriable(error) else self._fail(error)
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
        return self._join() if self.needs_poll else self._tick(now_ms)

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
        """Leave the group after too long without a poll, so that others get the partitions."""
        left = self._leave_request("max.poll.interval.ms has passed without a poll", None)
        self._forget_membership(keep_id=False)
        return left + self._lose()

    # -- joining -----------------------------------------------------------------------------------

    def _rejoin_if_stale(self) -> list[Effect]:
        """Rejoin if this member leads and the topics it assigned have changed."""
        if self._divided is None or not self._is_leader:
            return []
        changed = [
            topic for topic, count in self._divided.items() if self._seen.get(topic, 0) != count
        ]
        if not changed:
            return []
        return self._rejoin(f"the partitions of {sorted(changed)[0]} have changed")

    def _rejoin(self, reason: str) -> list[Effect]:
        """Rejoin now, or when the step in progress has ended."""
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
        """Return whether the topics that this leader assigned are unchanged; True for followers."""
        if not self._is_leader or self._divided is None:
            return True
        return all(self._seen.get(topic, 0) == count for topic, count in self._divided.items())

    def _prepare(self) -> list[Effect]:
        """Release what must be released before joining, then join."""
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
        """Continue with what the release was for."""
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
        """Send a JoinGroup, or report an assignor's error to the application."""
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
        """Return the subscription for each assignor, for the leader; raise PluginError."""
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
        """Handle a successful JoinGroup: a new generation."""
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
        if answer.skip_assignment:  # a static member that returns, and cannot know what it assigned
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
        """Plan a rejoin, in case members that give partitions up do not rejoin (KIP-345)."""
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
        """Handle a successful SyncGroup: this member's assignment."""
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
        if strange:  # not at once: the leader may see the same metadata for a while
            self._rejoin_at_ms = now_ms + self.settings.retry_backoff_ms
            return effects
        if self._reason is not None or self._topics != self._joined_topics:
            return effects + self._rejoin(self._reason or "the subscription has changed")
        return effects + self._rejoin_if_stale()

    def _take(self, given: frozenset[TopicPartition]) -> list[Effect]:
        added = given - self.owned
        self.owned = given
        return [Take(added)]

    # -- responses ---------------------------------------------------------------------------------

    def _answered(self, request: object, answer: object, now_ms: float) -> list[Effect]:
        """Handle a response, unless its request no longer matters."""
        if request is self._heartbeat:
            self._heartbeat = None
            return self._beaten(answer, now_ms) if self._has_heartbeats else []
        if request is not self._awaited:
            return []
        self._awaited = None
        error = _error_in(answer)
        if error is not None:
            return self._refused(request, answer, error, now_ms)
        if isinstance(answer, JoinGroupResponse):
            return self._joined(answer, now_ms)
        assert isinstance(answer, SyncGroupResponse), f"{answer} answers nothing of ours"
        return self._synced(answer, now_ms)

    def _refused(
        self, request: object, answer: object, error: Exception, now_ms: float
    ) -> list[Effect]:
        """Handle a join or sync that was refused or lost."""
        if not isinstance(error, KafkaError):
            if isinstance(error, NotSupported | NotKafka):
                return self._fail(error)
            return [ForgetCoordinator(), *self._join_later(now_ms)]
        code = error.code
        if code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(answer, JoinGroupResponse):
            if not answer.member_id:
                return self._fail(NotKafka("expected a member id, found none"))
            self._member_id = answer.member_id
            return self._join()
        if code in MEMBERSHIP_ENDED:
            self._forget_membership(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
            return self._lose() if self.owned else self._join_later(now_ms)
        if code is ErrorCode.REBALANCE_IN_PROGRESS or code.retriable:
            forget: list[Effect] = [ForgetCoordinator()] if has_coordinator_moved(error) else []
            if code is ErrorCode.REBALANCE_IN_PROGRESS and isinstance(request, SyncGroupRequest):
                return self._join()  # a new member joined meanwhile
            return forget + self._join_later(now_ms)
        return self._fail(error)

    def _beaten(self, answer: object, now_ms: float) -> list[Effect]:
        """Handle a heartbeat's response."""
        error = _error_in(answer)
        if error is None:
            return []
        soon_ms = now_ms + min(self.settings.retry_backoff_ms, self.settings.heartbeat_interval_ms)
        if not isinstance(error, KafkaError):
            self._heartbeat_at_ms = soon_ms
            return [ForgetCoordinator()]
        code = error.code
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.phase is Phase.RELEASING:
                return []
            self._reason = "the group rebalances"
            return self._prepare()
        if code in MEMBERSHIP_ENDED:
            self._forget_membership(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
            if self.owned:
                return self._lose()
            return self._join_later(now_ms)
        if code.retriable:
            self._heartbeat_at_ms = soon_ms
            return [ForgetCoordinator()] if has_coordinator_moved(error) else []
        return self._fail(error)

    def _fail(self, error: Exception) -> list[Effect]:
        """Report a non-retriable error to the application; its next poll rejoins.

        A fenced static member never rejoins: it would fence the other member in turn.
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

    # -- end of membership -------------------------------------------------------------------------

    def _lose(self) -> list[Effect]:
        """Tell the application that all its partitions are lost, then join afresh."""
        if not self.owned:
            self.phase = Phase.OUT
            self._join_at_ms = NEVER
            return []
        self._to_take = None
        return self._release(Release(self.owned, lost=True))

    def _forget_membership(self, *, keep_id: bool) -> None:
        """Drop the generation, which the coordinator no longer accepts."""
        self._generation = _NO_GENERATION
        self._is_leader = False
        self._divided = None
        self._heartbeat = None
        self._heartbeat_at_ms = NEVER
        if not keep_id:
            self._member_id = ""

    def _leave_request(self, reason: str, leave_group: bool | None) -> list[Effect]:
        """Return a LeaveGroup request, if the member has an id and is to leave."""
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
        """Return the topics to watch; a leader also watches those it assigned."""
        return (self._topics or frozenset()) | frozenset(self._divided or ())


def _error_in(answer: object) -> Exception | None:
    """Return the error in an answer, if any."""
    if isinstance(answer, Exception):
        assert isinstance(answer, KafkaError | ClientError | DecodeError), repr(answer)
        return answer
    assert isinstance(answer, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
    return refusal(answer.error_code, "group")
