"""Handles writes to the partitions of one process: batches of producers, and markers.

A link request has batches for several partitions. Each is checked and appended at once, or held
until its transaction's coordinator has answered, and is acknowledged according to its acks. The
request is answered with its last batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from raylog.actors.common_messages import PartitionKey
from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.message import first_values, taken
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.log_manager import LogManager
from raylog.actors.replica.marking import MarkerCodes, marker_batch
from raylog.actors.replica.messages import UNTIL_COMMITTED, TransactionalWrite
from raylog.actors.replica.partition import Partition, open_partition
from raylog.actors.replica.rules.claims import Claims
from raylog.actors.replica.verifying import Held, Verifying
from raylog.actors.replica.writes import Write, Writes
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.actors.runtime.deadlines import Deadlines
from raylog.actors.transaction.client import TransactionCoordinators
from raylog.actors.transaction.messages import MarkedPartition, Marker
from raylog.wire.errors import (
    FencedLeaderEpoch,
    InvalidTopicException,
    KafkaError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from raylog.wire.records import NO_SEQUENCE

MARKERS_TIMEOUT_MS = 30_000
"""Time for markers to be replicated."""


class Producing:
    """Appends to the partitions of one process."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        deadlines: Deadlines,
        transactions: TransactionCoordinators,
        log_manager: LogManager,
        failures: StorageFailures,
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._deadlines = deadlines
        self._log_manager = log_manager
        self._failures = failures
        self._claims = Claims()
        self._verifying = Verifying(transactions, self._append_verified)

    def produce(self, request: LinkRequest) -> None:
        """Write batches outside transactions, or of transactions that need no verification."""
        acks, timeout_ms, parts = first_values(request.header, 3)
        writes = Writes(request, len(parts))
        payload = request.payload
        now_ms = self._runtime.now_ms()
        begin = 0
        for number, (topic_id, index, epoch, length, refused, *_) in enumerate(parts):
            write = Write(writes, number, payload[begin : begin + length], refused)
            begin += length
            try:
                partition = open_partition(self._partitions, topic_id, index)
                self._claims.check(partition.key, request.peer)
                partition.produce(write, epoch, acks, now_ms)
            except (KafkaError, OSError) as failure:
                write.fail(self._failures.refusal(request.kind, failure))
            else:
                self._log_manager.appended(partition, now_ms)
        if acks != UNTIL_COMMITTED:
            writes.limit(self._deadlines, timeout_ms)

    def produce_in_transaction(self, request: LinkRequest) -> None:
        """Write batches that their coordinator must confirm as part of a transaction (KIP-890)."""
        acks, timeout_ms, parts, plain = first_values(request.header, 4)
        transaction = taken(TransactionalWrite, plain)
        writes = Writes(request, len(parts))
        begin = 0
        for number, (topic_id, index, epoch, length, refused, *_) in enumerate(parts):
            batch = request.payload[begin : begin + length]
            begin += length
            held = Held(Write(writes, number, batch, refused), epoch, acks, transaction)
            try:
                partition = open_partition(self._partitions, topic_id, index)
                self._claims.check(partition.key, request.peer)
                self._verifying.produce(partition, held)
            except KafkaError as failure:
                held.write.fail(failure)
        self._verifying.ask()
        writes.limit(self._deadlines, timeout_ms)

    def _append_verified(self, partition: Partition, held: Held) -> None:
        """Append a batch whose transaction holds the partition."""
        now_ms = self._runtime.now_ms()
        try:
            partition.produce(held.write, held.leader_epoch, held.acks, now_ms)
        except (KafkaError, OSError) as failure:
            held.write.fail(self._failures.refusal("a write in a transaction", failure))
        else:
            self._log_manager.appended(partition, now_ms)

    def write_markers(self, request: LinkRequest) -> None:
        """Write transaction markers."""
        markers = [Marker.of(plain) for plain in request.header]
        codes = MarkerCodes(request, markers)
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
        """Write one marker; if this is not the leader, the sender looks for it again."""
        try:
            partition = open_partition(self._partitions, where.topic_id, where.partition)
            if partition.topic in KIND_OF_TOPIC:
                raise InvalidTopicException(f"{partition.topic} is its coordinators' to write to")
            partition.write_marker(write, marker, where.leader_epoch, now_ms)
        except (UnknownTopicOrPartition, FencedLeaderEpoch, UnknownLeaderEpoch) as failure:
            write.fail(NotLeaderOrFollower(str(failure)))
        except (KafkaError, OSError) as failure:
            write.fail(self._failures.refusal("a marker", failure))
        else:
            self._log_manager.appended(partition, now_ms)

    def claim(self, request: LinkRequest) -> None:
        """Record a coordinator's claim to the partition that holds its state."""
        topic_id, index, epoch = first_values(request.header, 3)
        partition = open_partition(self._partitions, topic_id, index)
        partition.machine.require_leader(epoch)
        self._claims.take(partition.key, request.peer)
        request.reply(partition.log.log_end_offset)

    def link_lost(self, peer: int) -> None:
        """Forget the claims of a lost link."""
        self._claims.forget(peer)
