"""Leader side of replication: answers following processes when a log grows.

Logs that grow within one turn of the event loop are reported together, in the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from raylog.actors.common_messages import PartitionKey
from raylog.actors.message import each_taken, taken
from raylog.actors.replica.messages import ReplicaInterest, ReplicateAsk, ReplicatedPart
from raylog.actors.replica.reads import ColdRecords, Reads, records_of
from raylog.actors.replica.rules.machine import FollowerFetched
from raylog.actors.replica.rules.sessions import (
    FULL,
    WAIT,
    FollowerSession,
    fetch_obstacle,
    refusal,
)
from raylog.actors.replica.subscriptions import Subscriptions
from raylog.actors.runtime.base import Buffer, LinkRequest, Runtime, Timer
from raylog.actors.runtime.deadlines import Deadlines, Due
from raylog.storage.segment import Slice
from raylog.wire.errors import KafkaError, KafkaStorageError, NotLeaderOrFollower

if TYPE_CHECKING:
    from raylog.actors.replica.partition import Partition
    from raylog.actors.replica.throttler import Throttler

FIGURES_MS = 50
"""Delay until a high watermark is sent without records."""
Records = Buffer | ColdRecords


@dataclass(slots=True, eq=False)
class _Wait:
    """A session's parked request, and its deadline."""

    owner: FollowerSessions
    session: FollowerSession
    request: LinkRequest
    due: Due = field(init=False)

    def taken(self) -> LinkRequest:
        """Remove the deadline; return the request, which the caller must answer."""
        self.due.discard(self)
        return self.request

    def timed_out(self) -> None:
        """Answer, unless the session has ended or has another request."""
        if self.owner.sessions.parked.get(self.session) is self:
            self.owner.answer_late(self.session)


class FollowerSessions:
    """Answers followers of all partitions of one process."""

    def __init__(
        self,
        runtime: Runtime,
        deadlines: Deadlines,
        partitions: Mapping[PartitionKey, Partition],
        throttler: Throttler,
        reads: Reads,
        on_fetch: Callable[[], None],
    ) -> None:
        """`on_fetch` is called for each request."""
        self._runtime = runtime
        self._deadlines = deadlines
        self._partitions = partitions
        self._throttler = throttler
        self._reads = reads
        self._on_fetch = on_fetch
        self.sessions: Subscriptions[FollowerSession, _Wait] = Subscriptions(
            partitions, attrgetter("followers")
        )
        self._ready: dict[FollowerSession, None] = {}
        """Sessions to check in the next turn."""
        self._watermarks_timer: Timer | None = None
        self._loaded: dict[tuple[PartitionKey, Slice], Buffer] = {}
        """Records read in this turn."""

    # ---- requests ------------------------------------------------------------------------

    def replicate(self, request: LinkRequest) -> None:
        """Record a follower's fetch offsets; answer when there is something to send."""
        self._on_fetch()
        ask = taken(ReplicateAsk, request.header)
        sessions = self.sessions
        session = sessions.known.get((request.peer, 0))
        if session is None:
            session = sessions.add(FollowerSession(request.peer, broker_id=ask.broker_id))
        elif session in sessions.parked:
            sessions.parked.pop(session).taken().reply([], [])
        session.min_bytes, session.max_bytes = ask.min_bytes, ask.max_bytes
        wait = sessions.parked[session] = _Wait(self, session, request)
        wait.due = self._deadlines.add(wait, ask.max_wait_ms)
        for topic_id, index in ask.forgotten:
            sessions.forget(session, (topic_id, index))
        for interest in each_taken(ReplicaInterest, ask.changes):
            self._take(session, interest)
        if session.news:
            self._look_at(session)

    def _take(self, session: FollowerSession, interest: ReplicaInterest) -> None:
        known = (interest.topic_id, interest.partition) in session.interests
        key = session.watch(interest)
        session.answered.discard(key)
        partition = self._partitions.get(key)
        if partition is None:
            session.news[key] = None
            return
        partition.followers[session] = None
        if partition.deletions:
            partition.answer_deletions()
        follows = self._fetched(session.broker_id, partition, interest)
        if not follows or interest.offset != partition.log.log_end_offset:
            session.news[key] = None
        if not known:
            self.watermarks_changed(partition)
        elif session.unsent_watermarks:
            self._send_watermarks_soon()

    def _fetched(self, broker_id: int, partition: Partition, interest: ReplicaInterest) -> bool:
        """Pass a fetch to the machine if the histories agree; return whether they do."""
        machine, log = partition.machine, partition.log
        start, end = log.log_start_offset, log.log_end_offset
        if fetch_obstacle(machine, log.epochs, start, end, interest) is not None:
            return False
        now_ms = int(self._runtime.monotonic_ms())
        partition.handle(FollowerFetched(broker_id, interest.incarnation, interest.offset, now_ms))
        return True

    # ---- news ----------------------------------------------------------------------------

    def has_grown(self, partition: Partition) -> None:
        """Check the followers of a log that grew, or that must be checked for another reason.

        A partition that was given up may still have sessions that have since forgotten it.
        """
        for session in partition.followers:
            if partition.key in session.interests and partition.key not in session.answered:
                session.news[partition.key] = None
                self._look_at(session)

    def watermarks_changed(self, partition: Partition) -> None:
        """Schedule a changed high watermark or log start to go with the next records, or soon."""
        for session in partition.followers:
            if partition.key in session.interests:
                session.unsent_watermarks[partition.key] = None
        self._send_watermarks_soon()

    def _send_watermarks_soon(self) -> None:
        if self._watermarks_timer is None:
            self._watermarks_timer = self._runtime.call_later(FIGURES_MS, self._send_watermarks)

    def tell_now(self, partition: Partition) -> None:
        """Send followers a partition's high watermark and log start without waiting."""
        self.watermarks_changed(partition)
        for session in partition.followers:
            if session in self.sessions.parked:
                self.answer_late(session)

    def reconsider(self, partition: Partition) -> None:
        """Judge earlier fetches again, because leadership changed."""
        for session in tuple(partition.followers):
            interest = session.interests[partition.key]
            self._fetched(session.broker_id, partition, interest)
        if partition.followers:
            self.has_grown(partition)
            self.watermarks_changed(partition)

    def _look_at(self, session: FollowerSession) -> None:
        if session in self.sessions.parked:
            if not self._ready:
                self._runtime.call_later(0, self._turn)
            self._ready[session] = None

    def _turn(self) -> None:
        ready, self._ready = self._ready, {}
        for session in ready:
            if session in self.sessions.parked:
                self._answer(session)
        self._loaded.clear()

    def _send_watermarks(self) -> None:
        self._watermarks_timer = None
        for session in self.sessions:
            if session.unsent_watermarks and session in self.sessions.parked:
                self.answer_late(session)

    # ---- answers -------------------------------------------------------------------------

    def _answer(self, session: FollowerSession) -> None:
        """Send what there is; keep the request parked if that is not enough."""
        payload: list[Records] = []
        parts = session.gather(partial(self._part, session, payload))
        if session.should_answer(parts):
            self._send(session, parts, payload)
        else:
            session.put_back(parts)
            self._throttler.put_back()

    def answer_late(self, session: FollowerSession) -> None:
        """Send what there is, even nothing, which shows the follower that the leader is alive."""
        payload: list[Records] = []
        self._send(session, session.gather(partial(self._part, session, payload)), payload)
        self._loaded.clear()

    def _send(
        self, session: FollowerSession, parts: list[ReplicatedPart], payload: list[Records]
    ) -> None:
        session.mark_answered(parts)
        for part in parts:
            if part.length:
                partition = self._partitions[part.topic_id, part.partition]
                partition.counts.replicated_out += part.length
                if self._throttler.leads:
                    self._throttler.sent(partition, part.length)
        parts = parts + self._unsent_watermarks(session)
        request = self.sessions.parked.pop(session).taken()
        cold = [one for one in payload if isinstance(one, ColdRecords)]
        if cold:
            self._runtime.start(self._send_cold(request, parts, payload, cold), "cold records")
        else:
            request.reply(parts, [one for one in payload if not isinstance(one, ColdRecords)])

    async def _send_cold(
        self,
        request: LinkRequest,
        parts: list[ReplicatedPart],
        payload: list[Records],
        cold: list[ColdRecords],
    ) -> None:
        """Answer with records, some of which a thread must read because they may not be cached."""
        await self._reads.run(*[one.job for one in cold])
        answered_parts: list[ReplicatedPart] = []
        loaded: list[Buffer] = []
        records = iter(payload)
        for part in parts:
            if part.length:
                one = next(records)
                try:
                    loaded.append(one.loaded() if isinstance(one, ColdRecords) else one)
                except KafkaError as failure:
                    part = refusal(part, failure)
            answered_parts.append(part)
        for each in cold:
            each.partition.give_up_if_offline()
        request.reply(answered_parts, loaded)

    def _unsent_watermarks(self, session: FollowerSession) -> list[ReplicatedPart]:
        """High watermark and log start of partitions in which the follower's history agrees.

        A follower that still has to truncate would apply the high watermark to records that only it
        has; it gets these values after it has asked again.
        """
        parts: list[ReplicatedPart] = []
        for key in tuple(session.unsent_watermarks):
            partition = self._partitions.get(key)
            if partition is None or not partition.machine.is_leader:
                del session.unsent_watermarks[key]
                continue
            log, interest = partition.log, session.interests[key]
            start, end = log.log_start_offset, log.log_end_offset
            if fetch_obstacle(partition.machine, log.epochs, start, end, interest) is None:
                del session.unsent_watermarks[key]
                parts.append(partition.follower_answer())
        return parts

    def _part(
        self,
        session: FollowerSession,
        payload: list[Records],
        interest: ReplicaInterest,
        room: int,
        at_least_one: bool,
    ) -> ReplicatedPart | None:
        """What to send about one partition now; its records are appended to `payload`."""
        partition = self._partitions.get((interest.topic_id, interest.partition))
        if partition is None:
            return refusal(interest, NotLeaderOrFollower("the partition is not open here"))
        log, offset = partition.log, interest.offset
        start, end_offset = log.log_start_offset, log.log_end_offset
        part = fetch_obstacle(partition.machine, log.epochs, start, end_offset, interest)
        if part is not None:
            return None if part is WAIT else part
        try:
            if offset == end_offset or not partition.can_read(offset):
                return None
            if self._throttler.leads and self._must_wait(session, partition):
                return None
            room = min(room, interest.max_bytes)
            found = log.read(offset, room, end_offset, at_least_one=at_least_one)
            if found is None:
                return FULL
            if not partition.may_serve(found):
                return None
            payload.append(self._records(partition, found))
        except KafkaStorageError as failure:
            partition.give_up_if_offline()
            return refusal(interest, failure)
        if self._throttler.leads:
            self._throttler.gathered(partition, found.length)
        return partition.follower_answer(found.length)

    def _must_wait(self, session: FollowerSession, partition: Partition) -> bool:
        again = partial(self._resume, session, partition.key)
        return self._throttler.keeps_back(session, session.broker_id, partition, again)

    def _resume(self, session: FollowerSession, key: PartitionKey) -> None:
        """Check a throttled partition again."""
        if key in session.interests and key not in session.answered:
            session.news[key] = None
            self._look_at(session)

    def _records(self, partition: Partition, found: Slice) -> Records:
        """The records of a slice, read once for all followers that get it in this turn."""
        name = (partition.key, found)
        known = self._loaded.get(name)
        if known is not None:
            return known
        records = records_of(partition, found)
        if not isinstance(records, ColdRecords):
            self._loaded[name] = records
        return records
