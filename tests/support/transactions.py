"""One shard of the transaction coordinator without log, links or clock.

Records and answers go through their bytes: what cannot be written fails the test that caused it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from raylog.actors.coordination import records
from raylog.actors.coordination.step import Asked, LogRecord
from raylog.actors.metadata.features import TRANSACTION_VERSION
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import FeatureChanged
from raylog.actors.transaction.api import AddPartitions, TopicPartitions
from raylog.actors.transaction.filtering import ListTransactionsPart, filter_of
from raylog.actors.transaction.ids import ProducerIdPool
from raylog.actors.transaction.settings import TransactionSettings
from raylog.actors.transaction.shard import TransactionShard
from raylog.actors.transaction.state import State, Transaction
from raylog.actors.transaction.step import SendMarkers, TransactionStep
from raylog.wire.codec import decode, encode
from raylog.wire.internal.blobs import TRANSACTIONS_TOPIC
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.list_transactions import ListTransactionsRequest
from tests.support.shards import START_MS, topic_records

FIRST_PRODUCER_ID = 1_000
INIT_VERSION = 5
FIRST, SECOND = 4, 5
"""Versions of EndTxn: as before transactions of version 2, and of these."""
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
    """InitProducerId."""
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
    """What a leader asks."""
    found = [TopicPartitions(topic, list(partitions or (0,)))]
    return AddPartitions("x", producer_id, epoch, verify, found)


def add_first(producer_id: int, epoch: int, *partitions: int) -> AddPartitionsToTxnRequest:
    """What a client of version 1 asks."""
    topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions or (0,)))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[topic],
    )


def offsets(producer_id: int, epoch: int, group_id: str = "g") -> AddOffsetsToTxnRequest:
    """AddOffsetsToTxn."""
    return AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id=group_id
    )


def end(producer_id: int, epoch: int, *, committed: bool = True) -> EndTxnRequest:
    """EndTxn."""
    return EndTxnRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=committed
    )


@dataclass(slots=True)
class TransactionWorld:
    """A shard, what it has appended, the markers it has asked for, and a clock."""

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    level: int = 2
    """Of the feature transaction.version."""
    image: MetadataImage = field(default_factory=MetadataImage)
    log: list[LogRecord] = field(default_factory=list)
    now_ms: int = START_MS
    answers: dict[int, Any] = field(default_factory=dict)
    markers: list[SendMarkers] = field(default_factory=list)
    """Not written yet."""
    coordinator_epoch: int = -1
    tokens: int = 0
    """Requests so far; each is the token of one."""
    producer_ids: ProducerIdPool = field(default_factory=ProducerIdPool)
    shard: TransactionShard = field(init=False)

    def __post_init__(self) -> None:
        self.producer_ids.add(FIRST_PRODUCER_ID, 1_000)
        self.shard = TransactionShard(self.settings, self.producer_ids)
        self.image.apply_all(topic_records(TOPIC, 3))
        if self.level:
            self.image.apply(FeatureChanged(TRANSACTION_VERSION, self.level, 0))

    def run(self, event: Callable[[TransactionStep], object]) -> TransactionStep:
        """One step and its records."""
        step = TransactionStep(
            self.now_ms, float(self.now_ms), self.image, Random(7), self.shard.replay
        )
        event(step)
        self.log.extend(step.records)
        for answer in step.answers:
            assert answer.token not in self.answers, "answered twice"
            assert answer.durable
            self.answers[answer.token] = answer.response
        if step.coordinator_epoch is not None:
            assert step.coordinator_epoch > self.coordinator_epoch
            self.coordinator_epoch = step.coordinator_epoch
        self.markers.extend(step.markers)
        return step

    def ask(self, request: Any, version: int = 0) -> Any:
        """A request; the answer is None if it waits."""
        self.tokens += 1
        token = self.tokens
        if not isinstance(request, AddPartitions):
            request = _through_bytes(request, version)
        if isinstance(request, ListTransactionsRequest):
            ids = self.shard.transactional_ids()
            request = ListTransactionsPart(filter_of(request), ids)
        asked = Asked(token, request, version, "c", "/127.0.0.1")
        self.run(lambda step: self.shard.handle(step, asked))
        response = self.answers.get(token)
        if response is None:
            return None
        return response if isinstance(response, list) else _through_bytes(response, version)

    def write_markers(self) -> list[SendMarkers]:
        """All leaders write what was asked for."""
        written, self.markers = self.markers, []
        for markers in written:
            self.run(partial(self._written, markers))
        return written

    def _written(self, markers: SendMarkers, step: TransactionStep) -> None:
        self.shard.markers_written(step, markers)

    def pass_ms(self, duration_ms: int) -> None:
        """Time goes on, and the shard looks at its ids."""
        self.now_ms += duration_ms
        ids = self.shard.transactional_ids()
        self.run(lambda step: self.shard.abort_timed_out(step, ids))
        self.run(lambda step: self.shard.forget_expired(step, ids))

    def crash(self) -> None:
        """Lose all but the log's bytes, and load them."""
        self.markers.clear()
        self.shard = TransactionShard(self.settings, self.producer_ids)
        for record in self.log:
            found = records.decode(TRANSACTIONS_TOPIC, *records.encode(record))
            assert found is not None
            self.shard.replay(found).commit()
        self.run(self.shard.loaded)

    @property
    def found(self) -> Transaction:
        """The transactional id x."""
        return self.shard.ids.transactions["x"]

    def state(self) -> State:
        """Where the transactional id x stands."""
        return self.found.state

    def open(self, version: int = SECOND) -> tuple[int, int]:
        """A producer with an open transaction; its id and epoch."""
        answer = self.ask(init(), INIT_VERSION)
        assert not answer.error_code
        holder = answer.producer_id, answer.producer_epoch
        if version < SECOND:
            assert codes_of(self.ask(add_first(*holder, 0, 1), 3)) == [0, 0]
        else:
            assert self.ask(add(*holder, 0, 1)) == [0, 0]
        return holder


def codes_of(response: Any) -> list[int]:
    """The codes of AddPartitionsToTxn 0-3."""
    return [
        one.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]


def _through_bytes(message: Any, version: int) -> Any:
    return decode(type(message), version, encode(message, version))
