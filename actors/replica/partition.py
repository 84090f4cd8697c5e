"""One partition replica in its Replica actor: its log, its machine, and who waits for it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from raylog.actors.ports import PartitionKey, PartitionLeadership, PartitionStatus
from raylog.actors.replica.api import (
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
)
from raylog.actors.replica.config import PartitionConfig
from raylog.actors.replica.counts import TopicCounts
from raylog.actors.replica.leading import Proposal
from raylog.actors.replica.machine import (
    Appended,
    Effect,
    Event,
    FailUnsafe,
    Follow,
    IsrAltered,
    LeadershipChanged,
    MinIsrChanged,
    PartitionMachine,
    Propose,
    ReleaseUpTo,
    StartLeading,
    StopFollowing,
    StopLeading,
)
from raylog.actors.replica.produce import Write
from raylog.actors.replica.serving import FollowerSession
from raylog.actors.replica.sessions import FetchSession
from raylog.actors.replica.verifying import Verification
from raylog.actors.transaction.api import Marker
from raylog.storage.config import NEVER
from raylog.storage.jobs import FlushJob
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
)
from raylog.wire.records import NO_SEQUENCE, BatchHeader, read_header, set_log_append_time

log = logging.getLogger(__name__)
Waiting = tuple[int, Write, ProduceAnswer]
"""A writer: the next offset of its batch, itself, its answer."""
REFUSED_MAX = 1_000
"""Producers whose refused sequences are remembered."""


class Host(Protocol):
    """What a partition needs of the process it lives in."""

    def monotonic_ms(self) -> int:
        """Time that never goes back."""

    def has_news(self, partition: Partition) -> None:
        """Readers may read further, or are to be told that they may not."""

    def has_grown(self, partition: Partition) -> None:
        """Followers may fetch further, or are to be told that they may not."""

    def has_figures(self, partition: Partition) -> None:
        """Followers are to be told other figures, some time soon."""

    def flush(self, partition: Partition) -> None:
        """The log has as much unflushed as its configuration allows."""

    def check(self, partition: Partition, found: Slice) -> None:
        """A slice must be checked before it is served; there is news afterwards."""

    def load_index(self, partition: Partition, offset: int) -> None:
        """The index for an offset must be read from its file; there is news afterwards."""

    def has_appended(self, partition: Partition) -> None:
        """The log grew: it is looked after until it rests."""

    def has_failed(self, partition: Partition) -> None:
        """The disk failed the log, which is offline until it is opened anew."""

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch from the leader, as a follower in the machine's leader epoch."""

    def leave(self, partition: Partition) -> None:
        """Fetch no more."""

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Ask the controller for other in-sync replicas."""


@dataclass(slots=True, eq=False)
class Partition:
    """Shell of one partition replica; decides nothing that its machine can decide."""

    key: PartitionKey
    topic: str
    log: Log
    config: PartitionConfig
    machine: PartitionMachine
    host: Host
    sessions: dict[FetchSession, tuple[int, int]] = field(default_factory=dict)
    """Who watches this partition, with the session's key in the actor."""
    waiting: deque[Waiting] = field(default_factory=deque)
    """Writers that wait for the high watermark, and for a flush if one is due."""
    unflushed: deque[Waiting] = field(default_factory=deque)
    """Writers that wait for a flush only."""
    committing: deque[Waiting] = field(default_factory=deque)
    """Coordinators, which wait as `waiting` does, but for as long as this replica leads."""
    refused: dict[tuple[int, int], int] = field(default_factory=dict)
    """First sequence refused of producers, by id and epoch, that the log does not know."""
    verifying: dict[int, Verification] = field(default_factory=dict)
    """Writers that wait for their transaction's coordinator, by producer id."""
    followers: dict[FollowerSession, None] = field(default_factory=dict)
    """Sessions of followers that fetch from this replica."""
    in_surgery: bool = False
    """Whether a thread shortens the log: nothing else may touch it then."""
    is_behind: bool = True
    """As a follower: whether the leader had more at its last answer, as far as is known."""
    check_running: bool = False
    index_running: bool = False
    flush_running: bool = False
    flush_target: int = 0
    """Writers of batches that end at or below it wait until the log is flushed that far."""
    counts: TopicCounts = field(default_factory=TopicCounts)
    """Where it counts."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.topic}-{self.key[1]}"

    @property
    def flushes_by_time(self) -> bool:
        """Whether flush.ms is set, so that a timer must look after this log."""
        return self.config.log.flush_ms < NEVER

    @property
    def is_flushed(self) -> bool:
        """Whether everything is durable."""
        return self.log.recovery_point >= self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what readers see."""
        return self.machine.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what read_committed readers see."""
        return self.log.last_stable_offset(self.machine.high_watermark)

    def lead(self, leadership: PartitionLeadership) -> None:
        """Take in committed leadership; older epochs change nothing."""
        self._may_change_isr(
            LeadershipChanged(leadership, self.log.log_end_offset, self.host.monotonic_ms())
        )

    def isr_altered(self, event: IsrAltered) -> None:
        """Take in what the controller has made of a proposal."""
        self._may_change_isr(event)

    def _may_change_isr(self, event: LeadershipChanged | IsrAltered) -> None:
        """Give the machine an event, and count what it changes while the same leader leads."""
        progress = self.machine.progress
        before = None if progress is None else progress.isr
        self.handle(event)
        if progress is not None and before is not None and self.machine.progress is progress:
            self.counts.isr_changed(before, progress.isr)

    def configure(self, config: PartitionConfig) -> None:
        """Obey another configuration from now on."""
        self.config = config
        self.log.reconfigure(config.log)
        self.handle(MinIsrChanged(config.min_isr))

    def handle(self, event: Event) -> None:
        """Give the machine an event and do what it wants done."""
        for effect in self.machine.handle(event):
            self._carry_out(effect)

    def produce(self, write: Write, current_epoch: int, acks: int, now_ms: int) -> None:
        """Append a batch and answer when its acks say so."""
        try:
            self._produce(write, current_epoch, acks, now_ms)
        except KafkaError:
            self._note_refusal(read_header(write.batch))
            raise

    def write_marker(self, write: Write, marker: Marker, leader_epoch: int, now_ms: int) -> None:
        """Append the end of a transaction; answered once it is below the high watermark.

        Under transaction version 2 it has a higher epoch than what it ends (KIP-890), so that one
        of the same epoch without an open transaction is here already. Verifications of what it ends
        are worthless from now on, whatever the coordinator said.
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
            answer = ProduceAnswer(end, -1, self.log.log_start_offset)
            self._answer(write, ACKS_ALL, end, answer)
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
        """Remember where an unknown producer has to begin: what it sent behind may be here soon."""
        if (
            header.base_sequence == NO_SEQUENCE
            or self.log.producers.epoch_of(header.producer_id) >= 0
        ):
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
        info = log.append(batch, header, self.machine.leader_epoch, now_ms)
        counts = self.counts
        counts.batches_in += 1
        counts.bytes_in += len(batch)
        counts.records_in += info.next_offset - info.base_offset
        answer = ProduceAnswer(info.base_offset, append_time, log.log_start_offset)
        self.handle(Appended(info.next_offset, self.host.monotonic_ms()))
        if self.followers:
            self.host.has_grown(self)
        if log.flush_due:
            self._must_flush(info.next_offset)
        self._answer(write, acks, info.next_offset, answer)

    def _check_producer(self, header: BatchHeader, write: Write) -> Duplicate | None:
        """The stored batch if this is a repeat; raises if the producer may not go on like this.

        A marker is one that a coordinator writes into its own partition.
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
        if not self.flush_running:
            self.host.flush(self)

    def _is_flushed_to(self, next_offset: int) -> bool:
        """Whether a batch is as durable as the topic's flush settings want it."""
        return self.log.recovery_point >= min(next_offset, self.flush_target)

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
        """Take a flush back: answer who waited for it, or fail them if the disk failed."""
        try:
            self.log.end_flush(job, now_ms)
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
                self.host.has_news(self)
                if self.followers:
                    self.host.has_figures(self)
            case Propose(proposal):
                self.host.propose(self, proposal)
            case StartLeading(leader_epoch, start_offset):
                self.log.epochs.assign(leader_epoch, start_offset)
            case StopLeading():
                self.fail_waiting(NotLeaderOrFollower("leadership has moved"))
                self.host.has_news(self)
            case Follow(leader):
                self.host.follow(self, leader)
            case StopFollowing():
                self.host.leave(self)
                self.host.has_news(self)
            case FailUnsafe():
                unsafe = NotEnoughReplicasAfterAppend("too few replicas are in sync now")
                _fail_all(self.waiting, unsafe)
            case _:
                assert_never(effect)

    def _release(self) -> None:
        _reply_to_first(self.unflushed, self._is_flushed_to)
        _reply_to_first(self.waiting, self._is_replicated_to)
        _reply_to_first(self.committing, self._is_replicated_to)

    def fail_waiting(self, failure: KafkaError) -> None:
        """Answer every waiting writer with a failure.

        Coordinators would take KAFKA_STORAGE_ERROR for a batch that was not written.
        """
        _fail_all(self.unflushed, failure)
        _fail_all(self.waiting, failure)
        _fail_all(self.committing, NotLeaderOrFollower(f"whether it counts is open: {failure}"))
        for verification in tuple(self.verifying.values()):
            verification.fail(failure)

    def read(
        self, interest: Interest, max_bytes: int, at_least_one: bool, isolation: int
    ) -> FetchedPartition:
        """The slice of the log that a fetcher may have now; errors are part of the answer."""
        try:
            if interest.any_replica and self.machine.is_follower and not self.in_surgery:
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
        if interest.last_fetched_epoch >= 0:
            epoch, end = log.epochs.end_offset_for(interest.last_fetched_epoch, log.log_end_offset)
            if epoch < 0:
                raise OffsetOutOfRange(
                    f"where epoch {interest.last_fetched_epoch} ended is not known here"
                )
            if epoch < interest.last_fetched_epoch or end < offset:
                return FetchedPartition(*figures, diverging=[epoch, end])
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
                for one in log.aborted_transactions(offset, found.next_offset)
            ]
        return FetchedPartition(
            *figures, found.segment_id, found.position, found.length, aborted, None
        )

    def can_read(self, offset: int) -> bool:
        """Whether the index for an offset is in memory; else a thread gets it, and it is news."""
        if self.log.is_indexed(offset):
            return True
        if not self.index_running:
            self.host.load_index(self, offset)
        return False

    @property
    def waits_for_files(self) -> bool:
        """Whether a thread reads what a reader waits for."""
        return self.index_running or self.check_running

    def may_serve(self, found: Slice) -> bool:
        """Whether a slice is known to be right; else it is checked now, and is news then."""
        if not self.log.needs_check(found):
            return True
        if not self.check_running:
            self.host.check(self, found)
        return False

    def offset_for(
        self, current_epoch: int, timestamp: int, isolation: int
    ) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) for one of the timestamps with a special meaning.

        (-1, -1, -1) where there is none. None for times, and for the largest timestamp: they are
        looked up in the log's files (`begin_lookup`).
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
        """A job for a thread that looks for a record by its time (KIP-79)."""
        return self.log.begin_lookup(None if timestamp == MAX_TIMESTAMP else timestamp)

    def found_by(self, job: LookupJob, current_epoch: int, isolation: int) -> tuple[int, int, int]:
        """What a lookup found, as `offset_for`; (-1, -1, -1) where no record is that young."""
        self.machine.require_leader(current_epoch)
        found = job.found
        if found is None or found.offset >= self._readable_end(isolation):
            self._require_epoch_start()
            return -1, -1, -1
        return found

    def _readable_end(self, isolation: int) -> int:
        """Exclusive end of what a reader sees."""
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark

    def _require_epoch_start(self) -> None:
        """A new leader does not know yet how far consumers have read before it (KIP-207)."""
        if self.machine.is_before_epoch_start:
            raise OffsetNotAvailable("the high watermark is not in the leader's epoch yet")

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset` (-1: the high watermark); returns the log start."""
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

    def give_up_if_offline(self) -> None:
        """After a failure of the disk: whether the log can go on is the log's own to know."""
        if self.log.offline:
            self.host.has_failed(self)

    def close(self) -> None:
        """Close the log, when nobody waits any more. Blocking."""
        self.log.close(self.high_watermark)

    def status(self) -> PartitionStatus:
        """Figures for people."""
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
            log.is_whole,
            log.trouble,
        )


def _reply_to_first(waiting: deque[Waiting], is_settled: Callable[[int], bool]) -> None:
    """Answer writers in their order, as far as their batches are settled."""
    while waiting and is_settled(waiting[0][0]):
        _, write, answer = waiting.popleft()
        write.reply(answer)


def _fail_all(waiting: deque[Waiting], failure: KafkaError) -> None:
    while waiting:
        _, write, _ = waiting.popleft()
        write.fail(failure)


def unknown_partition(interest: Interest) -> FetchedPartition:
    """The answer for a partition that is not open here (any more)."""
    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    key = (interest.topic_id, interest.partition)
    return FetchedPartition(*key, code, -1, -1, -1)
