"""What exists at the broker, as far as the fuzzer was told: it makes most requests sensible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from raylog.wire.api import ApiKey
from raylog.wire.error_codes import ErrorCode
from raylog.wire.errors import DecodeError, KafkaError
from raylog.wire.records import read_header

T = TypeVar("T")
BASE = "base-"
"""Topics that stay: requests may write, read, cut them, but not delete or configure them."""

SCRATCH = "scratch-"
"""Topics that requests make, change and delete."""

GOOD = "good-"
"""What belongs to the good clients: topics, groups, transactional ids. Never learned."""

SCRATCH_COUNT = 6
MEMBERS_MAX = 6
PRODUCERS_MAX = 3
"""Of those with a transactional id, and of those without."""

SESSIONS_MAX = 3


@dataclass(slots=True)
class Topic:
    """A topic that exists, or existed when it was last heard of."""

    name: str
    topic_id: bytes
    partitions: int
    ends: dict[int, int] = field(default_factory=dict)
    """Partition -> a log end offset that was seen."""


@dataclass(slots=True)
class Member:
    """A member of a group. `epoch` is the generation (classic) or the member epoch (KIP-848)."""

    group_id: str
    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None
    is_classic: bool = True
    assigned: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Producer:
    """A producer id; `transactional_id` is None for one that is only idempotent."""

    transactional_id: str | None
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """A fetch session (KIP-227) and the epoch that comes next."""

    session_id: int
    epoch: int = 1


@dataclass(slots=True)
class Cluster:
    """What all episodes share and none changes."""

    base: list[Topic] = field(default_factory=list)
    cluster_id: str = ""
    broker_ids: list[int] = field(default_factory=list)
    directory_ids: list[bytes] = field(default_factory=list)
    topic_settings: list[tuple[str, str]] = field(default_factory=list)
    features: list[tuple[str, int]] = field(default_factory=list)


class World:
    """The state of one episode. `owner` keeps its groups and ids apart from other episodes'."""

    def __init__(self, cluster: Cluster, owner: str) -> None:
        self.cluster = cluster
        self.classic_groups = [f"{owner}-classic-{n}" for n in range(4)]
        self.consumer_groups = [f"{owner}-consumer-{n}" for n in range(2)]
        self.transactional_ids = [f"{owner}-transaction-{n}" for n in range(2)]
        self.instance_ids = [f"{owner}-instance-{n}" for n in range(2)]
        self.scratch: dict[str, Topic] = {}
        self.members: list[Member] = []
        self.producers: list[Producer] = []
        self.sessions: list[Session] = []
        self._ignores_refusals = False

    def learn(self, request: Any, answer: Any, api_key: ApiKey, *, is_spoiled: bool) -> None:
        """Take in what an answer tells; after a request with extremes a refusal tells nothing."""
        self._ignores_refusals = is_spoiled
        learner = _LEARNERS.get(api_key)
        if learner is not None:
            learner(self, request, answer)

    # -- one for each API that tells something -------------------------------------------------

    def _topics(self, _: Any, answer: Any) -> None:
        for topic in answer.topics:
            if topic.error_code == 0 and (topic.name or "").startswith(SCRATCH):
                self.scratch[topic.name] = Topic(
                    topic.name, topic.topic_id, max(1, len(topic.partitions))
                )

    def _created(self, _: Any, answer: Any) -> None:
        for topic in answer.topics:
            if topic.error_code == 0 and topic.name.startswith(SCRATCH):
                self.scratch[topic.name] = Topic(
                    topic.name, topic.topic_id, max(1, topic.num_partitions)
                )

    def _deleted(self, _: Any, answer: Any) -> None:
        for topic in answer.responses:
            if topic.error_code == 0:
                self.scratch.pop(topic.name or "", None)

    def _joined(self, request: Any, answer: Any) -> None:
        if answer.error_code not in (0, ErrorCode.MEMBER_ID_REQUIRED):
            return self._member_gone(request, answer)
        member = self._member(request.group_id, answer.member_id)
        member.instance_id = request.group_instance_id
        member.epoch = answer.generation_id
        return None

    def _beaten(self, request: Any, answer: Any) -> None:
        if answer.error_code:
            return self._member_gone(request, answer)
        if answer.member_id:
            member = self._member(request.group_id, answer.member_id)
            member.is_classic = False
            member.instance_id = request.instance_id
            member.epoch = max(0, answer.member_epoch)
            if answer.assignment is not None:
                member.assigned = answer.assignment.topic_partitions
        return None

    def _member(self, group_id: str, member_id: str) -> Member:
        for member in self.members:
            if member.group_id == group_id and member.member_id == member_id:
                return member
        return _keep(self.members, Member(group_id, member_id), MEMBERS_MAX)

    def _member_gone(self, request: Any, answer: Any) -> None:
        if not self._ignores_refusals and answer.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.ILLEGAL_GENERATION,
        ):
            asked = (request.group_id, request.member_id)
            self.members = [m for m in self.members if (m.group_id, m.member_id) != asked]

    def _initialized(self, request: Any, answer: Any) -> None:
        if answer.error_code or (request.transactional_id or "").startswith(GOOD):
            return
        wanted = request.transactional_id
        for producer in self.producers:
            if wanted is not None and producer.transactional_id == wanted:
                producer.producer_id = answer.producer_id
                producer.producer_epoch = answer.producer_epoch
                producer.sequences.clear()
                return
        made = Producer(wanted, answer.producer_id, answer.producer_epoch)
        alike = [p for p in self.producers if (p.transactional_id is None) == (wanted is None)]
        others = [p for p in self.producers if p not in alike]
        self.producers = [*others, *alike[1 - PRODUCERS_MAX :], made]

    def _ended(self, request: Any, answer: Any) -> None:
        if answer.error_code or answer.producer_id < 0:
            return
        for producer in self.producers:
            if producer.transactional_id == request.transactional_id:
                producer.producer_id = answer.producer_id
                producer.producer_epoch = answer.producer_epoch
                producer.sequences.clear()

    def _fetched(self, request: Any, answer: Any) -> None:
        known = {session.session_id: session for session in self.sessions}
        if answer.error_code and self._ignores_refusals:
            return
        if answer.error_code:
            self.sessions = [s for s in self.sessions if s.session_id != request.session_id]
        elif answer.session_id and answer.session_id in known:
            known[answer.session_id].epoch += 1
        elif answer.session_id:
            _keep(self.sessions, Session(answer.session_id), SESSIONS_MAX)
        by_id = {topic.topic_id: topic for topic in self.cluster.base}
        by_name = {topic.name: topic for topic in self.cluster.base}
        for answered in answer.responses:
            found = by_name.get(answered.topic) or by_id.get(answered.topic_id)
            if found is not None:
                for part in answered.partitions:
                    if part.high_watermark >= 0:
                        found.ends[part.partition_index] = part.high_watermark

    def _produced(self, request: Any, answer: Any) -> None:
        # An idempotent producer is out of order from its first refused batch on: it is let go of.
        if any(part.error_code for topic in answer.responses for part in topic.partition_responses):
            ids = {
                _producer_id(part.records)
                for topic in request.topic_data
                for part in topic.partition_data
            }
            self.producers = [
                p for p in self.producers if p.transactional_id or p.producer_id not in ids
            ]


_Learner = Callable[[World, Any, Any], None]
_LEARNERS: dict[ApiKey, _Learner] = {
    ApiKey.METADATA: World._topics,
    ApiKey.CREATE_TOPICS: World._created,
    ApiKey.DELETE_TOPICS: World._deleted,
    ApiKey.JOIN_GROUP: World._joined,
    ApiKey.SYNC_GROUP: World._member_gone,
    ApiKey.HEARTBEAT: World._member_gone,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: World._beaten,
    ApiKey.INIT_PRODUCER_ID: World._initialized,
    ApiKey.END_TXN: World._ended,
    ApiKey.FETCH: World._fetched,
    ApiKey.PRODUCE: World._produced,
}


def _producer_id(batch: bytes | None) -> int:
    """That of a batch's header; -1 where there is none."""
    try:
        return read_header(batch or b"").producer_id
    except (DecodeError, KafkaError):
        return -1


def _keep(items: list[T], item: T, most: int) -> T:
    """Append, and let go of the oldest beyond `most`."""
    items.append(item)
    del items[:-most]
    return item


def pick(rng: Random, items: list[T], otherwise: T, chance: float = 0.9) -> T:
    """One of `items` in most cases, else `otherwise`."""
    return rng.choice(items) if items and rng.random() < chance else otherwise
