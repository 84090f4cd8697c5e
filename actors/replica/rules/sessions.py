"""Fetch sessions: what a gateway or follower watches, which partitions have news, what it is sent.

A session remembers its interests, so a request names only changes, and only partitions with news
are checked: the cost does not depend on the number of watched partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.replica.messages import (
    READ_COMMITTED,
    FetchAsk,
    FetchedPartition,
    Interest,
    ReplicaInterest,
    ReplicatedPart,
)
from raylog.actors.replica.rules.divergence import divergence
from raylog.actors.replica.rules.machine import PartitionMachine
from raylog.storage.epochs import LeaderEpochs
from raylog.wire.errors import ErrorCode, FencedLeaderEpoch, KafkaError, NotLeaderOrFollower

LOOKS_MAX = 250
"""Partitions of a gateway's session checked in one go."""
W = TypeVar("W", Interest, ReplicaInterest)
ReadPartition = Callable[[Interest, int, bool, int], FetchedPartition]
"""(interest, maximum bytes, whether one batch may exceed them, isolation level)."""
ReadForFollower = Callable[[ReplicaInterest, int, bool], ReplicatedPart | None]
"""The same without an isolation level. None: nothing to send; FULL: no room left."""
WAIT = ReplicatedPart(TopicId(b""), -1, -1, 0)
"""The follower knows a newer leader epoch; this process will learn it too."""
FULL = ReplicatedPart(TopicId(b""), -2, -1, 0)
"""There are records, but the answer has no room for them."""


@dataclass(slots=True, eq=False)
class Session(Generic[W]):
    """One fetcher's interests in the partitions of one Replica actor."""

    link: int
    """Link over which its requests come."""
    number: int = 0
    """Tells several sessions of one link apart."""
    interests: dict[PartitionKey, W] = field(default_factory=dict)
    news: dict[PartitionKey, None] = field(default_factory=dict)
    """Partitions to check, longest waiting first."""
    min_bytes: int = 1
    max_bytes: int = 0

    def watch(self, interest: W) -> PartitionKey:
        """Record a new or changed interest; it has no news yet."""
        key = (interest.topic_id, interest.partition)
        self.interests[key] = interest
        self.news.pop(key, None)
        return key

    def forget(self, key: PartitionKey) -> None:
        """Stop watching a partition."""
        self.interests.pop(key, None)
        self.news.pop(key, None)


@dataclass(slots=True, eq=False)
class FetchSession(Session[Interest]):
    """A gateway's session.

    Partitions with news are new interests, those whose high watermark moved, and those whose
    records were sent or did not fit. Sent ones go to the end and those that did not fit stay in
    front, so that all get their turn.
    """

    once: bool = False
    """Whether it ends with its first answer."""
    waits: bool = False
    """Whether its request waits until there is enough to answer."""
    waits_for_files: bool = False
    """Whether a request that does not wait for records is held until a thread has read files."""
    has_more: bool = False
    """Whether partitions with news have not been checked yet, for lack of time."""
    _isolation_level: int = 0
    _complete: bool = False
    _found: dict[PartitionKey, FetchedPartition] = field(default_factory=dict)
    _found_bytes: int = 0
    _left_out: dict[PartitionKey, None] = field(default_factory=dict)
    """Partitions for which there was no room."""
    _due: bool = False
    """Whether the answer must not wait any longer.

    That is: there is an error, the fetcher must truncate its log, or further records do not fit.
    """

    def asked(self, ask: FetchAsk) -> None:
        """Apply a request's conditions for its answer."""
        self._isolation_level = ask.isolation_level
        self.min_bytes = ask.min_bytes
        self.max_bytes = ask.max_bytes
        self._complete = ask.complete
        self.waits = ask.wait

    def collect(self, read: ReadPartition) -> bool:
        """Read partitions with news, up to the byte limit; return whether to answer now.

        Checks at most LOOKS_MAX partitions: `has_more` says whether others are left, with which the
        next call continues. A complete answer waits for all of them.
        """
        self.has_more = False
        for looked, key in enumerate(tuple(islice(self.news, LOOKS_MAX + 1))):
            before = self._found.get(key)
            others = self._found_bytes - (0 if before is None else before.length)
            if others >= self.max_bytes and others > 0 and not self._complete:
                break
            if looked == LOOKS_MAX:
                self.has_more = True
                break
            interest = self.interests[key]
            room = min(interest.max_bytes, max(0, self.max_bytes - others))
            part = read(interest, room, others == 0, self._isolation_level)
            self._found[key] = part
            self._found_bytes = others + part.length
            del self.news[key]
            if others > 0 and self._has_records(interest, part) and not part.length:
                self._left_out[key] = None
                self._due = True
            is_urgent = part.error_code != 0 or part.diverging is not None
            self._due = self._due or is_urgent
        if self.has_more and self._complete:
            return False
        return self._due or self._found_bytes >= self.min_bytes

    def _has_records(self, interest: Interest, part: FetchedPartition) -> bool:
        """Whether there are records that the fetcher may see, even if they do not fit."""
        committed = self._isolation_level == READ_COMMITTED
        end = part.last_stable_offset if committed else part.high_watermark
        return not part.error_code and part.diverging is None and interest.offset < end

    def take_found(self) -> list[FetchedPartition]:
        """Take what was found, for the answer.

        Partitions with records keep having news until the fetcher moves past them.
        """
        found, self._found = self._found, {}
        self._found_bytes = 0
        self._due = self.has_more = False
        if self._left_out:
            self.news = self._left_out | self.news  # checked first for the next answer
            self._left_out = {}
        if not self.once:
            self.news.update(dict.fromkeys(key for key, part in found.items() if part.length))
        return list(found.values())


@dataclass(slots=True, eq=False)
class FollowerSession(Session[ReplicaInterest]):
    """Session of a following process. News: partitions that may have records or errors for it."""

    broker_id: int = -1
    unsent_watermarks: dict[PartitionKey, None] = field(default_factory=dict)
    """Partitions whose present high watermark or log start it does not know."""
    answered: set[PartitionKey] = field(default_factory=set)
    """Partitions for which nothing is sent until they are named again."""

    def forget(self, key: PartitionKey) -> None:
        """Stop following a partition."""
        Session.forget(self, key)
        self.unsent_watermarks.pop(key, None)
        self.answered.discard(key)

    def gather(self, read: ReadForFollower) -> list[ReplicatedPart]:
        """Read partitions with news, as far as there is room."""
        parts: list[ReplicatedPart] = []
        room, at_least_one = self.max_bytes, True
        for key in tuple(self.news):
            if room <= 0 and not at_least_one:
                break
            part = read(self.interests[key], room, at_least_one)
            if part is FULL:
                break
            del self.news[key]
            if part is not None:
                room -= part.length
                at_least_one = at_least_one and not part.length
                parts.append(part)
        return parts

    def should_answer(self, parts: list[ReplicatedPart]) -> bool:
        """Whether to answer now: with enough bytes, or with anything but records."""
        enough = sum([part.length for part in parts]) >= self.min_bytes
        return bool(parts) and (enough or not all(part.length for part in parts))

    def put_back(self, parts: list[ReplicatedPart]) -> None:
        """Check these partitions again, before all others."""
        found = [(part.topic_id, part.partition) for part in parts]
        self.news = dict.fromkeys(found) | self.news

    def mark_answered(self, parts: list[ReplicatedPart]) -> None:
        """Record that these parts are answered; they include high watermark and log start."""
        for part in parts:
            key = (part.topic_id, part.partition)
            self.answered.add(key)
            self.unsent_watermarks.pop(key, None)


def fetch_obstacle(
    machine: PartitionMachine,
    epochs: LeaderEpochs,
    log_start_offset: int,
    log_end_offset: int,
    interest: ReplicaInterest,
) -> ReplicatedPart | None:
    """What keeps a follower from being served at its offset; None if nothing does."""
    if interest.leader_epoch > machine.leader_epoch:
        return WAIT
    try:
        machine.require_leader_for_follower(interest.leader_epoch)
    except (NotLeaderOrFollower, FencedLeaderEpoch) as failure:
        return refusal(interest, failure)
    offset, last_epoch = interest.offset, interest.last_fetched_epoch
    diverging, error = None, ErrorCode.NONE
    if last_epoch != epochs.latest or offset > log_end_offset:
        diverging = divergence(epochs, log_end_offset, last_epoch, offset)
    if diverging is None:
        if log_start_offset <= offset <= log_end_offset:
            return None
        error = ErrorCode.OFFSET_OUT_OF_RANGE
    return ReplicatedPart(
        interest.topic_id,
        interest.partition,
        machine.leader_epoch,
        int(error),
        machine.high_watermark,
        log_start_offset,
        log_end_offset,
        diverging,
    )


def refusal(part: ReplicaInterest | ReplicatedPart, failure: KafkaError) -> ReplicatedPart:
    """An error about a partition, with the epoch in which the follower asked."""
    return ReplicatedPart(part.topic_id, part.partition, part.leader_epoch, int(failure.code))
