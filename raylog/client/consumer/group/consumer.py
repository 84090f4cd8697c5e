"""A member of a KIP-848 group, without I/O: one request, ConsumerGroupHeartbeat, does all.

    OUT ──poll──▶ JOINING (epoch 0) ──▶ MEMBER ◀─ acknowledged ─ reconciling: release, then take
                     ▲                     │ fenced, unknown, too long without a poll
                     └── released as lost ─┘

The coordinator decides who has what, and matches patterns (v1). An answer may bring an assignment:
what is not in it is released first, what is new is taken, and then a heartbeat at once says what is
owned. Partitions that others have not given up yet are not in it. A field that has not changed is
left out; after a lost answer everything is said again. Leaving is epoch -1; a static member that
comes back leaves with -2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.consumer.group.events import (
    Answered,
    Effect,
    Event,
    Fail,
    ForgetCoordinator,
    LeaveAsked,
    LookUpTopics,
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
from raylog.client.errors import NotKafka, NotSupported
from raylog.wire.errors import ErrorCode, FencedInstanceId, KafkaError, error_of
from raylog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

NEVER = float("inf")
_NO_EPOCH = -1
_JOIN = 0
_LEAVE = -1
_LEAVE_STATIC = -2
_INTERVAL_MS = 5_000
"""Until the coordinator says its own."""
_LOOKS_DOUBLING = 5
"""So often the pause between two looks at metadata doubles."""
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_PUT_OUT = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Phase(Enum):
    """Where a member is; the module's docstring draws it."""

    OUT = auto()
    JOINING = auto()
    MEMBER = auto()
    LOSING = auto()
    """Put out: the application gives up what it has lost."""
    FAILED = auto()
    """Fenced: another member has our instance id."""
    GONE = auto()


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What the machine needs to know."""

    group_id: str
    member_id: str
    """Chosen by the client (KIP-1082); the same for as long as it lives."""
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    group_instance_id: str | None = None
    rack: str | None = None
    remote_assignor: str | None = None


class ConsumerMember:
    """One consumer's membership; `handle` takes an event and returns effects."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.phase = Phase.OUT
        self.owned: frozenset[TopicPartition] = frozenset()
        """What the application has, or is about to be given."""
        self._member_id = settings.member_id
        self._epoch = _NO_EPOCH
        self._wanted: Subscribed | None = None
        self._told: Subscribed | None = None
        """The subscription that the coordinator knows."""
        self._target: dict[bytes, frozenset[int]] | None = None
        """The assignment; None once it is carried out."""
        self._names: dict[bytes, str] = {}
        self._owned_ids: dict[str, bytes] = {}
        """Of the topics that we own partitions of: one that is made anew has another id."""
        self._unknown: frozenset[bytes] = frozenset()
        """Ids in the assignment whose names metadata did not tell yet."""
        self._looks = 0
        """How often metadata was asked for these."""
        self._look_up_at_ms = NEVER
        self._awaited: object = None
        """The heartbeat on its way."""
        self._release: Release | None = None
        self._is_full = True
        """Whether the next heartbeat says everything."""
        self._must_tell = False
        """Whether it says what is owned."""
        self._interval_ms: float = _INTERVAL_MS
        self._beat_at_ms = NEVER
        self._poll_until_ms = NEVER
        self._failure: Exception | None = None

    @property
    def metadata(self) -> GroupMetadata:
        """Whom the coordinator knows."""
        return GroupMetadata(
            self.settings.group_id, self._epoch, self._member_id, self.settings.group_instance_id
        )

    @property
    def is_rebalancing(self) -> bool:
        """Whether the coordinator holds an answer up: in this protocol it never does."""
        return False

    @property
    def next_ms(self) -> float:
        """When `Ticked` should come at the latest."""
        if self.phase is Phase.OUT:
            return self._beat_at_ms
        if self.phase is Phase.MEMBER:
            beat_ms = NEVER if self._awaited else self._beat_at_ms
            return min(self._poll_until_ms, self._look_up_at_ms, beat_ms)
        return NEVER

    def topics_to_watch(self) -> frozenset[str]:
        """Whose names and ids matter."""
        return self._wanted.topics if self._wanted is not None else frozenset()

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Take an event at a time that never goes back."""
        match event:
            case Ticked():
                return self._tick(now_ms)
            case Polled(at_ms):
                return self._polled(at_ms, now_ms)
            case Answered(request, answer):
                if request is not self._awaited:
                    return []
                self._awaited = None
                return self._answered(answer, now_ms)
            case Released(release):
                return self._released(release, now_ms)
            case LeaveAsked(_, leave_group):
                return self._leave(leave_group)
            case _:
                return self._changed(event, now_ms)

    def _changed(self, event: Event, now_ms: float) -> list[Effect]:
        match event:
            case Subscribed():
                if self.phase is Phase.GONE:
                    self.phase = Phase.OUT
                if event != self._wanted:
                    self._wanted = event
                    return self._beat_soon(now_ms)
                return []
            case TopicsSeen(_, names):
                self._names.update(names)
                return self._reconcile(now_ms)
            case RejoinAsked():
                return self._beat_soon(now_ms)
            case Taken():
                return []
            case _:
                raise AssertionError(f"a member of a KIP-848 group takes no {event}")

    # -- time ------------------------------------------------------------------------------------

    def _tick(self, now_ms: float) -> list[Effect]:
        if self.phase is Phase.OUT and now_ms >= self._beat_at_ms:
            return self._join()
        if self.phase is not Phase.MEMBER:
            return []
        if now_ms >= self._poll_until_ms:
            is_static = self.settings.group_instance_id is not None
            effects = self._leave_request(_LEAVE_STATIC if is_static else _LEAVE)
            return effects + self._put_out()
        if now_ms >= self._look_up_at_ms:
            self._look_up_at_ms = NEVER
            return [LookUpTopics(self._unknown)]
        if self._awaited is None and now_ms >= self._beat_at_ms:
            return self._beat(now_ms)
        return []

    def _polled(self, at_ms: float, now_ms: float) -> list[Effect]:
        self._poll_until_ms = at_ms + self.settings.max_poll_interval_ms
        if self.phase is Phase.FAILED:
            assert self._failure is not None, "that is why"
            return [Fail(self._failure)]
        if self.phase is Phase.OUT and self._wanted is not None and self._beat_at_ms == NEVER:
            return self._join()
        return self._tick(now_ms)

    def _beat_soon(self, now_ms: float) -> list[Effect]:
        """Say what is new without waiting for the next heartbeat."""
        if self.phase is not Phase.MEMBER:
            return []
        self._beat_at_ms = now_ms
        return self._tick(now_ms)

    # -- heartbeats --------------------------------------------------------------------------------

    def _join(self) -> list[Effect]:
        self.phase = Phase.JOINING
        self._epoch = _NO_EPOCH
        self._is_full = True
        self._target = None
        self._beat_at_ms = NEVER
        return self._send(_JOIN, [])

    def _beat(self, now_ms: float) -> list[Effect]:
        self._beat_at_ms = now_ms + self._interval_ms
        owned = self._grouped(self.owned) if self._is_full or self._must_tell else None
        return self._send(self._epoch, owned)

    def _send(self, epoch: int, owned: list[TopicPartitions] | None) -> list[Effect]:
        settings, wanted, full = self.settings, self._wanted, self._is_full
        assert wanted is not None, "a member without a subscription joins nothing"
        says_topics = full or wanted != self._told
        pattern: str | None = None
        if says_topics and (wanted.pattern or (self._told is not None and self._told.pattern)):
            pattern = wanted.pattern or ""
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=settings.group_instance_id,
            rack_id=settings.rack if full else None,
            rebalance_timeout_ms=settings.max_poll_interval_ms if full else -1,
            subscribed_topic_names=sorted(wanted.topics) if says_topics else None,
            subscribed_topic_regex=pattern,
            server_assignor=settings.remote_assignor if full else None,
            topic_partitions=owned,
        )
        self._told = wanted
        self._is_full = self._must_tell = False
        self._awaited = request
        return [Send(request, ConsumerGroupHeartbeatResponse)]

    def _answered(self, answer: object, now_ms: float) -> list[Effect]:
        if self.phase not in (Phase.JOINING, Phase.MEMBER):
            return []
        if isinstance(answer, Exception):
            return self._refused(answer, now_ms)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse), f"{answer} answers no heartbeat"
        if answer.error_code != ErrorCode.NONE:
            told = answer.error_message or "group"
            return self._refused(error_of(answer.error_code, told), now_ms)
        if answer.member_epoch < _JOIN or answer.heartbeat_interval_ms <= 0:
            return self._fail(NotKafka(f"expected an epoch and an interval, found {answer}"))
        if answer.member_epoch < self._epoch:
            return []  # overtaken
        self.phase = Phase.MEMBER
        self._epoch = answer.member_epoch
        self._member_id = answer.member_id or self._member_id
        self._interval_ms = answer.heartbeat_interval_ms
        self._beat_at_ms = now_ms + self._interval_ms
        if answer.assignment is not None:
            self._target = {
                one.topic_id: frozenset(one.partitions)
                for one in answer.assignment.topic_partitions
            }
        return self._reconcile(now_ms) + (self._beat_soon(now_ms) if self._has_news else [])

    @property
    def _has_news(self) -> bool:
        return self._awaited is None and self._wanted != self._told

    def _refused(self, error: Exception, now_ms: float) -> list[Effect]:
        self._is_full = True
        code = error.code if isinstance(error, KafkaError) else None
        if code in _PUT_OUT:
            return self._put_out() or self._join()
        if isinstance(error, NotSupported | NotKafka) or (code is not None and not code.retriable):
            return self._fail(error)
        if self.phase is Phase.JOINING:
            self.phase = Phase.OUT
        self._beat_at_ms = now_ms + self.settings.retry_backoff_ms
        return [ForgetCoordinator()] if code is None or code in _MOVED else []

    # -- reconciliation ----------------------------------------------------------------------------

    def _reconcile(self, now_ms: float) -> list[Effect]:
        """Carry the assignment out as far as its topics' names are known."""
        if self._target is None or self._release is not None or self.phase is not Phase.MEMBER:
            return []
        names = self._names
        known = {topic_id: names[topic_id] for topic_id in self._target if topic_id in names}
        wanted = frozenset(
            TopicPartition(name, partition)
            for topic_id, name in known.items()
            for partition in self._target[topic_id]
        )
        unknown = self._target.keys() - known.keys()
        going = self.owned - wanted
        going |= {key for key in self.owned if self._owned_ids[key.topic] not in known}
        if going:
            self._release = Release(going)
            return [self._release]
        effects: list[Effect] = []
        added = wanted - self.owned
        if added or not unknown:
            self.owned = wanted
            self._owned_ids = {name: topic_id for topic_id, name in known.items()}
            self._must_tell = True
            effects.append(Take(added))
        if unknown:
            self._look_up(frozenset(unknown), now_ms)
        else:
            self._target = None
            self._look_up_at_ms = NEVER
        return effects + (self._beat_soon(now_ms) if self._must_tell else [])

    def _look_up(self, unknown: frozenset[bytes], now_ms: float) -> None:
        """Have metadata asked for names: at once, then later each time that it does not know."""
        self._looks = self._looks + 1 if unknown == self._unknown else 0
        self._unknown = unknown
        pause_ms = self.settings.retry_backoff_ms * 2 ** min(self._looks - 1, _LOOKS_DOUBLING)
        self._look_up_at_ms = now_ms + (pause_ms if self._looks else 0)

    def _released(self, release: Release, now_ms: float) -> list[Effect]:
        if release is not self._release:
            return []
        self._release = None
        self.owned -= release.partitions
        if self.phase is Phase.LOSING:
            if self._failure is not None:
                self.phase = Phase.FAILED
                return []
            self.phase = Phase.OUT
            return self._join()
        self._must_tell = True
        return self._reconcile(now_ms)

    # -- ends --------------------------------------------------------------------------------------

    def _put_out(self) -> list[Effect]:
        """The coordinator does not count us any more: what we have is lost."""
        self._epoch = _NO_EPOCH
        self._target = None
        self._awaited = None
        self._beat_at_ms = NEVER
        self.phase = Phase.OUT
        if not self.owned:
            self._release = None
            return []
        self.phase = Phase.LOSING
        self._release = Release(self.owned, lost=True)
        return [self._release]

    def _fail(self, error: Exception) -> list[Effect]:
        """What no repeat by us cures: tell the application; its next poll tries again.

        A fenced static member never tries again: the other one would be fenced in turn.
        """
        effects = self._put_out()
        if isinstance(error, FencedInstanceId):
            self._failure = error
            if not effects:
                self.phase = Phase.FAILED
        return [*effects, Fail(error)]

    def _leave_request(self, epoch: int) -> list[Effect]:
        if self._epoch < _JOIN and self.phase is not Phase.JOINING:
            return []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self.settings.group_instance_id,
        )
        return [Send(request, ConsumerGroupHeartbeatResponse)]

    def _leave(self, leave_group: bool | None) -> list[Effect]:
        is_static = self.settings.group_instance_id is not None
        effects: list[Effect] = []
        if leave_group is not False or is_static:
            stays = is_static and not leave_group
            effects = self._leave_request(_LEAVE_STATIC if stays else _LEAVE)
        self._put_out()
        self.owned = frozenset()
        self._release = None
        self._wanted = self._told = None
        self.phase = Phase.GONE
        return effects

    def _grouped(self, keys: Iterable[TopicPartition]) -> list[TopicPartitions]:
        """Partitions as the coordinator names them."""
        ids = self._owned_ids
        return [
            TopicPartitions(topic_id=ids[topic], partitions=[key.partition for key in some])
            for topic, some in by_topic(sorted(keys)).items()
        ]
