"""TxnOffsetCommit 0-5: offsets of a group that count once the producer's transaction commits.

They are written as in Kafka, in a transactional batch of the producer. Unlike Kafka's, the records
have the topic id, like other offsets here, and the batch has no sequence number, which tells the
log that it does not come from a client. v3 lets the coordinator check the member (KIP-447). v5 adds
the group's partition to the transaction; with earlier versions the client must have added it
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raylog.actors.coordination.rules import records
from raylog.actors.coordination.rules.step import ClientCall, LogRecord, Step
from raylog.actors.group.rules.offsets import failure_of, is_too_long, too_many_bytes
from raylog.actors.group.rules.pending import Producer
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.internal.offsets import OffsetCommitKey, OffsetCommitValue
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from raylog.wire.record import Record
from raylog.wire.records import encode_batch

ADDS_PARTITIONS_SINCE = 5
"""From this version on, the group's partition is added to the transaction."""
ABORTABLE_SINCE = 4
"""From this version on, clients know TRANSACTION_ABORTABLE."""
Codes = dict[tuple[str, int], ErrorCode]


def producer_of(request: TxnOffsetCommitRequest) -> Producer:
    """Return the producer of a request."""
    return Producer(request.producer_id, request.producer_epoch)


def names_existing(image: MetadataImage, request: TxnOffsetCommitRequest) -> bool:
    """Whether any partition exists; as in Kafka, other requests never reach the group."""
    return any(
        _exists(image, topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
    )


def commit(
    step: Step,
    call: ClientCall[TxnOffsetCommitRequest],
    check: Callable[[], None],
    metadata_bytes_max: int,
) -> None:
    """Append the offsets of existing partitions; `check` raises if the member may not commit.

    The records of the step form one batch of the producer.
    """
    request = call.request
    failure = failure_of(check) if names_existing(step.image, request) else None
    failure = failure or too_many_bytes(
        request.group_id,
        (
            (topic.name, one.committed_metadata)
            for topic in request.topics
            for one in topic.partitions
        ),
    )
    codes: Codes = {}
    for topic in request.topics:
        for one in topic.partitions:
            code = _code(step.image, topic.name, one, failure, metadata_bytes_max)
            codes[topic.name, one.partition_index] = code
            if code is ErrorCode.NONE:
                _append(step, request.group_id, topic.name, one)
    response = _answer(request, codes)
    (step.answer if step.records else step.answer_now)(call, response)


def _code(
    image: MetadataImage,
    topic: str,
    partition: TxnOffsetCommitRequestPartition,
    failure: KafkaError | None,
    metadata_bytes_max: int,
) -> ErrorCode:
    if not _exists(image, topic, partition.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if failure is not None:
        return failure.code
    if is_too_long(partition.committed_metadata, metadata_bytes_max):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _exists(image: MetadataImage, name: str, index: int) -> bool:
    topic = image.topic(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def _append(
    step: Step, group_id: str, topic: str, partition: TxnOffsetCommitRequestPartition
) -> None:
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index)
    value = OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=step.now_ms,
        topic_id=step.image.topic_ids[topic],
    )
    step.append(key, value)


def _answer(request: TxnOffsetCommitRequest, codes: Codes) -> TxnOffsetCommitResponse:
    """Build the response: topics with unknown partitions first, each topic once, as in Kafka."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics: dict[str, TxnOffsetCommitResponseTopic] = {}
    for is_unknown in (True, False):
        for topic in request.topics:
            for one in topic.partitions:
                code = codes[topic.name, one.partition_index]
                if (code is unknown) is is_unknown:
                    place = topics.setdefault(
                        topic.name, TxnOffsetCommitResponseTopic(name=topic.name)
                    )
                    place.partitions.append(
                        TxnOffsetCommitResponsePartition(
                            partition_index=one.partition_index, error_code=int(code)
                        )
                    )
    return TxnOffsetCommitResponse(topics=list(topics.values()))


def batch_of(found: Sequence[LogRecord], producer: Producer, now_ms: int) -> bytearray:
    """Build the producer's transactional batch of these records; raises EncodeError."""
    return bytearray(
        encode_batch(
            [Record(0, now_ms, *records.encode(record), []) for record in found],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            is_transactional=True,
        )
    )
