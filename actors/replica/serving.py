"""The leader's side of replication: a session for each follower process, answered when it grows.

A session remembers what is followed and looks at partitions with news only, so that an idle
partition costs nothing. What grew within one turn of the event loop is answered together, in the
next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from raylog.actors.plain import each_taken, taken
from raylog.actors.ports import PartitionKey, TopicId
from raylog.actors.replica.api import ReplicaInterest, ReplicateAsk, ReplicatedPart
from raylog.actors.replica.machine import FollowerFetched
from raylog.actors.runtime.base import Buffer, LinkRequest, Runtime, Timer
from raylog.actors.runtime.deadlines import Deadlines, Due
from raylog.storage.log import Slice
from raylog.storage.readable import LoadJob
from raylog.wire.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
)

if TYPE_CHECKING:
    from raylog.actors.replica.partition import Partition
    from raylog.actors.replica.throttler import Throttler

FIGURES_MS = 50
"""Time after which a high watermark that no records carry is told by itself."""


@dataclass(slots=True, eq=False)
class FollowerSession:
    """What one follower process follows here."""

    broker_id: int
    deadlines: Deadlines
    expired: Callable[[FollowerSession], None]
    """Called when a request has waited for as long as it may."""
    interests: dict[PartitionKey, ReplicaInterest] = field(default_factory=dict)
    news: dict[PartitionKey, None] = field(default_factory=dict)
    """Partitions that may have records or an error for it, the longest waiting first."""
    figures: dict[PartitionKey, None] = field(default_factory=dict)
    """Partitions whose high watermark or log start it does not know."""
    answered: set[PartitionKey] = field(default_factory=set)
    """Partitions that say nothing until they are named again."""
    parked: LinkRequest | None = None
    min_bytes: int = 1
    max_bytes: int = 0
    _due: Due | None = None

    def park(self, request: LinkRequest, max_wait_ms: int) -> None:
        """Hold a request until there is something to say."""
        self.parked = request
        self._due = self.deadlines.add(self, max_wait_ms)

    def answer(self, parts: list[ReplicatedPart], payload: list[Buffer]) -> None:
        """Answer the request that waits."""
        self.take().reply(parts, payload)

    def take(self) -> LinkRequest:
        """The request that waits, to be answered by who takes it."""
        assert self.parked is not None, "a request is answered once"
        assert self._due is not None, "a parked request has a deadline"
        parked, self.parked = self.parked, None
        self._due.discard(self)
        return parked

    def timed_out(self) -> None:
        """There was too little to say: the follower hears at least that somebody is there."""
        self.expired(self)

    def end(self) -> None:
        """Nobody waits any more."""
        if self.parked is not None and self._due is not None:
            self._due.discard(self)


class ColdRecords(NamedTuple):
    """Records that a thread reads."""

    partition: Partition
    job: LoadJob


Records = Buffer | ColdRecords


class Serving:
    """Answers followers of all partitions of one process."""

    def __init__(
        self,
        runtime: Runtime,
        deadlines: Deadlines,
        partitions: Mapping[PartitionKey, Partition],
        throttler: Throttler,
        heard: Callable[[], None],
    ) -> None:
        """`heard` is told of each request."""
        self._runtime = runtime
        self._deadlines = deadlines
        self._partitions = partitions
        self._throttler = throttler
        self._heard = heard
        self._sessions: dict[int, FollowerSession] = {}
        self._ready: dict[FollowerSession, None] = {}
        """Sessions to be looked at in the next turn."""
        self._figures_timer: Timer | None = None
        self._loaded: dict[tuple[PartitionKey, Slice], bytes] = {}
        """What was read in this turn."""

    # ---- requests ------------------------------------------------------------------------

    def replicate(self, request: LinkRequest) -> None:
        """Take in where a follower stands; answer when there is something for it."""
        self._heard()
        ask = taken(ReplicateAsk, request.header)
        session = self._sessions.get(request.peer)
        if session is None:
            session = FollowerSession(ask.broker_id, self._deadlines, self._answer_late)
            self._sessions[request.peer] = session
        elif session.parked is not None:
            session.answer([], [])
        session.min_bytes, session.max_bytes = ask.min_bytes, ask.max_bytes
        session.park(request, ask.max_wait_ms)
        for topic_id, index in ask.forgotten:
            self._forget(session, (topic_id, index))
        for interest in each_taken(ReplicaInterest, ask.changes):
            self._take(session, interest)
        if session.news:
            self._look_at(session)

    def _take(self, session: FollowerSession, interest: ReplicaInterest) -> None:
        key = (interest.topic_id, interest.partition)
        known = key in session.interests
        session.interests[key] = interest
        session.answered.discard(key)
        session.news.pop(key, None)
        partition = self._partitions.get(key)
        if partition is None:
            session.news[key] = None
            return
        partition.followers[session] = None
        follows = self._fetched(session.broker_id, partition, interest)
        if not follows or interest.offset != partition.log.log_end_offset:
            session.news[key] = None
        if not known:
            self.has_figures(partition)
        elif session.figures:
            self._tell_figures_soon()

    def _forget(self, session: FollowerSession, key: PartitionKey) -> None:
        session.interests.pop(key, None)
        session.news.pop(key, None)
        session.figures.pop(key, None)
        session.answered.discard(key)
        partition = self._partitions.get(key)
        if partition is not None:
            partition.followers.pop(session, None)

    def _fetched(self, broker_id: int, partition: Partition, interest: ReplicaInterest) -> bool:
        """Tell the machine how far a follower is, if its history is the leader's; whether it is."""
        if _standing(partition, interest) is not None:
            return False
        now_ms = int(self._runtime.monotonic_ms())
        partition.handle(FollowerFetched(broker_id, interest.incarnation, interest.offset, now_ms))
        return True

    def link_lost(self, peer: int) -> None:
        """A follower process is gone."""
        session = self._sessions.pop(peer, None)
        if session is None:
            return
        session.end()
        self._ready.pop(session, None)
        for key in session.interests:
            partition = self._partitions.get(key)
            if partition is not None:
                partition.followers.pop(session, None)

    # ---- news ----------------------------------------------------------------------------

    def has_grown(self, partition: Partition) -> None:
        """A log grew, or there is another reason to look at it again.

        A partition that was given up may still have sessions that have forgotten it since.
        """
        for session in partition.followers:
            if partition.key in session.interests and partition.key not in session.answered:
                session.news[partition.key] = None
                self._look_at(session)

    def has_figures(self, partition: Partition) -> None:
        """A high watermark or log start moved: it goes along with the next records, or soon."""
        for session in partition.followers:
            if partition.key in session.interests:
                session.figures[partition.key] = None
        self._tell_figures_soon()

    def _tell_figures_soon(self) -> None:
        if self._figures_timer is None:
            self._figures_timer = self._runtime.call_later(FIGURES_MS, self._tell_figures)

    def log_starts_at(self, partition: Partition, offset: int) -> bool:
        """Whether the logs of all who may lead next begin at or behind an offset, as they told.

        Those are the maximal in-sync replicas, and whoever else fetches: Apache Kafka waits for
        every live replica, and one that is eligible may lead.
        """
        progress = partition.machine.progress
        told = {
            session.broker_id: session.interests[partition.key].log_start_offset
            for session in partition.followers
        }
        members = set(told) if progress is None else {*told, *progress.maximal_isr}
        members.discard(partition.machine.broker_id)
        return all(told.get(one, -1) >= offset for one in members)

    def tell_now(self, partition: Partition) -> None:
        """Tell followers the figures of a partition without waiting."""
        self.has_figures(partition)
        for session in partition.followers:
            if session.parked is not None:
                self._answer_late(session)

    def reconsider(self, partition: Partition) -> None:
        """Leadership changed: what followers said before may count now, or not any more."""
        for session in tuple(partition.followers):
            interest = session.interests[partition.key]
            self._fetched(session.broker_id, partition, interest)
        if partition.followers:
            self.has_grown(partition)
            self.has_figures(partition)

    @property
    def parked(self) -> int:
        """How many requests of followers wait here."""
        return sum(session.parked is not None for session in self._sessions.values())

    def _look_at(self, session: FollowerSession) -> None:
        if session.parked is None:
            return
        if not self._ready:
            self._runtime.call_later(0, self._turn)
        self._ready[session] = None

    def _turn(self) -> None:
        ready, self._ready = self._ready, {}
        for session in ready:
            if session.parked is not None:
                self._answer(session)
        self._loaded.clear()

    def _tell_figures(self) -> None:
        self._figures_timer = None
        for session in tuple(self._sessions.values()):
            if session.figures and session.parked is not None:
                self._answer_late(session)

    # ---- answers -------------------------------------------------------------------------

    def _answer(self, session: FollowerSession) -> None:
        """Answer with what there is; stay parked if there is nothing worth it."""
        parts, payload = self._gather(session)
        enough = sum([part.length for part in parts]) >= session.min_bytes
        if parts and (enough or not all(part.length for part in parts)):
            self._send(session, parts, payload)
        else:
            found = [(part.topic_id, part.partition) for part in parts]
            session.news = dict.fromkeys(found) | session.news

    def _answer_late(self, session: FollowerSession) -> None:
        """Answer with what there is, be it nothing."""
        self._send(session, *self._gather(session))
        self._loaded.clear()

    def _send(
        self, session: FollowerSession, parts: list[ReplicatedPart], payload: list[Records]
    ) -> None:
        for part in parts:
            key = (part.topic_id, part.partition)
            session.answered.add(key)
            session.figures.pop(key, None)
            if part.length:
                self._partitions[key].counts.replicated_out += part.length
        parts = parts + self._figures(session)
        cold = [one for one in payload if isinstance(one, ColdRecords)]
        if cold:
            loading = self._send_loaded(session.take(), parts, payload, cold)
            self._runtime.start(loading, "cold records")
        else:
            session.answer(parts, [one for one in payload if not isinstance(one, ColdRecords)])

    async def _send_loaded(
        self,
        request: LinkRequest,
        parts: list[ReplicatedPart],
        payload: list[Records],
        cold: list[ColdRecords],
    ) -> None:
        """Answer with records of which a thread reads those that may not be in memory."""
        await self._runtime.run_blocking(_load_all, [one.job for one in cold])
        told: list[ReplicatedPart] = []
        loaded: list[Buffer] = []
        records = iter(payload)
        for part in parts:
            if part.length:
                try:
                    loaded.append(_loaded(next(records)))
                except KafkaError as failure:
                    part = _failed(part, failure)
            told.append(part)
        for one in cold:
            one.partition.give_up_if_offline()
        request.reply(told, loaded)

    def _gather(self, session: FollowerSession) -> tuple[list[ReplicatedPart], list[Records]]:
        """What there is to be told of partitions with news, as far as there is room for it."""
        parts: list[ReplicatedPart] = []
        payload: list[Records] = []
        room = session.max_bytes
        for key in tuple(session.news):
            if room <= 0:
                break
            part = self._part(session, session.interests[key], room, payload)
            if part is FULL:
                break
            del session.news[key]
            if part is not None:
                room -= part.length
                parts.append(part)
        return parts, payload

    def _figures(self, session: FollowerSession) -> list[ReplicatedPart]:
        """Figures of partitions in which the follower stands well.

        To one whose log is still to be cut a high watermark would mean records that it has alone:
        it gets the figures when it has asked again.
        """
        told: list[ReplicatedPart] = []
        for key in tuple(session.figures):
            partition = self._partitions.get(key)
            leads = partition is not None and partition.machine.is_leader
            if partition is None or not leads:
                del session.figures[key]
            elif _standing(partition, session.interests[key]) is None:
                del session.figures[key]
                told.append(_figures(partition))
        return told

    def _part(
        self,
        session: FollowerSession,
        interest: ReplicaInterest,
        room: int,
        payload: list[Records],
    ) -> ReplicatedPart | None:
        """What a follower is to be told now of one partition, its records behind `payload`.

        None if nothing, FULL if its next batch does not fit behind what is there already.
        """
        partition = self._partitions.get((interest.topic_id, interest.partition))
        if partition is None:
            failure = NotLeaderOrFollower("the partition is not open here")
            return _refusal(interest, failure)
        standing = _standing(partition, interest)
        if standing is not None:
            return None if standing is WAIT else standing
        log = partition.log
        offset, end_offset = interest.offset, log.log_end_offset
        if offset == end_offset or not partition.can_read(offset):
            return None
        throttles = self._throttler.leads
        if throttles and self._must_wait(session, partition):
            return None
        try:
            room = min(room, interest.max_bytes)
            found = log.read(offset, room, end_offset, at_least_one=not payload)
            if found is None:
                return FULL
            if not partition.may_serve(found):
                return None
            payload.append(self._load(partition, found))
        except KafkaStorageError as failure:
            partition.give_up_if_offline()
            return _refusal(interest, failure)
        if throttles:
            self._throttler.sent(partition, found.length)
        return _figures(partition, found.length)

    def _must_wait(self, session: FollowerSession, partition: Partition) -> bool:
        again = partial(self._resume, session, partition.key)
        return self._throttler.keeps_back(session, session.broker_id, partition, again)

    def _resume(self, session: FollowerSession, key: PartitionKey) -> None:
        """Look again at a partition that was kept back."""
        if key in session.interests and key not in session.answered:
            session.news[key] = None
            self._look_at(session)

    def _load(self, partition: Partition, found: Slice) -> Records:
        """The records of a slice: read once for all followers that are told of it together.

        What was not written lately may have to come from the disk: a thread reads that.
        """
        if not partition.log.is_recent(found):
            return ColdRecords(partition, partition.log.begin_load(found))
        name = (partition.key, found)
        data = self._loaded.get(name)
        if data is None:
            data = self._loaded[name] = partition.log.load(found)
        return data


_NOBODY = TopicId(b"")
WAIT = ReplicatedPart(_NOBODY, -1, -1, 0)
"""The follower knows a newer leader epoch than this process: that will come here, too."""
FULL = ReplicatedPart(_NOBODY, -2, -1, 0)
"""There are records, but the answer has no room for them."""


def _standing(partition: Partition, interest: ReplicaInterest) -> ReplicatedPart | None:
    """What keeps a follower from being served where it stands; None if nothing does."""
    machine, log = partition.machine, partition.log
    if interest.leader_epoch > machine.leader_epoch:
        return WAIT
    try:
        machine.require_leader_for_follower(interest.leader_epoch)
    except (NotLeaderOrFollower, FencedLeaderEpoch) as failure:
        return _refusal(interest, failure)
    offset, last_epoch = interest.offset, interest.last_fetched_epoch
    end_offset = log.log_end_offset
    if last_epoch >= 0 and (last_epoch != log.epochs.latest or offset > end_offset):
        epoch, end = log.epochs.end_offset_for(last_epoch, end_offset)
        if epoch < last_epoch or end < offset:
            return _figures(partition)._replace(diverging=[epoch, end])
    if not log.log_start_offset <= offset <= end_offset:
        return _figures(partition)._replace(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    return None


def _figures(partition: Partition, length: int = 0) -> ReplicatedPart:
    log, machine = partition.log, partition.machine
    return ReplicatedPart(
        *partition.key,
        machine.leader_epoch,
        0,
        machine.high_watermark,
        log.log_start_offset,
        log.log_end_offset,
        None,
        length,
        log.claims.end if log.claims is not None else 0,
    )


def _load_all(jobs: list[LoadJob]) -> None:
    for job in jobs:
        job.run()


def _loaded(records: Records) -> Buffer:
    """KafkaError where a thread could not read them."""
    if isinstance(records, ColdRecords):
        return records.partition.log.end_load(records.job)
    return records


def _failed(part: ReplicatedPart, failure: KafkaError) -> ReplicatedPart:
    return ReplicatedPart(part.topic_id, part.partition, part.leader_epoch, int(failure.code))


def _refusal(interest: ReplicaInterest, failure: KafkaError) -> ReplicatedPart:
    return ReplicatedPart(
        interest.topic_id, interest.partition, interest.leader_epoch, int(failure.code)
    )
