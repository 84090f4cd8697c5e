"""Shell of the partition replicas in one process: owns logs, links and clock, decides nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from raylog.actors.metrics.samples import ProcessMetrics
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, broker_name
from raylog.actors.plain import cut, taken
from raylog.actors.ports import (
    OpenedPartition,
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    PartitionStatus,
    TopicConfig,
    TopicId,
)
from raylog.actors.replica import api
from raylog.actors.replica.alterations import Alterations
from raylog.actors.replica.api import FetchAsk, FetchedPartition, Interest
from raylog.actors.replica.claims import Claims
from raylog.actors.replica.cleaner import Cleaner
from raylog.actors.replica.config import CleanerSettings, ReplicationSettings, partition_config
from raylog.actors.replica.deletions import Deletions
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.following import Following
from raylog.actors.replica.isolation import Isolation
from raylog.actors.replica.leading import Proposal
from raylog.actors.replica.lookups import Lookup, Lookups
from raylog.actors.replica.machine import PartitionMachine
from raylog.actors.replica.marking import MarkerCodes, marker_batch
from raylog.actors.replica.opening import close_logs, open_logs
from raylog.actors.replica.partition import Partition, unknown_partition
from raylog.actors.replica.partition_files import PartitionFiles
from raylog.actors.replica.produce import Write, Writes
from raylog.actors.replica.sampling import TOPICS_MAX, ReplicaMetrics
from raylog.actors.replica.serving import Serving
from raylog.actors.replica.sessions import FetchSession
from raylog.actors.replica.throttler import Throttler
from raylog.actors.replica.upkeep import Upkeep
from raylog.actors.replica.verifying import Held, Verifying
from raylog.actors.runtime.base import ActorGone, LinkRequest, PeerLost, PeerTimeout, Runtime
from raylog.actors.runtime.deadlines import Deadlines
from raylog.actors.transaction.api import WRITE_MARKERS, MarkedPartition, Marker
from raylog.actors.transaction.client import TransactionCoordinators
from raylog.storage.log import Log, Slice
from raylog.storage.producers import ProducerSnapshot
from raylog.wire.errors import (
    FencedLeaderEpoch,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from raylog.wire.records import NO_SEQUENCE

log = logging.getLogger(__name__)
SessionKey = tuple[int, int]
"""(link, the gateway's session id)."""
BUSY_WAIT_S = 0.005
REPORT_TIMEOUT_MS = 5_000
MARKERS_TIMEOUT_MS = 30_000
"""For markers to be replicated."""
DESCRIBED_AT_ONCE = 1_000
"""Producers of a partition that are told of in one turn; a thread tells of more."""
COORDINATORS_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class ReplicaActor:
    """Serves produce and fetch for the partitions it was given, over links.

    Control calls (open, lead, close, configure) come from the Broker by `Runtime.call`.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str,
        cluster_id: str,
        broker_id: int,
        replication: ReplicationSettings | None = None,
        retention_check_interval_ms: int = 300_000,
        cleaner: CleanerSettings | None = None,
        topics_max: int = TOPICS_MAX,
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._broker_id = broker_id
        self._broker = broker_name(cluster_id, broker_id)
        self._replication = settings = replication or ReplicationSettings()
        self._retention_check_interval_ms = retention_check_interval_ms
        self._disk = runtime.disk
        self._partitions: dict[PartitionKey, Partition] = {}
        self._metrics = ReplicaMetrics(runtime, self._partitions, topics_max)
        self._flush_failed: set[PartitionKey] = set()
        """Closed logs whose flush failed: what was not flushed is in doubt."""
        self._cleaner = Cleaner(
            runtime, cleaner or CleanerSettings(), self._partitions, name=name, broker=self._broker
        )
        self._sessions: dict[SessionKey, FetchSession] = {}
        self._deferred = False
        """Whether a look at news left out records that a thread must see first."""
        self._claims = Claims()
        self._failures = StorageFailures(runtime.monotonic_ms)
        self._deadlines = Deadlines(runtime)
        self._upkeep = Upkeep(runtime, self._partitions, self._failures, self._cleaner.note)
        self._throttler = Throttler(
            runtime, settings, cluster_id=cluster_id, broker_id=broker_id, name=name
        )
        self._isolation = Isolation(runtime, self._partitions, self._broker, settings.session_ms)
        self._serving = Serving(
            runtime, self._deadlines, self._partitions, self._throttler, self._isolation.heard
        )
        self._following = Following(
            runtime, settings, cluster_id, broker_id, self._throttler, self._upkeep
        )
        self._deletions = Deletions(runtime, self._partitions, self._upkeep, self._serving)
        self._alterations = Alterations(runtime, cluster_id, broker_id)
        self._files = PartitionFiles(runtime)
        self._transactions = TransactionCoordinators(runtime, self._broker)
        self._lookups = Lookups(runtime, self._partitions, self._refusal)
        self._verifying = Verifying(self._transactions, self._produce_verified)
        self._handlers: dict[str, Callable[[LinkRequest], None]] = {
            api.PRODUCE: self._produce,
            api.PRODUCE_IN_TRANSACTION: self._produce_in_transaction,
            WRITE_MARKERS: self._write_markers,
            api.FETCH: self._fetch,
            api.FETCH_END: self._fetch_end,
            api.OFFSET_FOR: self._offset_for,
            api.EPOCH_END: self._epoch_end,
            api.DELETE_RECORDS: self._delete_records,
            api.PRODUCERS: self._producers,
            api.CLAIM: self._claim,
            api.REPLICATE: self._serving.replicate,
        }

    async def start(self) -> None:
        """Begin the retention sweep."""
        retention = self._upkeep.sweep_forever(self._retention_check_interval_ms)
        self._runtime.start(retention, "retention")

    async def stop(self) -> None:
        """Close all logs cleanly."""
        self._upkeep.stop()
        self._transactions.close()
        await self.close_partitions(list(self._partitions), False)

    async def ping(self) -> dict[str, Any]:
        """Who is here: for adoption by a restarted Broker."""
        return {"name": self._name, "pid": os.getpid(), "partitions": len(self._partitions)}

    # ---- control -------------------------------------------------------------------------

    async def open_partitions(self, asked: list[OpenPartition]) -> list[OpenedPartition]:
        """Open logs, each as a new incarnation; one that fails does not keep the others."""
        fresh = [one for one in asked if (one.topic_id, one.partition) not in self._partitions]
        opened = await self._runtime.run_blocking(
            open_logs, fresh, self._disk, self._runtime.now_ms(), frozenset(self._flush_failed)
        )
        for one, outcome in zip(fresh, opened, strict=True):
            if isinstance(outcome, tuple):
                key = (one.topic_id, one.partition)
                self._flush_failed.discard(key)
                self._partitions[key] = self._partition(key, one, outcome[0])
                self._cleaner.note(self._partitions[key])
                self._files.opened(one, outcome[1])
        if fresh:
            self._throttler.configure(fresh[-1].config)
        failures = {
            (one.topic_id, one.partition): str(outcome)
            for one, outcome in zip(fresh, opened, strict=True)
            if not isinstance(outcome, tuple)
        }
        return [self._opened(one, failures) for one in asked]

    def _partition(self, key: PartitionKey, asked: OpenPartition, opened: Log) -> Partition:
        config = partition_config(asked.config)
        machine = PartitionMachine(
            self._broker_id,
            opened.log_end_offset,
            opened.high_watermark_saved,
            config.min_isr,
            self._replication.lag_ms_max,
        )
        counts = self._metrics.opened(asked.topic)
        return Partition(key, asked.topic, opened, config, machine, self, counts=counts)

    def _opened(self, asked: OpenPartition, failures: dict[PartitionKey, str]) -> OpenedPartition:
        key = (asked.topic_id, asked.partition)
        partition = self._partitions.get(key)
        if partition is None:
            return OpenedPartition(*key, error=failures[key])
        opened = partition.log
        whole = opened.is_whole and not self._files.begun_anew(key)
        return OpenedPartition(*key, opened.log_start_offset, opened.log_end_offset, whole=whole)

    async def lead_partitions(self, leaderships: list[PartitionLeadership]) -> None:
        """Take in committed leadership; older epochs change nothing."""
        for leadership in leaderships:
            key = (leadership.topic_id, leadership.partition)
            partition = self._partitions.get(key)
            while partition is not None and partition.in_surgery:
                await self._runtime.sleep(BUSY_WAIT_S)
                partition = self._partitions.get(key)
            if partition is not None:
                partition.lead(leadership)
                if self._broker_id in leadership.isr:
                    self._files.in_sync(key)
                self._serving.reconsider(partition)
                self._upkeep.unsettled(partition)

    async def close_partitions(self, keys: list[PartitionKey], delete: bool) -> None:
        """Close logs; with `delete` their directories go too."""
        closing = [p for key in keys if (p := self._partitions.pop(key, None)) is not None]
        await self._close(closing, delete)

    async def _close(self, closing: list[Partition], delete: bool) -> None:
        for partition in closing:
            self._metrics.closed(partition)
            self._following.leave(partition)
            partition.fail_waiting(NotLeaderOrFollower("the replica is closed"))
            self.has_news(partition)
            self._serving.has_grown(partition)
            partition.log.stop_cleaning()
            self._files.closing(partition.key)
        while any(map(self._is_in_use, closing)):
            await self._runtime.sleep(BUSY_WAIT_S)
        for partition in closing:
            partition.in_surgery = True  # no flush nor checkpoint may begin beside the thread
        try:
            await self._runtime.run_blocking(close_logs, closing, delete)
        finally:
            self._flush_failed.update(one.key for one in closing if one.log.flush_failed)

    def _is_in_use(self, partition: Partition) -> bool:
        """Whether a thread is at the files of a partition."""
        writing = self._files.is_writing(partition.key)
        return partition.log.busy or partition.in_surgery or writing

    async def configure(self, configs: list[TopicConfig]) -> None:
        """Apply changed topic configurations."""
        changed = {one.topic_id: one for one in configs}
        for partition in self._partitions.values():
            topic = changed.get(partition.key[0])
            if topic is not None:
                partition.configure(partition_config(topic.config))
                self._cleaner.note(partition)
                self._files.configured(partition.key, topic.settings, topic.noted)
        if configs:
            self._throttler.configure(configs[-1].config)

    async def describe(self) -> list[PartitionStatus]:
        """Figures of every partition here."""
        return [
            replace(partition.status(), whole=False)
            if self._files.begun_anew(key)
            else partition.status()
            for key, partition in self._partitions.items()
        ]

    async def metrics(self) -> ProcessMetrics:
        """What this process has counted."""
        fetches = sum(session.parked is not None for session in self._sessions.values())
        waiting = {"fetch": fetches, "follower": self._serving.parked}
        return await self._metrics.sample(self._upkeep, self._cleaner, waiting)

    # ---- links ---------------------------------------------------------------------------

    def link_received(self, request: LinkRequest) -> None:
        """Dispatch one link request; what a client did wrong is an answer."""
        try:
            self._handlers[request.kind](request)
        except (KafkaError, OSError) as failure:
            request.fail(self._refusal(request.kind, failure))

    def _refusal(self, kind: str, failure: KafkaError | OSError) -> KafkaError:
        """What the requester is told; failures of the disk are reported here too."""
        if isinstance(failure, OSError):
            log.error("%s failed on the disk", kind, exc_info=failure)
            return KafkaStorageError(f"{kind}: {failure}")
        if isinstance(failure, KafkaStorageError):
            self._failures.report(failure)
        return failure

    def partition(self, topic_id: TopicId, index: int) -> Partition:
        """A partition replica that is open here; raises UnknownTopicOrPartition."""
        partition = self._partitions.get((topic_id, index))
        if partition is None:
            raise UnknownTopicOrPartition(f"partition {index} of {topic_id.hex()} is not open here")
        return partition

    def _produce(self, request: LinkRequest) -> None:
        acks, timeout_ms, parts = cut(request.header, 3)
        writes = Writes(request, len(parts))
        payload = request.payload
        now_ms = self._runtime.now_ms()
        begin = 0
        for number, (topic_id, index, epoch, length, refused, *_) in enumerate(parts):
            write = Write(writes, number, payload[begin : begin + length], refused)
            begin += length
            try:
                partition = self.partition(topic_id, index)
                self._claims.check(partition.key, request.peer)
                partition.produce(write, epoch, acks, now_ms)
            except (KafkaError, OSError) as failure:
                write.fail(self._refusal(request.kind, failure))
                if isinstance(failure, KafkaStorageError):
                    partition.give_up_if_offline()
            else:
                self._upkeep.flush_if_due(partition, now_ms)
                self._upkeep.appended(partition)
        if acks != api.UNTIL_COMMITTED:
            writes.limit(self._deadlines, timeout_ms)

    def _produce_in_transaction(self, request: LinkRequest) -> None:
        acks, timeout_ms, parts, plain = cut(request.header, 4)
        transaction = taken(api.TransactionalWrite, plain)
        writes = Writes(request, len(parts))
        begin = 0
        for number, (topic_id, index, epoch, length, refused, *_) in enumerate(parts):
            batch = request.payload[begin : begin + length]
            begin += length
            held = Held(Write(writes, number, batch, refused), epoch, acks, transaction)
            try:
                partition = self.partition(topic_id, index)
                self._claims.check(partition.key, request.peer)
                self._verifying.produce(partition, held)
            except KafkaError as failure:
                held.write.fail(failure)
        self._verifying.ask()
        writes.limit(self._deadlines, timeout_ms)

    def _produce_verified(self, partition: Partition, held: Held) -> None:
        """Append a batch that belongs to its transaction."""
        try:
            partition.produce(held.write, held.leader_epoch, held.acks, self._runtime.now_ms())
        except (KafkaError, OSError) as failure:
            held.write.fail(self._refusal(api.PRODUCE_IN_TRANSACTION, failure))
            if isinstance(failure, KafkaStorageError):
                partition.give_up_if_offline()
        else:
            self.has_appended(partition)

    def _write_markers(self, request: LinkRequest) -> None:
        markers = [Marker.of(plain) for plain in request.header]
        codes = MarkerCodes(request, [len(marker.partitions) for marker in markers])
        writes = Writes(codes, codes.count)
        now_ms = self._runtime.now_ms()
        numbers = count()
        for marker in markers:
            batch = marker_batch(marker, now_ms)
            for where in marker.partitions:
                write = Write(writes, next(numbers), memoryview(bytearray(batch)), NO_SEQUENCE)
                self._write_marker(write, marker, where, now_ms)
        writes.limit(self._deadlines, MARKERS_TIMEOUT_MS)

    def _write_marker(
        self, write: Write, marker: Marker, where: MarkedPartition, now_ms: int
    ) -> None:
        """Write one marker; whoever sent it looks for the leader again where this is not it."""
        try:
            partition = self.partition(where.topic_id, where.partition)
            if partition.topic in COORDINATORS_TOPICS:
                raise InvalidTopicException(f"{partition.topic} is its coordinators' to write to")
            partition.write_marker(write, marker, where.leader_epoch, now_ms)
        except (UnknownTopicOrPartition, FencedLeaderEpoch, UnknownLeaderEpoch) as failure:
            write.fail(NotLeaderOrFollower(str(failure)))
        except (KafkaError, OSError) as failure:
            write.fail(self._refusal(WRITE_MARKERS, failure))
            if isinstance(failure, KafkaStorageError):
                partition.give_up_if_offline()
        else:
            self.has_appended(partition)

    def _offset_for(self, request: LinkRequest) -> None:
        topic_id, index, epoch, timestamp, isolation = cut(request.header, 5)
        partition = self.partition(topic_id, index)
        known = partition.offset_for(epoch, timestamp, isolation)
        if known is not None:
            request.reply(known)
        else:
            self._lookups.add(Lookup(partition, epoch, timestamp, isolation, request))

    def _epoch_end(self, request: LinkRequest) -> None:
        topic_id, index, epoch, asked = cut(request.header, 4)
        partition = self.partition(topic_id, index)
        partition.machine.require_leader(epoch)
        request.reply(partition.log.epochs.end_offset_for(asked, partition.log.log_end_offset))

    def _delete_records(self, request: LinkRequest) -> None:
        topic_id, index, offset = cut(request.header, 3)
        partition = self.partition(topic_id, index)
        self._deletions.delete(request, partition, offset)

    def _claim(self, request: LinkRequest) -> None:
        topic_id, index, epoch = cut(request.header, 3)
        partition = self.partition(topic_id, index)
        partition.machine.require_leader(epoch)
        self._claims.take(partition.key, request.peer)
        request.reply(partition.log.log_end_offset)

    def _producers(self, request: LinkRequest) -> None:
        topic_id, index = cut(request.header, 2)
        partition = self.partition(topic_id, index)
        found = partition.log.producers.snapshot()
        if len(found) <= DESCRIBED_AT_ONCE:
            request.reply(api.pack_producers(found.describe()))
        else:
            self._runtime.start(self._describe(request, found), "describe producers")

    async def _describe(self, request: LinkRequest, found: ProducerSnapshot) -> None:
        """Have a thread describe many producers."""
        request.reply(await self._runtime.run_blocking(api.pack_producers, found.describe()))

    # ---- fetch ---------------------------------------------------------------------------

    def _fetch(self, request: LinkRequest) -> None:
        ask = taken(FetchAsk, request.header)
        session_key = (request.peer, ask.session_id)
        session = self._sessions.get(session_key)
        if session is None:
            session = self._sessions[session_key] = FetchSession(ask.once)
        elif session.parked is not None:
            session.answer()
        session.change(ask)
        self._watch(session_key, session, ask)
        session.parked = request
        self._look(session_key, session)

    def _look(self, session_key: SessionKey, session: FetchSession) -> None:
        """Look at what has news, and answer if that is worth it."""
        self._deferred = False
        ready = session.collect(self._read)
        session.waits_for_files = self._deferred and not session.waits
        if (ready or not (session.waits or session.has_more)) and not session.waits_for_files:
            self._answer(session_key, session)
        elif session.has_more:
            parked = session.parked
            self._runtime.start(self._look_on(session_key, session, parked), "a large fetch")

    async def _look_on(
        self, session_key: SessionKey, session: FetchSession, parked: LinkRequest | None
    ) -> None:
        """Look at more of what has news when others have had their turn."""
        await self._runtime.sleep(0)
        if parked is not None and session.parked is parked:
            self._look(session_key, session)

    def _watch(self, session_key: SessionKey, session: FetchSession, ask: FetchAsk) -> None:
        for topic_id, index in ask.forgotten:
            partition = self._partitions.get((topic_id, index))
            if partition is not None:
                partition.sessions.pop(session, None)
        for change in ask.changes:
            partition = self._partitions.get((change[0], change[1]))
            if partition is not None:
                partition.sessions[session] = session_key

    def _read(
        self, interest: Interest, room: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        partition = self._partitions.get((interest.topic_id, interest.partition))
        if partition is None:
            return unknown_partition(interest)
        part = partition.read(interest, room, at_least_one, isolation)
        if partition.waits_for_files and not part.length and not part.error_code:
            self._deferred = True
        return part

    def has_news(self, partition: Partition) -> None:
        """Answer who waits for more of a partition."""
        for session, session_key in tuple(partition.sessions.items()):
            if partition.key not in session.interests:
                continue  # it was forgotten after the partition was given up
            session.news[partition.key] = None
            if session.parked is None:
                continue
            self._deferred = False
            ready = session.collect(self._read)
            if ready and not (session.waits_for_files and self._deferred):
                self._answer(session_key, session)

    def _answer(self, session_key: SessionKey, session: FetchSession) -> None:
        session.answer()
        if session.once:
            self._end_session(session_key)

    def _fetch_end(self, request: LinkRequest) -> None:
        session_id, forget = cut(request.header, 2)
        session_key = (request.peer, session_id)
        session = self._sessions.get(session_key)
        if session is not None:
            session.waits = False
            if session.has_more and not forget:
                request.reply(None)  # it is answered as soon as all has been looked at
                return
            if session.parked is not None:
                session.answer()
            if forget or session.once:
                self._end_session(session_key)
        request.reply(None)

    def _end_session(self, session_key: SessionKey) -> None:
        session = self._sessions.pop(session_key)
        for key in session.interests:
            partition = self._partitions.get(key)
            if partition is not None:
                partition.sessions.pop(session, None)

    def link_lost(self, peer: int) -> None:
        """Forget the fetch sessions and claims of one that is gone."""
        self._claims.forget(peer)
        self._serving.link_lost(peer)
        for session_key in [key for key in self._sessions if key[0] == peer]:
            self._end_session(session_key)

    # ---- what partitions need of their process -------------------------------------------

    def monotonic_ms(self) -> int:
        """Time that never goes back."""
        return int(self._runtime.monotonic_ms())

    def has_grown(self, partition: Partition) -> None:
        """Tell followers."""
        self._serving.has_grown(partition)

    def has_figures(self, partition: Partition) -> None:
        """Tell followers, some time soon."""
        self._serving.has_figures(partition)

    def has_appended(self, partition: Partition) -> None:
        """Look after a follower's log that grew."""
        self._upkeep.flush_if_due(partition, self._runtime.now_ms())
        self._upkeep.appended(partition)

    def has_failed(self, partition: Partition) -> None:
        """Give up a partition whose disk failed; the broker has it opened anew."""
        if self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]
            self._runtime.start(self._give_up(partition), f"give up {partition.name}")

    async def _give_up(self, partition: Partition) -> None:
        try:
            await self._close([partition], False)
        except KafkaStorageError as failure:
            log.error("%s could not be closed: %s", partition.name, failure)
        told = False
        while not told:
            try:
                await self._runtime.call(
                    self._broker,
                    "partitions_failed",
                    self._name,
                    [partition.key],
                    timeout_ms=REPORT_TIMEOUT_MS,
                )
            except PeerTimeout as late:
                log.warning("the broker does not hear of a failed disk: %s", late)
            except (ActorGone, PeerLost) as lost:
                log.warning("the next broker process will ask what is open: %s", lost)
                told = True
            else:
                told = True

    def flush(self, partition: Partition) -> None:
        """Flush a log that has as much unflushed as its configuration allows."""
        self._upkeep.flush(partition)

    def check(self, partition: Partition, found: Slice) -> None:
        """Check what nobody has read since the log was opened."""
        self._upkeep.check(partition, found)

    def load_index(self, partition: Partition, offset: int) -> None:
        """Get the index for an offset."""
        self._upkeep.load_index(partition, offset)

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch from a leader."""
        self._following.follow(partition, leader)

    def leave(self, partition: Partition) -> None:
        """Fetch no more."""
        self._following.leave(partition)

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Ask for other in-sync replicas."""
        self._alterations.propose(partition, proposal)
