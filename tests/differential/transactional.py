"""A transactional producer that uses any version and acts as whoever a script wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raylog.wire.errors import ErrorCode
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.messages.list_transactions import ListTransactionsRequest
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raylog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from raylog.wire.records import Record, encode_batch
from tests.differential.session_stage import Stage

TIMEOUT_MS = 60_000
IDS_LAST = 12
"""Newest version of Produce that names topics."""
PASSING = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
)
"""After these producers ask again."""
Places = Mapping[str, Sequence[int]]
"""Topic to partitions."""


class Producer:
    """One producer. Requests that are refused only for a while are retried."""

    waits = True
    """Whether it asks again what is refused for a while."""
    looks = True
    """Whether it waits until its ends are complete."""

    def __init__(self, stage: Stage, name: str, transactional_id: str = "x") -> None:
        self.stage, self.name = stage, name
        self.id = f"{stage.session}.{transactional_id}" if transactional_id else ""
        self.group = stage.group
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, version: int = 5, **other: Any) -> Any:
        """InitProducerId; the identity is kept if there is one."""
        fields: dict[str, Any] = {
            "transactional_id": self.id,
            "transaction_timeout_ms": TIMEOUT_MS,
        } | other
        answer = self._ask(InitProducerIdRequest(**fields), version)
        if answer is not None and not answer.error_code:
            self.become(answer.producer_id, answer.producer_epoch)
        return answer

    def again(self, version: int = 5) -> Any:
        """InitProducerId of one that goes on with what it has (KIP-360)."""
        return self.init(version, producer_id=self.producer_id, producer_epoch=self.epoch)

    def add(self, places: Places, version: int = 3, **other: Any) -> Any:
        """AddPartitionsToTxn up to version 3."""
        fields: dict[str, Any] = {
            "v3_and_below_transactional_id": self.id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": _places(places),
        }
        return self._ask(AddPartitionsToTxnRequest(**(fields | other)), version)

    def verify(self, places: Places, version: int = 5, *, only: bool = True, **other: Any) -> Any:
        """AddPartitionsToTxn as brokers ask."""
        fields: dict[str, Any] = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "verify_only": only,
            "topics": _places(places),
        }
        one = AddPartitionsToTxnTransaction(**(fields | other))
        return self._ask(AddPartitionsToTxnRequest(transactions=[one]), version)

    def add_offsets(self, version: int = 4, **other: Any) -> Any:
        """AddOffsetsToTxn."""
        fields = self._identity() | {"group_id": self.group} | other
        return self._ask(AddOffsetsToTxnRequest(**fields), version)

    def commit_offsets(
        self, offsets: Mapping[str, Mapping[int, int]], version: int = 5, **other: Any
    ) -> Any:
        """TxnOffsetCommit."""
        topics = [
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                    for index, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ]
        fields = self._identity() | {"group_id": self.group, "topics": topics} | other
        return self._ask(TxnOffsetCommitRequest(**fields), version)

    def produce(self, topic: str, partition: int = 0, version: int = 12, **other: Any) -> Any:
        """One record in the transaction."""
        at = (topic, partition)
        fields: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequences.get(at, 0),
            "is_transactional": True,
        } | other
        batch = encode_batch([Record(0, 1_000, b"key", b"value", [])], **fields)
        answer = self._ask(
            ProduceRequest(
                transactional_id=self.id,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    TopicProduceData(
                        name=topic if version <= IDS_LAST else "",
                        topic_id=self.stage.topic_id(topic) if version > IDS_LAST else bytes(16),
                        partition_data=[PartitionProduceData(index=partition, records=batch)],
                    )
                ],
            ),
            version,
        )
        if answer is not None and not answer.responses[0].partition_responses[0].error_code:
            self.sequences[at] = self.sequences.get(at, 0) + 1
        return answer

    def end(self, version: int = 5, *, committed: bool = True, **other: Any) -> Any:
        """EndTxn; from version 5 on the answer has the identity for what comes next."""
        fields = self._identity() | {"committed": committed} | other
        answer = self._ask(EndTxnRequest(**fields), version)
        if answer is not None and answer.producer_id >= 0:
            self.become(answer.producer_id, answer.producer_epoch)
        if self.waits and self.looks and answer is not None and not answer.error_code:
            self.describe()  # how far an end has got decides what a second one is answered
        return answer

    def mark(self, places: Places, version: int = 1, **other: Any) -> Any:
        """WriteTxnMarkers for this producer."""
        fields: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [
                WritableTxnMarkerTopic(name=name, partition_indexes=list(found))
                for name, found in places.items()
            ],
        } | other
        return self._ask(WriteTxnMarkersRequest(markers=[WritableTxnMarker(**fields)]), version)

    def describe(self, *others: str) -> Any:
        """DescribeTransactions, once nothing is being completed any more."""
        request = DescribeTransactionsRequest(transactional_ids=[self.id, *others])
        if not self.waits:
            return self._ask(request, 0)
        return self.stage.until(
            self.name,
            lambda: (request, 0),
            lambda answer: (
                not any(
                    one.transaction_state.startswith("Prepare") for one in answer.transaction_states
                )
            ),
        )

    def list(self, version: int = 2, **filters: Any) -> Any:
        """ListTransactions; only the session's own are noted."""
        request = ListTransactionsRequest(**filters)
        if not self.waits:
            return self._ask(request, version)
        return self.stage.until(self.name, lambda: (request, version), self._is_settled)

    def _is_settled(self, answer: Any) -> bool:
        return not any(
            one.transaction_state.startswith("Prepare")
            for one in answer.transaction_states
            if one.transactional_id == self.id
        )

    def ends(self, topic: str, partition: int = 0) -> None:
        """The ends of a partition: for readers of all, and for those of what is committed."""
        for isolation_level in (0, 1):
            asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
            topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=isolation_level, topics=topics
            )
            self.stage.step(self.name, request, 7)

    def like(self, name: str) -> Producer:
        """Another connection with the identity that this one has now."""
        other = type(self)(self.stage, name)
        other.id, other.waits = self.id, self.waits
        other.become(self.producer_id, self.epoch)
        return other

    def become(self, producer_id: int, epoch: int) -> None:
        """Go on with an identity."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def _ask(self, request: Any, version: int) -> Any:
        if not self.waits:
            return self.stage.step(self.name, request, version)
        return self.stage.until(
            self.name,
            lambda: (request, version),
            lambda answer: PASSING.isdisjoint(codes_of(answer)),
        )


def codes_of(answer: Any) -> set[int]:
    """Every error code in an answer, wherever it is."""
    if isinstance(answer, list):
        return {code for one in answer for code in codes_of(one)}
    if not hasattr(type(answer), "__dataclass_fields__"):
        return set()
    found: set[int] = set()
    for name in type(answer).__dataclass_fields__:
        value = getattr(answer, name)
        found |= {value} if name.endswith("error_code") else codes_of(value)
    return found


def _places(places: Places) -> list[AddPartitionsToTxnTopic]:
    return [
        AddPartitionsToTxnTopic(name=name, partitions=list(found)) for name, found in places.items()
    ]
