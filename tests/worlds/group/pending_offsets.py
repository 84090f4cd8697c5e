"""Transactional offset commits, and the transaction coordinators that a group coordinator calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.messages import (
    ANY_LEADER_EPOCH,
    AddPartitions,
    MarkedPartition,
    Marker,
)
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.worlds.metadata import id_of

PRODUCER_ID = 7
Settled = Callable[[list[int] | KafkaError], None]


@dataclass
class FakeTransactions:
    """Transaction coordinators that give the scripted outcome; with None they do not answer yet."""

    outcome: list[int] | KafkaError | None = field(default_factory=lambda: [0])
    asked: list[AddPartitions] = field(default_factory=list)
    held: list[Settled] = field(default_factory=list)

    def add_partitions(self, asked: AddPartitions, settled: Settled) -> None:
        self.asked.append(asked)
        if self.outcome is None:
            self.held.append(settled)
        else:
            settled(self.outcome)

    def close(self) -> None:
        self.held.clear()


def committing_in(
    offsets: Mapping[int, int],
    topic: str = "t",
    *,
    group: str = "g",
    producer_id: int = PRODUCER_ID,
    epoch: int = 0,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    metadata: str | None = None,
) -> TxnOffsetCommitRequest:
    """Return a request that commits offsets in a transaction."""
    return TxnOffsetCommitRequest(
        transactional_id=f"id-{producer_id}",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )


def marker(
    *,
    committed: bool = True,
    producer_id: int = PRODUCER_ID,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    partition: int = 0,
    leader_epoch: int = ANY_LEADER_EPOCH,
) -> Marker:
    """Return the marker that ends a transaction in one partition of the offsets topic."""
    where = MarkedPartition(id_of(OFFSETS_TOPIC), partition, leader_epoch)
    return Marker(producer_id, epoch, coordinator_epoch, committed, version, [where])


def outcomes(response: TxnOffsetCommitResponse) -> list[tuple[str, int, str]]:
    """Return the outcome for each partition's offset."""
    return [
        (topic.name, one.partition_index, ErrorCode(one.error_code).name)
        for topic in response.topics
        for one in topic.partitions
    ]
