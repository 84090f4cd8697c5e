"""The coordinator requests of transactions (KIP-98), for a producer or an exactly-once sink.

| request | transaction version 1 | transaction version 2 (KIP-890) |
|---|---|---|
| AddPartitionsToTxn | 0-3, before a partition's first Produce | not sent |
| Produce | 3-11 | from 12 on: adds the partition itself |
| AddOffsetsToTxn | 0-4, before TxnOffsetCommit | not sent |
| TxnOffsetCommit | 0-4 (2-4 from a sink) | 5: adds the group itself |
| EndTxn | 0-4 | 5: returns the id and epoch to continue with |
| InitProducerId | before every batch of a sink; after lost batches | once, and after failures |

A transaction uses the versions of one column only; a mix would let a zombie's batch into the next
commit. Sinks send Produce 12, because Produce 13 names topics by id, and a topic that was deleted
and recreated under the same name has another id. All these requests are safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.client.cluster import CommittedOffset, TopicPartition, by_topic, commit_of
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators, KeyType, ask_coordinator
from raylog.client.core import Core
from raylog.client.matching import answers_to
from raylog.client.producer.batch import NO_IDENTITY, ProducerIdentity
from raylog.client.refusals import refusal
from raylog.client.retries import worst_refusal
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from raylog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from raylog.wire.schema import layout_of

R = TypeVar("R")

FEATURE = "transaction.version"
_SECOND = 2


@dataclass(frozen=True, slots=True)
class Protocol:
    """One column of the table above."""

    registers: bool
    """Whether partitions and groups are added by separate requests."""
    keeps_identity: bool
    """Whether EndTxn returns an epoch that has not been used yet."""
    versions: Mapping[ApiKey, tuple[int, int]]
    """Lowest and highest version, both inclusive. Other requests use the newest version."""


FIRST = Protocol(
    registers=True,
    keeps_identity=False,
    versions={
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.PRODUCE: (3, 11),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.TXN_OFFSET_COMMIT: (0, 4),
        ApiKey.END_TXN: (0, 4),
    },
)
SECOND = Protocol(
    registers=False,
    keeps_identity=True,
    versions={
        ApiKey.PRODUCE: (12, 12),
        ApiKey.TXN_OFFSET_COMMIT: (5, 5),
        ApiKey.END_TXN: (5, 5),
    },
)


def protocol_for(level: int) -> Protocol:
    """Return the protocol for a finalized level of the feature `transaction.version`."""
    return SECOND if level >= _SECOND else FIRST


@dataclass(slots=True)
class TransactionRequests:
    """The requests of one transactional id. They raise KafkaError and ClientError."""

    core: Core
    protocol: Protocol
    transactional_id: str
    timeout_ms: float | None = None
    """How long a request is retried; 0: it is sent once. None: `operation_timeout_ms`."""
    own: Coordinators = field(init=False)
    """Coordinators of transactional ids."""
    groups: Coordinators = field(init=False)

    def __post_init__(self) -> None:
        self.own = Coordinators(self.core, KeyType.TRANSACTION)
        self.groups = Coordinators(self.core)

    async def init_producer_id(
        self, transaction_timeout_ms: int, current: ProducerIdentity = NO_IDENTITY
    ) -> ProducerIdentity:
        """Take over the transactional id: fence its other producers and end their transaction.

        With a current identity, take its next epoch unless another producer has taken over
        (KIP-360).
        """
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
        )
        response = await self.ask(request, InitProducerIdResponse, _refusal)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def add_partitions(
        self, identity: ProducerIdentity, keys: Iterable[TopicPartition]
    ) -> None:
        """Add partitions to the open transaction."""
        keys = list(keys)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[key.partition for key in of_topic])
                for topic, of_topic in by_topic(keys).items()
            ],
        )

        def worst(response: AddPartitionsToTxnResponse) -> KafkaError | None:
            answers = (
                (TopicPartition(topic.name, result.partition_index), result.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            )
            return worst_refusal((code, key) for key, code in answers_to(keys, answers).items())

        await self.ask(request, AddPartitionsToTxnResponse, worst)

    async def add_offsets(self, identity: ProducerIdentity, group_id: str) -> None:
        """Add a group's offsets to the open transaction, before committing them."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )
        await self.ask(request, AddOffsetsToTxnResponse, _refusal)

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        group: GroupMetadata,
    ) -> None:
        """Commit a group's offsets as part of the open transaction."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        commit_of(TxnOffsetCommitRequestPartition, key, offsets[key])
                        for key in keys
                    ],
                )
                for topic, keys in by_topic(offsets).items()
            ],
        )

        def worst(response: TxnOffsetCommitResponse) -> KafkaError | None:
            answers = (
                (TopicPartition(topic.name, one.partition_index), one.error_code)
                for topic in response.topics
                for one in topic.partitions
            )
            codes = answers_to(offsets, answers).items()
            return worst_refusal(
                (code, f"{key} of group {group.group_id!r}") for key, code in codes
            )

        await self.ask(request, TxnOffsetCommitResponse, worst, group.group_id)

    async def end(self, identity: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
        """Commit or abort; return the identity to continue with, or -1 and -1 in version 1."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )
        response = await self.ask(request, EndTxnResponse, _refusal)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def ask(
        self,
        request: object,
        expected: type[R],
        refused: Callable[[R], KafkaError | None],
        group_id: str | None = None,
    ) -> R:
        """Ask the coordinator of the transactional id, or of a group, in the protocol's version."""
        api_key = layout_of(expected).api_key
        assert api_key is not None, f"{expected.__name__} is not a response"
        at_least, at_most = self.protocol.versions.get(api_key, (0, None))
        return await ask_coordinator(
            self.core,
            self.own if group_id is None else self.groups,
            self.transactional_id if group_id is None else group_id,
            request,
            expected,
            refused,
            at_most=at_most,
            at_least=at_least,
            timeout_ms=self.timeout_ms,
        )


def _refusal(
    response: InitProducerIdResponse | EndTxnResponse | AddOffsetsToTxnResponse,
) -> KafkaError | None:
    """Return the error of an answer that has a single code."""
    return refusal(response.error_code, type(response).__name__.removesuffix("Response"))
