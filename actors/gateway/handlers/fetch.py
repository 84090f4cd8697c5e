"""Fetch 4-18: slices of segments, sent straight from the page cache to the socket.

v4 adds the isolation level (KIP-98), v5 the log start offset, v7 sessions (KIP-227), v9 leader
epochs (KIP-320), v11 reading from followers in the consumer's rack (KIP-392), v12 diverging epochs
(KIP-595), v13 topic ids (KIP-516), v16 leader hints (KIP-951).

Followers do not fetch here, but from other replicas over links. A leader that knows an in-sync
replica in the consumer's rack redirects the consumer there instead of sending records. A follower
serves records below the high watermark that it knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.failures import error_code_of
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ClientFetchSession,
    is_misnamed,
    topic_id_of,
)
from raylog.actors.gateway.late_records import LateRecords
from raylog.actors.gateway.rules.leader_hints import leader_hint, node_endpoints
from raylog.actors.gateway.rules.replica_selection import replica_in_rack
from raylog.actors.message import each_taken
from raylog.actors.metadata.image import Topic
from raylog.actors.replica.messages import FETCH, FETCH_END, FetchAsk, FetchedPartition, Interest
from raylog.actors.runtime.base import Link, Timer
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint

log = logging.getLogger(__name__)
ANY_REPLICA_SINCE = 11
DIVERGING_SINCE = 12
HINTS_SINCE = 12
NO_REPLICA = -1
TOPIC_IDS_SINCE = 13
ENDPOINTS_SINCE = 16
REPLICA_GRACE_MS = 1_000
"""How long a replica may take to end a wait before the client is answered without it."""
FAILED_PAUSE_MS = 500
"""Longest delay of a response after interceptors have failed."""
_LATE = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    """Answer when there are `min_bytes` or an error, or when `max_wait_ms` has passed."""
    try:
        session = _session_of(context, request)
    except KafkaError as failure:
        return FetchResponse(error_code=int(failure.code), responses=[])
    _Fetch(context, request, session).begin()
    return None


def _session_of(context: RequestContext, request: FetchRequest) -> ClientFetchSession:
    sessions = context.gateway.fetch_sessions
    by_names = context.version < TOPIC_IDS_SINCE
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.end(request.session_id)
        return sessions.fresh(
            keep=request.session_epoch == INITIAL_EPOCH
            and not any(is_misnamed(topic.topic) for topic in request.topics),
            by_names=by_names,
            size=sum(len(topic.partitions) for topic in request.topics),
            now_ms=context.gateway.runtime.monotonic_ms(),
        )
    return sessions.resume(request.session_id, request.session_epoch, by_names=by_names)


class _Fetch:
    """One Fetch request in progress.

    If it concerns several replica processes, all are first asked for what they have. If that is too
    little, each is asked to answer when it has its share of the missing bytes, because the total
    cannot suffice before one of them has its share. When one answers, the others are told to answer
    with what they have. If it is still too little, each gets a share of what is now missing. So a
    process is asked again only when records have arrived, and the number of rounds grows with the
    logarithm of `min_bytes`.
    """

    __slots__ = (
        "_asked",
        "_bytes",
        "_bytes_at",
        "_called_in",
        "_closer",
        "_context",
        "_deadline",
        "_finished",
        "_full",
        "_late",
        "_left",
        "_link_changes",
        "_max_bytes",
        "_min_bytes",
        "_once",
        "_parts",
        "_redirected",
        "_request",
        "_session",
        "_time_over",
        "_urgent",
        "_waiting",
    )

    def __init__(
        self, context: RequestContext, request: FetchRequest, session: ClientFetchSession
    ) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        self._max_bytes = min(request.max_bytes, context.gateway.fetch_bytes_max)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._parts: dict[PartitionKey, FetchedPartition] = {}
        self._bytes = 0
        self._bytes_at: dict[Link, int] = {}
        """The number of bytes that each replica process had at its last response."""
        self._asked: dict[Link, int] = {}
        """The number of bytes at which each process was asked to answer."""
        self._closer: dict[PartitionKey, int] = {}
        """Partitions with a replica closer to the consumer, with that replica's broker."""
        self._late: list[LateRecords] = []
        self._urgent = False
        """Whether the client must be answered at once, with an error or a diverging epoch."""
        self._redirected: dict[PartitionKey, int] = {}
        """Those of these partitions to which the consumer is redirected."""
        self._left: dict[Link, None] = {}
        self._once = False
        self._waiting = False
        self._called_in = False
        """Whether the waiting processes were told to answer with what they have."""
        self._time_over = False
        self._finished = False
        self._deadline: Timer | None = None
        self._link_changes: dict[Link, tuple[list[Interest], list[PartitionKey]]] = {}

    # ---- asking --------------------------------------------------------------------------

    def begin(self) -> None:
        """Send the session's changes to the replicas, and ask all of them."""
        self._context.in_turns(self._changes_of_session(), self._ask_first)

    def _changes_of_session(self) -> Iterator[int]:
        yield from self._session.rename_unwatched(self._context.gateway.cluster.image)
        yield from self._forget()
        yield from self._take_in()
        yield from self._route_the_rest()

    def _ask_first(self) -> None:
        if not self._full:
            gateway = self._context.gateway
            gateway.fetch_sessions.used(self._session, gateway.runtime.monotonic_ms())
        self._leave()
        links = list(self._session.links)
        if not links:
            self._finish()
        elif self._may_wait_at_once(links):
            self._wait()
        else:
            self._ask(dict.fromkeys(links, 0), wait=False)

    def _leave(self) -> None:
        """End the session at replica processes that no longer have partitions of it."""
        for link in [link for link in self._link_changes if link not in self._session.links]:
            del self._link_changes[link]
            link.request(FETCH_END, (self._session.link_session_id, True), (), _ignore, _ignore)

    def _may_wait_at_once(self, links: list[Link]) -> bool:
        """Whether a single replica process decides when to answer."""
        if self._urgent or self._closer:
            return False
        return len(links) == 1 and self._request.max_wait_ms > 0

    def _forget(self) -> Iterator[int]:
        for forgotten in self._request.forgotten_topics_data:
            topic_id = self._topic_id(forgotten.topic, forgotten.topic_id)
            for partition in forgotten.partitions:
                key = (topic_id, partition)
                self._session.interests.pop(key, None)
                self._session.names.pop(key, None)
                self._session.sent_offsets.pop(key, None)
                route = self._session.unwatch(key)
                if route is not None:
                    self._changes(route.link)[1].append(key)
                yield 1
            yield 1

    def _topic_id(self, name: str, topic_id: bytes) -> TopicId:
        if not self._session.by_names:
            return TopicId(topic_id)
        return topic_id_of(name, self._context.gateway.cluster.image)

    def _take_in(self) -> Iterator[int]:
        session = self._session
        for asked in self._request.topics:
            topic_id = self._topic_id(asked.topic, asked.topic_id)
            session.is_misnamed = session.is_misnamed or is_misnamed(asked.topic)
            for part in asked.partitions:
                key = (topic_id, part.partition)
                session.interests[key] = _interest(topic_id, part, self._context.version)
                session.names[key] = asked.topic
                self._route(key)
                yield 1
            yield 1

    def _route_the_rest(self) -> Iterator[int]:
        """Retry partitions that no replica watches, since there may be new routes."""
        session = self._session
        if self._full or len(session.routes) == len(session.interests):
            return
        for key in tuple(session.interests):
            if key in session.interests and key not in session.routes and key not in self._parts:
                self._route(key)
                yield 1

    def _route(self, key: PartitionKey) -> None:
        cluster = self._context.gateway.cluster
        try:
            topic = self._topic(key)
            if self._context.version >= ANY_REPLICA_SINCE:
                route = cluster.any_route(topic, key[1])
            else:
                route = cluster.route(topic, key[1])
        except KafkaError as failure:
            self._session.unwatch(key)
            self._found(_failed_part(key, int(failure.code)))
            return
        old = self._session.routes.get(key)
        if old is not None and old.link is not route.link:
            self._changes(old.link)[1].append(key)
        self._session.watch(key, route)
        self._changes(route.link)[0].append(self._session.interests[key])
        if route.leads and self._request.rack_id:
            self._look_nearer(key, topic)

    def _look_nearer(self, key: PartitionKey, topic: Topic) -> None:
        gateway = self._context.gateway
        if not gateway.selects_replicas:
            return
        state = topic.partitions[key[1]]
        nearer = replica_in_rack(
            gateway.cluster.image, state, key[1], self._request.rack_id, self._context.listener
        )
        if nearer is not None:
            self._closer[key] = nearer

    def _topic(self, key: PartitionKey) -> Topic:
        cluster = self._context.gateway.cluster
        if self._session.by_names:
            return cluster.topic_named(self._session.names[key])
        return cluster.topic(key[0])

    def _changes(self, link: Link) -> tuple[list[Interest], list[PartitionKey]]:
        return self._link_changes.setdefault(link, ([], []))

    def _wait(self) -> None:
        """Ask each replica process to answer when it has its share of the missing bytes."""
        if self._context.client_gone:
            self._finish()
            return
        if self._deadline is None:
            self._deadline = self._context.gateway.runtime.call_later(
                self._request.max_wait_ms, self._time_is_up
            )
            self._context.waits(self._client_has_left)
        links = self._session.links
        share = -(-(self._min_bytes - self._bytes) // len(links))
        self._ask({link: self._bytes_at.get(link, 0) + share for link in links}, wait=True)

    def _ask(self, asked: dict[Link, int], *, wait: bool) -> None:
        request = self._request
        self._waiting = wait
        self._called_in = False
        final = wait or request.max_wait_ms <= 0
        self._once = final and not self._session.session_id and len(asked) == 1
        self._asked = asked
        self._left = dict.fromkeys(asked)  # first, because responses may arrive at once
        for link, min_bytes in asked.items():
            if self._finished:
                return
            changed, forgotten = self._link_changes.pop(link, ([], []))
            ask = FetchAsk(
                self._session.link_session_id,
                self._once,
                self._full,
                request.isolation_level,
                self._max_bytes,
                min_bytes,
                wait,
                changed,
                forgotten,
            )
            link.request(FETCH, ask, (), *self._handlers(link))

    def _handlers(
        self, link: Link
    ) -> tuple[Callable[[Any, memoryview], None], Callable[[Exception], None]]:
        def answered(found: list[list[Any]], _payload: memoryview) -> None:
            parts = each_taken(FetchedPartition, found)
            if link in self._left:
                self._bytes_at[link] = sum(part.length for part in parts)
                for part in parts:
                    self._found(part)
                self._one_answered(link)
            else:
                self._too_late(parts)

        def failed(failure: Exception) -> None:
            code = int(error_code_of(failure))
            session = self._session
            for key in [key for key, route in session.routes.items() if route.link is link]:
                session.unwatch(key)
                if link in self._left:
                    self._found(_failed_part(key, code))
            if link in self._left:
                self._one_answered(link)

        return answered, failed

    # ---- answers -------------------------------------------------------------------------

    def _found(self, part: FetchedPartition) -> None:
        key = (part.topic_id, part.partition)
        if key in self._closer:
            part = self._sent_nearer(key, part)
        before = self._parts.get(key)
        self._bytes += part.length - (0 if before is None else before.length)
        self._parts[key] = part
        if part.error_code:
            self._session.unwatch(key)
        self._urgent = self._urgent or bool(part.error_code or part.diverging)

    def _sent_nearer(self, key: PartitionKey, part: FetchedPartition) -> FetchedPartition:
        """Drop a partition's records if the consumer is redirected, which ends the wait.

        The consumer is not redirected if its position is invalid, or beyond what is committed: only
        up to there an in-sync replica certainly has the log.
        """
        interest = self._session.interests.get(key)
        if interest is None:
            return part  # a later request has forgotten it
        has_it = part.log_start_offset <= interest.offset <= part.high_watermark
        if part.error_code or part.diverging or not has_it:
            return part
        self._redirected[key] = self._closer[key]
        return part._replace(length=0, aborted=None)

    def _too_late(self, parts: list[FetchedPartition]) -> None:
        """Handle a response that came too late. Records will be sent again, errors will not."""
        for part in parts:
            if part.error_code:
                self._session.unwatch((part.topic_id, part.partition))

    def _one_answered(self, link: Link) -> None:
        del self._left[link]
        if self._waiting and (self._has_enough() or self._has_no_room(link)):
            self._finish()
        elif not self._left:
            self._all_answered()
        elif self._waiting and not self._called_in:
            self._called_in = True
            self._context.gateway.runtime.call_later(0, self._call_in)

    def _has_enough(self) -> bool:
        """Whether the client should be answered now."""
        enough = self._bytes >= self._min_bytes
        return enough or self._urgent or bool(self._redirected)

    def _has_no_room(self, link: Link) -> bool:
        """Whether a process answered by itself with less than its share: the rest has no room."""
        if self._called_in or self._time_over:
            return False
        return self._bytes_at.get(link, 0) < self._asked[link]

    def _all_answered(self) -> None:
        may_wait = self._request.max_wait_ms > 0 and not self._time_over and self._session.links
        if self._has_enough() or not may_wait:
            self._finish()
        else:
            self._wait()

    def _call_in(self) -> None:
        """Tell the others to answer with what they have, since one has its share."""
        if self._called_in:
            self._end_waits()

    def _client_has_left(self) -> None:
        """End the wait, since the client has disconnected."""
        if self._deadline is not None and not self._time_over and not self._finished:
            self._deadline.cancel()
            self._time_is_up()

    def _time_is_up(self) -> None:
        """End the wait: the replicas answer with what they have."""
        self._time_over = True
        self._deadline = self._context.gateway.runtime.call_later(REPLICA_GRACE_MS, self._finish)
        self._end_waits()

    def _end_waits(self) -> None:
        for link in tuple(self._left):
            link.request(FETCH_END, (self._session.link_session_id, False), (), _ignore, _ignore)

    def _finish(self) -> None:
        self._finished = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._left.clear()
        if not self._session.session_id and not self._once:
            self._context.gateway.end_fetch_session(self._session)
        if self._context.client_gone:
            self._context.no_reply()
            return
        response = FetchResponse(session_id=self._session.session_id)
        self._context.in_turns(self._fill(response), partial(self._reply, response))

    def _reply(self, response: FetchResponse) -> None:
        if self._late:
            self._context.gateway.runtime.start(self._reply_later(response), "late records")
        elif self._urgent:
            self._context.reply(response)
        else:
            self._context.reply_well(response)

    async def _reply_later(self, response: FetchResponse) -> None:
        """Answer with records that come from the disk or go through interceptors."""
        runtime = self._context.gateway.runtime
        intercepted = True
        for late in self._late:
            try:
                late.data.records = await late.records(runtime)
            except FileNotFoundError:
                late.data.records = b""  # the segment was just removed
            except OSError as failure:
                late.fail(failure)
            except KafkaError as failure:
                intercepted = False
                late.fail(failure)
        if not intercepted:  # otherwise clients retry at once, and plug-ins fail again as often
            await runtime.sleep(min(self._request.max_wait_ms, FAILED_PAUSE_MS) / 1000)
        self._context.reply(response)

    def _fill(self, response: FetchResponse) -> Iterator[int]:
        """Fill in the response."""
        session = self._session
        answered: dict[tuple[str, TopicId], list[PartitionData]] = {}
        hints: list[LeaderIdAndEpoch | None] = []
        room = max(self._max_bytes, 1)
        left_out = []
        for key in self._answered_keys():
            if key not in session.interests:
                continue  # a later request of the session was faster
            part = self._parts.get(key)
            if part is None:
                part, self._urgent = _failed_part(key, _LATE), True
            if part.length and room <= 0:
                part = part._replace(length=0)  # still news: the next fetch returns it
                left_out.append(key)
            nearer = self._redirected.get(key, NO_REPLICA)
            if not session.is_news(part) and not self._full and nearer == NO_REPLICA:
                continue
            data = self._partition_data(key, part)
            data.preferred_read_replica = nearer
            hints.append(data.current_leader)
            room -= part.length
            answered.setdefault((session.names[key], key[0]), []).append(data)
            yield 1
        session.left_out = tuple(left_out)
        response.responses = [
            FetchableTopicResponse(topic=name, topic_id=_wire_id(topic_id), partitions=parts)
            for (name, topic_id), parts in answered.items()
        ]
        response.node_endpoints = self._endpoints(hints)

    def _endpoints(self, hints: list[LeaderIdAndEpoch | None]) -> list[NodeEndpoint]:
        if self._context.version < ENDPOINTS_SINCE:
            return []
        image = self._context.gateway.cluster.image
        return node_endpoints(image, hints, self._context.listener)

    def _answered_keys(self) -> list[PartitionKey]:
        if self._full:
            return list(self._session.interests)
        first = [key for key in self._session.left_out if key in self._parts]
        ordered = dict.fromkeys(first) | self._parts if first else self._parts
        return [key for key in ordered if key in self._session.interests]

    def _partition_data(self, key: PartitionKey, part: FetchedPartition) -> PartitionData:
        gateway = self._context.gateway
        data = PartitionData(
            partition_index=key[1],
            error_code=part.error_code,
            high_watermark=part.high_watermark,
            last_stable_offset=part.last_stable_offset,
            log_start_offset=part.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if part.error_code and self._context.version >= HINTS_SINCE:
            data.current_leader = leader_hint(
                gateway.cluster.image.topics.get(key[0]), key[1], part.error_code
            )
        if part.diverging and self._context.version >= DIVERGING_SINCE:
            data.diverging_epoch = EpochEndOffset(
                epoch=part.diverging[0], end_offset=part.diverging[1]
            )
        elif part.diverging:
            # A newer version sent the epoch earlier in this session; this version has no field for
            # it.
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        if part.aborted is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in part.aborted
            ]
        if part.length:
            self._add_records(data, key, part)
        return data

    def _add_records(self, data: PartitionData, key: PartitionKey, part: FetchedPartition) -> None:
        """Attach the records if their segment exists; otherwise the next fetch finds the new one.

        Records that cannot be mapped, for example for lack of descriptors, are read like cold
        records. Nothing is read for a deleted topic: its interceptors are no longer known.
        """
        route = self._session.routes.get(key)
        gateway = self._context.gateway
        topic = gateway.cluster.image.topics.get(key[0])
        if route is None or topic is None:
            return
        gateway.counts.topics.of(topic.name).out += part.length
        slice_ = (route.directory, part.segment_id, part.position, part.length)
        try:
            view = gateway.maps.slice(*slice_)
        except FileNotFoundError:
            return
        except OSError as failure:
            log.warning("mapping %s failed: %s", slice_, failure)
            view = None
        interceptors = gateway.rules.of(topic).interceptors
        if interceptors is not None and interceptors.passes_fetch:
            interceptors = None
        if view is None or interceptors is not None:
            self._late.append(LateRecords(data, slice_, view, interceptors))
        else:
            data.records = view


def _interest(topic_id: TopicId, part: FetchPartition, version: int) -> Interest:
    return Interest(
        topic_id,
        part.partition,
        part.fetch_offset,
        part.partition_max_bytes,
        part.current_leader_epoch,
        part.last_fetched_epoch,
        version >= ANY_REPLICA_SINCE,
    )


def _failed_part(key: PartitionKey, error_code: int) -> FetchedPartition:
    return FetchedPartition(*key, error_code, -1, -1, -1)


def _wire_id(topic_id: TopicId) -> bytes:
    return topic_id if len(topic_id) == 16 else bytes(16)


def _ignore(*_: object) -> None:
    """Ignore the response to `fetch_end`, since the fetch itself is answered."""
