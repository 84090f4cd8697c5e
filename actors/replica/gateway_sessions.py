"""Answers gateways that fetch from the partitions of one process.

A request is answered as soon as it has enough bytes or an error, or when the gateway ends its wait.
Until then it is parked, and is checked again when a partition has news. `follower_sessions` serves
the followers.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from raylog.actors.common_messages import PartitionKey
from raylog.actors.message import each_taken, first_values, taken
from raylog.actors.replica.messages import FetchAsk, FetchedPartition, Interest
from raylog.actors.replica.partition import Partition, unknown_partition
from raylog.actors.replica.rules.sessions import FetchSession
from raylog.actors.replica.subscriptions import Subscriptions
from raylog.actors.runtime.base import LinkRequest, Runtime


class GatewaySessions:
    """The fetch sessions of one process."""

    def __init__(self, runtime: Runtime, partitions: Mapping[PartitionKey, Partition]) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self.sessions: Subscriptions[FetchSession, LinkRequest] = Subscriptions(
            partitions, attrgetter("sessions")
        )
        self._deferred = False
        """Whether the last check left out records that a thread must read first."""

    def fetch(self, request: LinkRequest) -> None:
        """Add a gateway's interests; answer once there is something to send."""
        ask = taken(FetchAsk, request.header)
        sessions = self.sessions
        session = sessions.known.get((request.peer, ask.session_id))
        if session is None:
            session = sessions.add(FetchSession(request.peer, ask.session_id, once=ask.once))
        elif session in sessions.parked:
            sessions.parked.pop(session).reply(session.take_found())
        session.asked(ask)
        for topic_id, index in ask.forgotten:
            sessions.forget(session, (topic_id, index))
        for interest in each_taken(Interest, ask.changes):
            key = session.watch(interest)
            session.news[key] = None
            partition = self._partitions.get(key)
            if partition is not None:
                partition.sessions[session] = None
        sessions.parked[session] = request
        self._look(session)

    def end(self, request: LinkRequest) -> None:
        """End the wait of a session's request; with `forget` also end the session."""
        session_id, forget = first_values(request.header, 2)
        session = self.sessions.known.get((request.peer, session_id))
        if session is not None:
            session.waits = False
            if session.has_more and not forget:
                request.reply(None)  # it is answered once everything has been checked
                return
            if session in self.sessions.parked:
                self.sessions.parked.pop(session).reply(session.take_found())
            if forget or session.once:
                self.sessions.end(session)
        request.reply(None)

    def has_news(self, partition: Partition) -> None:
        """Answer requests that wait for more of a partition."""
        for session in tuple(partition.sessions):
            if partition.key not in session.interests:
                continue  # forgotten after the partition was given up
            session.news[partition.key] = None
            if session in self.sessions.parked:
                self._deferred = False
                ready = session.collect(self._read)
                if ready and not (session.waits_for_files and self._deferred):
                    self._answer(session)

    def _look(self, session: FetchSession) -> None:
        """Check partitions with news, and answer if there is enough."""
        self._deferred = False
        ready = session.collect(self._read)
        session.waits_for_files = self._deferred and not session.waits
        if (ready or not (session.waits or session.has_more)) and not session.waits_for_files:
            self._answer(session)
        elif session.has_more:
            parked = self.sessions.parked[session]
            self._runtime.start(self._look_on(session, parked), "a large fetch")

    async def _look_on(self, session: FetchSession, parked: LinkRequest) -> None:
        """Check more partitions with news after other tasks have run."""
        await self._runtime.sleep(0)
        if self.sessions.parked.get(session) is parked:
            self._look(session)

    def _read(
        self, interest: Interest, room: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        partition = self._partitions.get((interest.topic_id, interest.partition))
        if partition is None:
            return unknown_partition(interest)
        part = partition.read(interest, room, at_least_one, isolation)
        if partition.work.has_readers_waiting and not part.length and not part.error_code:
            self._deferred = True
        return part

    def _answer(self, session: FetchSession) -> None:
        self.sessions.parked.pop(session).reply(session.take_found())
        if session.once:
            self.sessions.end(session)
