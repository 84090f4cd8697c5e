"""One partition replica in its Replica actor: its log, its machine, and waiting requests."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from raylog.actors.common_messages import (
    PartitionKey,
    PartitionLeadership,
    PartitionStatus,
    TopicId,
)
from raylog.actors.replica.counts import TopicCounts
from raylog.actors.replica.messages import (
    ACKS_ALL,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    UNTIL_COMMITTED,
    FetchedPartition,
    Interest,
    ProduceAnswer,
    ReplicatedPart,
)
from raylog.actors.replica.rules.config import PartitionConfig
from raylog.actors.replica.rules.divergence import divergence
from raylog.actors.replica.rules.machine import (
    Appended,
    Effect,
    Event,
    FailUnsafe,
    Follow,
    IsrAltered,
    IsrRefused,
    LeadershipChanged,
    MinIsrChanged,
    PartitionMachine,
    Propose,
    ReleaseUpTo,
    StartLeading,
    StopFollowing,
    StopLeading,
)
from raylog.actors.replica.rules.sessions import FetchSession, FollowerSession
from raylog.actors.replica.rules.work import LogWork, Task
from raylog.actors.replica.verifying import Verification
from raylog.actors.replica.writes import Write
from raylog.actors.transaction.messages import Marker
from raylog.storage.config import NEVER
from raylog.storage.durability import FlushJob
from raylog.storage.log import Log, Slice
from raylog.storage.lookup import LookupJob
from raylog.storage.producers import Duplicate, marker_in
from raylog.wire.errors import (
    ErrorCode,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from raylog.wire.records import NO_SEQUENCE, BatchHeader, read_header, set_log_append_time

if TYPE_CHECKING:
    from raylog.actors.replica.alter_partition import AlterPartitionManager
    from raylog.actors.replica.deletions import Deletion
    from raylog.actors.replica.follower_sessions import FollowerSessions
    from raylog.actors.replica.gateway_sessions import GatewaySessions
    from raylog.actors.replica.log_manager import LogManager
    from raylog.actors.replica.reads import Reads
    from raylog.actors.replica.replica_fetcher_manager import ReplicaFetcherManager

log = logging.getLogger(__name__)
Waiting = tuple[int, Write, ProduceAnswer]
"""A waiting writer: the next offset after its batch, its write, its answer."""
REFUSED_MAX = 1_000
"""Limit for the number of producers whose refused sequences are remembered."""


@dataclass(frozen=True, slots=True)
class Host:
    """The parts of the process that a partition calls."""

    monotonic_ms: Callable[[], float]
    reads: Reads
    gateway_sessions: GatewaySessions
    follower_sessions: FollowerSessions
    log_manager: LogManager
    fetchers: ReplicaFetcherManager
    alterations: AlterPartitionManager
    failed: Callable[[Partition], None]
    """Called when the disk failed; the log is then offline until it is reopened."""


@dataclass(slots=True, eq=False)
class Partition:
    """Shell of one partition replica; decides nothing that its machine can decide."""

    key: PartitionKey
    topic: str
    log: Log
    config: PartitionConfig
    machine: PartitionMachine
    host: Host
    sessions: dict[FetchSession, None] = field(default_factory=dict)
    """Gateway sessions that watch this partition."""
    waiting: deque[Waiting] = field(default_factory=deque)
    """Writers waiting for the high watermark, and for a flush if one is due."""
    unflushed: deque[Waiting] = field(default_factory=deque)
    """Writers waiting only for a flush."""
    committing: deque[Waiting] = field(default_factory=deque)
    """Coordinators' writes: like `waiting`, but they wait as long as this replica leads."""
    refused: dict[tuple[int, int], int] = field(default_factory=dict)
    """First refused sequence of each producer unknown to the log, by id and epoch."""
    verifying: dict[int, Verification] = field(default_factory=dict)
    """Writes waiting for their transaction's coordinator, by producer id."""
    deletions: list[Deletion] = field(default_factory=list)
    """Deletions waiting for followers."""
    followers: dict[FollowerSession, None] = field(default_factory=dict)
    """Sessions of followers that fetch from this replica."""
    work: LogWork = field(default_factory=LogWork)
    """The tasks that use the log's files."""
    is_behind: bool = True
    """As a follower: whether the leader had more records at the last answer."""
    flush_target: int = 0
    """Writers whose batches end at or below this offset wait for a flush up to that end."""
    counts: TopicCounts = field(default_factory=TopicCounts)
    """Counters of its topic."""

    @property
    def name(self) -> str:
        """Name in logs and messages."""
        return f"{self.topic}-{self.key[1]}"

    @property
    def waits_for_flush(self) -> bool:
        """Whether flush.ms is set and not everything is durable, so that a timer must flush it."""
        return (
            self.config.log.flush_ms < NEVER
            and self.log.state.recovery_point < self.log.log_end_offset
        )

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what read_uncommitted consumers see."""
        return self.machine.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what read_committed consumers see."""
        return self.log.reader.last_stable_offset(self.machine.high_watermark)

    def lead(self, leadership: PartitionLeadership) -> None:
        """Apply committed leadership; an older epoch changes nothing."""
        self.isr_altered(
            LeadershipChanged(leadership, self.log.log_end_offset, int(self.host.monotonic_ms()))
        )

    def isr_altered(self, event: LeadershipChanged | IsrAltered | IsrRefused) -> None:
        """Handle a change of the in-sync replicas; count it if the same leader still leads."""
        progress = self.machine.progress
        before = None if progress is None else progress.isr
        self.handle(event)
        if progress is not None and before is not None and self.machine.progress is progress:
            self.counts.isr_changed(before, progress.isr)
        self.answer_deletions()

    def configure(self, config: PartitionConfig) -> None:
        """Apply a new configuration."""
        self.config = config
        self.log.reconfigure(config.log)
        self.handle(MinIsrChanged(config.min_isr))

    def handle(self, event: Event) -> None:
        """Give the machine an event and carry out the effects."""
        for effect in self.machine.handle(event):
            self._carry_out(effect)

    def produce(self, write: Write, current_epoch: int, acks: int, now_ms: int) -> None:
        """Append a batch and answer it as its acks demand."""
        try:
            self._produce(write, current_epoch, acks, now_ms)
        except KafkaError:
            self._note_refusal(read_header(write.batch))
            raise

    def write_marker(self, write: Write, marker: Marker, leader_epoch: int, now_ms: int) -> None:
        """Append a transaction's marker; answer once it is below the high watermark.

        Under transaction version 2 a marker has a higher epoch than the transaction that it ends
        (KIP-890). So if the producer's epoch is the marker's and no transaction is open, the marker
        was written before. Pending verifications of the ended transaction fail, whatever the
        coordinator answers.
        """
        self.machine.require_leader(leader_epoch)
        producers, producer_id = self.log.producers, marker.producer_id
        if marker.has_own_epoch and producers.epoch_of(producer_id) == marker.producer_epoch:
            producers.check_marker(read_header(write.batch), marker.coordinator_epoch)
            if producers.transaction_start(producer_id) >= 0:
                raise InvalidProducerEpoch(
                    f"producer {producer_id} has an open transaction of epoch "
                    f"{marker.producer_epoch}, which only a higher one can end"
                )
            end = self.log.log_end_offset
            self._answer(write, ACKS_ALL, end, ProduceAnswer(end, -1, self.log.log_start_offset))
            return
        verification = self.verifying.get(producer_id)
        self._produce(write, leader_epoch, ACKS_ALL, now_ms)
        if verification is not None and marker.ends(verification.epoch):
            verification.fail(InvalidTxnState("the transaction has ended meanwhile"))

    def refuse(self, write: Write, failure: KafkaError) -> None:
        """Fail a batch that was not appended."""
        self._note_refusal(read_header(write.batch))
        write.fail(failure)

    def _note_refusal(self, header: BatchHeader) -> None:
        """Remember an unknown producer's first refused sequence: later batches may follow soon."""
        producers = self.log.producers
        if header.base_sequence == NO_SEQUENCE or producers.epoch_of(header.producer_id) >= 0:
            return
        producer = (header.producer_id, header.producer_epoch)
        self.refused.setdefault(producer, header.base_sequence)
        if len(self.refused) > REFUSED_MAX:
            del self.refused[next(iter(self.refused))]

    def _produce(self, write: Write, current_epoch: int, acks: int, now_ms: int) -> None:
        self.machine.require_leader(current_epoch)
        if acks in (ACKS_ALL, UNTIL_COMMITTED):
            self.machine.require_enough_replicas()
        batch = write.batch
        header = read_header(batch)
        log = self.log
        duplicate = self._check_producer(header, write) if header.producer_id >= 0 else None
        if duplicate is not None:
            answer = ProduceAnswer(
                duplicate.base_offset, duplicate.append_time_ms, log.log_start_offset
            )
            self._answer(write, acks, duplicate.last_offset + 1, answer)
            return
        append_time = -1
        if self.config.log_append_time:
            append_time = now_ms
            set_log_append_time(batch, now_ms)
            header = read_header(batch)
        try:
            info = log.append(batch, header, self.machine.leader_epoch, now_ms)
        except KafkaStorageError:
            self.give_up_if_offline()
            raise
        counts = self.counts
        counts.batches_in += 1
        counts.bytes_in += len(batch)
        counts.records_in += info.next_offset - info.base_offset
        answer = ProduceAnswer(info.base_offset, append_time, log.log_start_offset)
        self.handle(Appended(info.next_offset, int(self.host.monotonic_ms())))
        if self.followers:
            self.host.follower_sessions.has_grown(self)
        if info.next_offset - log.state.recovery_point >= self.config.log.flush_messages:
            self._must_flush(info.next_offset)
        self._answer(write, acks, info.next_offset, answer)

    def _check_producer(self, header: BatchHeader, write: Write) -> Duplicate | None:
        """Return the stored batch if this one is a repeat; raise if it may not be appended.

        A control batch here is a marker that a coordinator writes into its own partition.
        """
        producers = self.log.producers
        if header.is_control:
            marker = marker_in(write.batch)
            if marker is None:
                raise InvalidRecord("a control batch that ends no transaction")
            producers.check_marker(header, marker.coordinator_epoch)
            return None
        if not self.refused:
            return producers.check(header, must_start_at=write.refused_sequence)
        producer = (header.producer_id, header.producer_epoch)
        must_start_at = self.refused.get(producer, write.refused_sequence)
        duplicate = producers.check(header, must_start_at=must_start_at)
        self.refused.pop(producer, None)
        return duplicate

    def _must_flush(self, next_offset: int) -> None:
        self.flush_target = next_offset
        if not self.work.runs(Task.FLUSH):
            self.host.log_manager.flush(self)

    def _is_flushed_to(self, next_offset: int) -> bool:
        """Whether a batch is as durable as the topic's flush settings require."""
        return self.log.state.recovery_point >= min(next_offset, self.flush_target)

    def _is_replicated_to(self, next_offset: int) -> bool:
        return next_offset <= self.machine.high_watermark and self._is_flushed_to(next_offset)

    def _answer(self, write: Write, acks: int, next_offset: int, answer: ProduceAnswer) -> None:
        if acks == ACKS_ALL:
            waiting, is_settled = self.waiting, self._is_replicated_to(next_offset)
        elif acks == UNTIL_COMMITTED:
            waiting, is_settled = self.committing, self._is_replicated_to(next_offset)
        else:
            waiting, is_settled = self.unflushed, self._is_flushed_to(next_offset)
        if is_settled:
            write.reply(answer)
        else:
            waiting.append((next_offset, write, answer))

    def end_flush(self, job: FlushJob, now_ms: int) -> None:
        """End a flush: answer the writers that waited for it, or fail them if the disk failed."""
        try:
            self.log.flushes.end(job, now_ms)
        except KafkaStorageError as failure:
            log.error("%s", failure)
            self.fail_waiting(failure)
            self.give_up_if_offline()
        else:
            self._release()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReleaseUpTo():
                self._release()
                self.host.gateway_sessions.has_news(self)
                if self.followers:
                    self.host.follower_sessions.watermarks_changed(self)
            case Propose(proposal):
                self.host.alterations.propose(self, proposal)
            case StartLeading(leader_epoch, start_offset):
                self.log.epochs.assign(leader_epoch, start_offset)
            case StopLeading():
                self._stop_leading(NotLeaderOrFollower("leadership has moved"))
            case Follow(leader):
                self.host.fetchers.follow(self, leader)
            case StopFollowing():
                self.host.fetchers.leave(self)
                self.host.gateway_sessions.has_news(self)
            case FailUnsafe():
                unsafe = NotEnoughReplicasAfterAppend("too few replicas are in sync now")
                _fail_all(self.waiting, unsafe)
            case _:
                assert_never(effect)

    def _stop_leading(self, moved: KafkaError) -> None:
        """Fail what waited under the ended leadership.

        Deletions continue if the same replica leads in the next epoch.
        """
        self.fail_waiting(moved)
        try:
            self.machine.require_leader()
        except KafkaError as failure:
            self.fail_deletions(failure)
        self.host.gateway_sessions.has_news(self)

    def _release(self) -> None:
        _reply_to_first(self.unflushed, self._is_flushed_to)
        _reply_to_first(self.waiting, self._is_replicated_to)
        _reply_to_first(self.committing, self._is_replicated_to)

    def fail_waiting(self, failure: KafkaError) -> None:
        """Fail every waiting writer.

        Coordinators would take KAFKA_STORAGE_ERROR to mean that the batch was not written.
        """
        _fail_all(self.unflushed, failure)
        _fail_all(self.waiting, failure)
        _fail_all(self.committing, NotLeaderOrFollower(f"whether it counts is open: {failure}"))
        for verification in tuple(self.verifying.values()):
            verification.fail(failure)

    def fail_deletions(self, failure: KafkaError) -> None:
        """Fail every waiting deletion."""
        while self.deletions:
            self.deletions.pop().fail(failure)

    def read(
        self, interest: Interest, max_bytes: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        """Read the slice of the log that a fetcher may see now; errors are part of the answer."""
        try:
            if interest.any_replica and self.machine.is_follower and not self.work.is_reserved:
                self.machine.require_epoch(interest.current_leader_epoch)
            else:
                self.machine.require_leader(interest.current_leader_epoch)
            return self._read(interest, max_bytes, at_least_one, isolation)
        except KafkaError as failure:
            if isinstance(failure, KafkaStorageError):
                self.give_up_if_offline()
            return FetchedPartition(*self.key, int(failure.code), -1, -1, -1)

    def _read(
        self, interest: Interest, max_bytes: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        log = self.log
        offset = interest.offset
        stable = self.last_stable_offset
        committed = isolation == READ_COMMITTED
        limit = self._readable_end(isolation)
        figures = (*self.key, 0, self.machine.high_watermark, stable, log.log_start_offset)
        last_epoch = interest.last_fetched_epoch
        diverging = None
        if last_epoch >= 0:
            diverging = divergence(log.epochs, log.log_end_offset, last_epoch, offset)
        if diverging is not None:
            if diverging[0] < 0:
                raise OffsetOutOfRange(f"where epoch {last_epoch} ended is not known here")
            return FetchedPartition(*figures, diverging=diverging)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{log.log_start_offset}, {log.log_end_offset}]"
            )
        if offset >= limit or max_bytes <= 0 or not self.can_read(offset):
            return FetchedPartition(*figures)
        found = log.read(offset, max_bytes, limit, at_least_one=at_least_one)
        if found is None or not self.may_serve(found):
            return FetchedPartition(*figures)
        aborted = None
        if committed:
            aborted = [
                [one.producer_id, one.first_offset]
                for one in log.reader.aborted_transactions(offset, found.next_offset)
            ]
        return FetchedPartition(
            *figures, found.segment_id, found.position, found.length, aborted, None
        )

    def can_read(self, offset: int) -> bool:
        """Whether an offset's index is in memory; if not, a thread loads it and reports news."""
        if self.log.reader.is_indexed(offset):
            return True
        if not self.work.runs(Task.LOAD_INDEX):
            self.host.reads.load_index(self, offset)
        return False

    def may_serve(self, found: Slice) -> bool:
        """Whether a slice has been checked; if not, a thread checks it and reports news."""
        if not self.log.reader.unchecked.touches(found):
            return True
        if not self.work.runs(Task.CHECK):
            self.host.reads.check(self, found)
        return False

    def offset_for(
        self, current_epoch: int, timestamp: int, isolation: int
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) for a special timestamp.

        (-1, -1, -1) if there is none. None for real timestamps and for the largest timestamp, which
        must be looked up in the log's files (`begin_lookup`).
        """
        self.machine.require_leader(current_epoch)
        log = self.log
        epoch = self.machine.leader_epoch
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            first = log.epochs.epoch_for(log.log_start_offset)
            return log.log_start_offset, -1, epoch if first is None else first
        if timestamp == LATEST_TIMESTAMP:
            self._require_epoch_start()
            return self._readable_end(isolation), -1, epoch
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return -1, -1, -1
        return None

    def begin_lookup(self, timestamp: int) -> LookupJob:
        """A job that finds a record by time; run it in a thread (KIP-79)."""
        return self.log.reader.begin_lookup(None if timestamp == MAX_TIMESTAMP else timestamp)

    def found_by(self, job: LookupJob, current_epoch: int, isolation: int) -> tuple[int, int, int]:
        """A lookup's result, as of `offset_for`; (-1, -1, -1) if no record is that recent."""
        self.machine.require_leader(current_epoch)
        found = job.found
        if found is None or found.offset >= self._readable_end(isolation):
            self._require_epoch_start()
            return -1, -1, -1
        return found

    def _readable_end(self, isolation: int) -> int:
        """Exclusive end of what a consumer sees at this isolation level."""
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark

    def _require_epoch_start(self) -> None:
        """Raise OFFSET_NOT_AVAILABLE while a new leader's high watermark may lag (KIP-207)."""
        if self.machine.is_before_epoch_start:
            raise OffsetNotAvailable("the high watermark is not in the leader's epoch yet")

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset` (-1: the high watermark); return the log start."""
        self.machine.require_leader()
        if not self.config.log.delete:
            raise PolicyViolation("the topic's cleanup.policy does not delete records")
        target = self.high_watermark if offset == -1 else offset
        if not self.log.log_start_offset <= target <= self.high_watermark:
            if target > self.high_watermark or target < 0:
                raise OffsetOutOfRange(
                    f"records up to {offset} cannot be deleted: the log is "
                    f"[{self.log.log_start_offset}, {self.high_watermark})"
                )
            return self.log.log_start_offset
        self.log.delete_records_to(target)
        return self.log.log_start_offset

    def answer_deletions(self) -> None:
        """Answer the deletions that all possible next leaders have reported as durable."""
        if not self.deletions:
            return
        log_starts = {
            session.broker_id: interest.log_start_offset
            for session in self.followers
            if (interest := session.interests.get(self.key)) is not None
        }
        for deletion in tuple(self.deletions):
            if self.machine.have_deleted_to(deletion.log_start_offset, log_starts):
                self.deletions.remove(deletion)
                deletion.reply()

    def give_up_if_offline(self) -> None:
        """Give the partition up if its log is offline; call this after a disk failure."""
        if self.log.offline:
            self.host.failed(self)

    def close(self) -> None:
        """Close the log. Nothing may still wait here. Blocking."""
        self.log.close(self.high_watermark)

    def follower_answer(self, length: int = 0) -> ReplicatedPart:
        """A follower's answer with `length` bytes of records: epoch, offsets, end of claims."""
        log, machine = self.log, self.machine
        return ReplicatedPart(
            *self.key,
            machine.leader_epoch,
            0,
            machine.high_watermark,
            log.log_start_offset,
            log.log_end_offset,
            None,
            length,
            log.state.claims.end if log.state.claims is not None else 0,
        )

    def status(self) -> PartitionStatus:
        """Status for `raylog` commands."""
        log = self.log
        return PartitionStatus(
            *self.key[:1],
            self.topic,
            self.key[1],
            self.machine.leader_epoch,
            self.machine.is_leader,
            log.log_start_offset,
            self.machine.high_watermark,
            log.log_end_offset,
            log.size,
            log.segment_count,
            log.offline,
            log.state.is_whole,
            log.trouble,
        )


def _reply_to_first(waiting: deque[Waiting], is_settled: Callable[[int], bool]) -> None:
    """Answer writers in order, up to the first whose batch is not settled."""
    while waiting and is_settled(waiting[0][0]):
        _, write, answer = waiting.popleft()
        write.reply(answer)


def _fail_all(waiting: deque[Waiting], failure: KafkaError) -> None:
    while waiting:
        _, write, _ = waiting.popleft()
        write.fail(failure)


def open_partition(
    partitions: Mapping[PartitionKey, Partition], topic_id: TopicId, index: int
) -> Partition:
    """Return a partition replica that is open here; raises UnknownTopicOrPartition."""
    partition = partitions.get((topic_id, index))
    if partition is None:
        raise UnknownTopicOrPartition(f"partition {index} of {topic_id.hex()} is not open here")
    return partition


def unknown_partition(interest: Interest) -> FetchedPartition:
    """Answer for a partition that is not open here."""
    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    key = (interest.topic_id, interest.partition)
    return FetchedPartition(*key, code, -1, -1, -1)
