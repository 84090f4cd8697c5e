"""One shard of the transaction coordinator without log, links or clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raylog.actors.coordination.rules.step import Change, LogRecord, Step, TimerKey
from raylog.actors.metadata.features import TRANSACTION_VERSION
from raylog.actors.metadata.records import FeatureChanged
from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.actors.transaction.rules.filtering import ListTransactionsPart, filter_of
from raylog.actors.transaction.rules.ids import ProducerIdPool
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.shard import TransactionShard
from raylog.actors.transaction.rules.state import State, Transaction
from raylog.actors.transaction.rules.step import SendMarkers, TransactionStep
from raylog.wire.internal.blobs import TRANSACTIONS_TOPIC
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.list_transactions import ListTransactionsRequest
from tests.worlds.coordination.steps import StepWorld
from tests.worlds.metadata import topic_records

FIRST_PRODUCER_ID = 1_000
INIT_VERSION = 5
FIRST, SECOND = 4, 5
"""Versions of EndTxn: before transactions of version 2, and with them."""
TOPIC = "t"


def init(
    transactional_id: str = "x",
    producer_id: int = -1,
    producer_epoch: int = -1,
    *,
    timeout_ms: int = 60_000,
    keep: bool = False,
    two_phase: bool = False,
) -> InitProducerIdRequest:
    """Return an InitProducerId request."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        enable_2pc=two_phase,
        keep_prepared_txn=keep,
    )


def add(
    producer_id: int, epoch: int, *partitions: int, topic: str = TOPIC, verify: bool = False
) -> AddPartitions:
    """Return a leader's request to add or verify partitions."""
    found = [TopicPartitions(topic, list(partitions or (0,)))]
    return AddPartitions("x", producer_id, epoch, verify, found)


def add_first(producer_id: int, epoch: int, *partitions: int) -> AddPartitionsToTxnRequest:
    """Return the AddPartitionsToTxn request of a client that uses transactions of version 1."""
    topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions or (0,)))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[topic],
    )


def offsets(producer_id: int, epoch: int, group_id: str = "g") -> AddOffsetsToTxnRequest:
    """Return an AddOffsetsToTxn request."""
    return AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id=group_id
    )


def end(producer_id: int, epoch: int, *, committed: bool = True) -> EndTxnRequest:
    """Return an EndTxn request."""
    return EndTxnRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=committed
    )


class TransactionWorld(StepWorld):
    """A shard, the records it appended, the markers it asked for, and a clock."""

    kinds = TRANSACTIONS_TOPIC
    step_class = TransactionStep

    def __init__(self, settings: TransactionSettings | None = None, level: int = 2) -> None:
        """`level` is that of the feature transaction.version."""
        super().__init__()
        self.settings = settings or TransactionSettings()
        self.markers: list[SendMarkers] = []
        """Markers that are not written yet."""
        self.coordinator_epoch = -1
        self.producer_ids = ProducerIdPool()
        self.producer_ids.add(FIRST_PRODUCER_ID, 1_000)
        self.shard = TransactionShard(self.settings, self.producer_ids)
        self.image.apply_all(topic_records(TOPIC, 3))
        if level:
            self.image.apply(FeatureChanged(TRANSACTION_VERSION, level, 0))

    def replay(self, record: LogRecord) -> Change:
        """Replay a record into the shard."""
        return self.shard.replay(record)

    def fire(self, group_id: str, key: TimerKey, step: Step) -> None:
        """Fail: a shard of transactions sets no timers."""
        raise AssertionError(group_id)

    def run(self, event: Callable[[Any], object], replay: Any = None) -> Any:
        """Run one step and keep its markers."""
        step = super().run(event, replay)
        assert all(answer.durable for answer in step.answers)
        if step.coordinator_epoch is not None:
            assert step.coordinator_epoch > self.coordinator_epoch
            self.coordinator_epoch = step.coordinator_epoch
        self.markers.extend(step.markers)
        return step

    def ask(self, request: Any, version: int = 0) -> Any:
        """Send a request and return the response, or None if it has to wait."""
        if isinstance(request, ListTransactionsRequest):
            ids = self.shard.transactional_ids()
            request = ListTransactionsPart(filter_of(request), ids)
        return self.submit(self.shard.handle, request, version).answer

    def write_markers(self) -> list[SendMarkers]:
        """Write all markers that were asked for."""
        written, self.markers = self.markers, []
        for markers in written:
            self.run(partial(self._written, markers))
        return written

    def _written(self, markers: SendMarkers, step: TransactionStep) -> None:
        self.shard.markers_written(step, markers)

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass; transactions time out and ids expire."""
        self.now_ms += duration_ms
        ids = self.shard.transactional_ids()
        self.run(lambda step: self.shard.abort_timed_out(step, ids))
        self.run(lambda step: self.shard.forget_expired(step, ids))

    def crash(self) -> None:
        """Lose everything but the log, and load it."""
        self.markers.clear()
        self.shard = TransactionShard(self.settings, self.producer_ids)
        for record in self.log:
            self.shard.replay(record).commit()
        self.run(self.shard.loaded)

    @property
    def found(self) -> Transaction:
        """The transactional id x."""
        return self.shard.ids.transactions["x"]

    def state(self) -> State:
        """Return the state of the transactional id x."""
        return self.found.state

    def open(self, version: int = SECOND) -> tuple[int, int]:
        """Open a transaction and return the producer's id and epoch."""
        answer = self.ask(init(), INIT_VERSION)
        assert not answer.error_code
        holder = answer.producer_id, answer.producer_epoch
        if version < SECOND:
            assert codes_of(self.ask(add_first(*holder, 0, 1), 3)) == [0, 0]
        else:
            assert self.ask(add(*holder, 0, 1)) == [0, 0]
        return holder


def codes_of(response: Any) -> list[int]:
    """Return the error codes of an AddPartitionsToTxn response, versions 0 to 3."""
    return [
        one.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
