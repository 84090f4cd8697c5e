"""A member of a KIP-848 group, without I/O. Its only request is ConsumerGroupHeartbeat.

    OUT ──poll──▶ JOINING (epoch 0) ──▶ MEMBER ◀─ acknowledged ─ reconciling: release, then take
                     ▲                     │ fenced, unknown, too long without a poll
                     └── released as lost ─┘

The coordinator assigns partitions and matches patterns (v1). When a response brings an assignment,
the member first releases the partitions that are not in it, then takes the new ones, and at once
sends a heartbeat with what it owns. Partitions that other members have not given up yet are not in
the assignment. Fields that have not changed are left out; after a lost response every field is sent
again. Epoch -1 leaves the group; -2 leaves as a static member that will come back.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from raylog.client.consumer.group.member_settings import MemberSettings
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import NotKafka, NotSupported
from raylog.client.refusals import refusal
from raylog.client.retries import MEMBERSHIP_ENDED, backoff_ms, code_of, has_coordinator_moved
from raylog.wire.errors import FencedInstanceId, KafkaError
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
"""Used until the coordinator sends its own interval."""
_LOOK_MS_FACTOR_MAX = 32
"""The longest pause between metadata lookups, as a multiple of the first."""


class Phase(Enum):
    """A member's phase; the module's docstring shows the transitions."""

    OUT = auto()
    JOINING = auto()
    MEMBER = auto()
    LOSING = auto()
    """No longer a member; the application is giving up its lost partitions."""
    FAILED = auto()
    """Fenced: another member has the same group.instance.id."""
    GONE = auto()


class ConsumerMember:
    """One consumer's membership; `handle` takes an event and returns effects."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.phase = Phase.OUT
        self.owned: frozenset[TopicPartition] = frozenset()
        """Partitions that the application has, or is about to get."""
        self._member_id = settings.member_id
        self._epoch = _NO_EPOCH
        self._wanted: Subscribed | None = None
        self._sent: Subscribed | None = None
        """The subscription that was last sent to the coordinator."""
        self._target: dict[bytes, frozenset[int]] | None = None
        """The assignment; None once it has been applied."""
        self._names: dict[bytes, str] = {}
        self._owned_ids: dict[str, bytes] = {}
        """Ids of topics with owned partitions: a recreated topic has another id."""
        self._unknown: frozenset[bytes] = frozenset()
        """Topic ids in the assignment whose names metadata does not have yet."""
        self._looks = 0
        """How often metadata was asked for them."""
        self._look_up_at_ms = NEVER
        self._awaited: object = None
        """The heartbeat in flight."""
        self._release: Release | None = None
        self._is_full = True
        """Whether the next heartbeat is a full one."""
        self._must_tell = False
        """Whether the next heartbeat lists the owned partitions."""
        self._interval_ms: float = _INTERVAL_MS
        self._beat_at_ms = NEVER
        self._poll_until_ms = NEVER
        self._failure: Exception | None = None

    @property
    def metadata(self) -> GroupMetadata:
        """The member as the coordinator knows it."""
        return GroupMetadata(
            self.settings.group_id, self._epoch, self._member_id, self.settings.group_instance_id
        )

    @property
    def is_rebalancing(self) -> bool:
        """Whether a join waits for other members: never in this protocol."""
        return False

    @property
    def needs_poll(self) -> bool:
        """Whether the next `Polled` makes it join, or report its failure again."""
        if self.phase is Phase.OUT:
            return self._wanted is not None and self._beat_at_ms == NEVER
        return self.phase is Phase.FAILED

    @property
    def next_ms(self) -> float:
        """The latest time for the next `Ticked`."""
        if self.phase is Phase.OUT:
            return self._beat_at_ms
        if self.phase is Phase.MEMBER:
            beat_ms = NEVER if self._awaited else self._beat_at_ms
            return min(self._poll_until_ms, self._look_up_at_ms, beat_ms)
        return NEVER

    def topics_to_watch(self) -> frozenset[str]:
        """Return the topics whose names and ids matter."""
        return self._wanted.topics if self._wanted is not None else frozenset()

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Handle an event. `now_ms` must never go back."""
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
        return self._join() if self.needs_poll else self._tick(now_ms)

    def _beat_soon(self, now_ms: float) -> list[Effect]:
        """Send changes at once instead of with the next heartbeat."""
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
        says_topics = full or wanted != self._sent
        pattern: str | None = None
        if says_topics and (wanted.pattern or (self._sent is not None and self._sent.pattern)):
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
        self._sent = wanted
        self._is_full = self._must_tell = False
        self._awaited = request
        return [Send(request, ConsumerGroupHeartbeatResponse)]

    def _answered(self, answer: object, now_ms: float) -> list[Effect]:
        if self.phase not in (Phase.JOINING, Phase.MEMBER):
            return []
        if isinstance(answer, Exception):
            return self._refused(answer, now_ms)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse), f"{answer} answers no heartbeat"
        error = refusal(answer.error_code, answer.error_message or "group")
        if error is not None:
            return self._refused(error, now_ms)
        if answer.member_epoch < _JOIN or answer.heartbeat_interval_ms <= 0:
            return self._fail(NotKafka(f"expected an epoch and an interval, found {answer}"))
        if answer.member_epoch < self._epoch:
            return []  # outdated
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
        return self._awaited is None and self._wanted != self._sent

    def _refused(self, error: Exception, now_ms: float) -> list[Effect]:
        self._is_full = True
        if code_of(error) in MEMBERSHIP_ENDED:
            return self._put_out() or self._join()
        is_final = isinstance(error, KafkaError) and not error.code.retriable
        if is_final or isinstance(error, NotSupported | NotKafka):
            return self._fail(error)
        if self.phase is Phase.JOINING:
            self.phase = Phase.OUT
        self._beat_at_ms = now_ms + self.settings.retry_backoff_ms
        return [ForgetCoordinator()] if has_coordinator_moved(error) else []

    # -- reconciliation ----------------------------------------------------------------------------

    def _reconcile(self, now_ms: float) -> list[Effect]:
        """Apply the assignment as far as its topics' names are known."""
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
        """Schedule a metadata lookup of names: at once, then with exponential backoff."""
        self._looks = self._looks + 1 if unknown == self._unknown else 0
        self._unknown = unknown
        first_ms = self.settings.retry_backoff_ms
        pause_ms = backoff_ms(first_ms, _LOOK_MS_FACTOR_MAX * first_ms, self._looks - 1)
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

    # -- end of membership -------------------------------------------------------------------------

    def _put_out(self) -> list[Effect]:
        """End the membership: owned partitions are lost."""
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
        """Report a non-retriable error to the application; its next poll rejoins.

        A fenced static member never rejoins: it would fence the other member in turn.
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
        self._wanted = self._sent = None
        self.phase = Phase.GONE
        return effects

    def _grouped(self, keys: Iterable[TopicPartition]) -> list[TopicPartitions]:
        """Group partitions by topic id, for a request."""
        ids = self._owned_ids
        return [
            TopicPartitions(topic_id=ids[topic], partitions=[key.partition for key in some])
            for topic, some in by_topic(sorted(keys)).items()
        ]
