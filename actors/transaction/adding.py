"""What an open transaction covers: AddPartitionsToTxn, AddOffsetsToTxn, and who asks about it.

Since KIP-890 leaders of partitions ask: whether what they are to write belongs to an open
transaction (`verify_only`), or that it be added.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.coordination.placement import group_partition
from raylog.actors.coordination.step import Asked
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.api import AddPartitions, TopicPartitions
from raylog.actors.transaction.failures import added, asked_topics, failed
from raylog.actors.transaction.ids import Ids, completing
from raylog.actors.transaction.state import FIRST_VERSION, OWN_EPOCHS, PREPARED, State
from raylog.actors.transaction.step import TransactionStep
from raylog.wire.errors import ConcurrentTransactions, ErrorCode, InvalidTxnState
from raylog.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from raylog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest


def add_partitions(ids: Ids, step: TransactionStep, asked: Asked[AddPartitions]) -> None:
    """Answer the leader of a partition, or a group coordinator; theirs is version 2.

    What comes while the transaction before is being completed waits a little for that: in version 2
    a producer goes on at once, and seldom has to ask again.
    """
    request = asked.request
    try:
        codes = _add(ids, step, request, OWN_EPOCHS)
    except ConcurrentTransactions:
        if request.verify_only:
            raise
        ids.park(request.transactional_id, asked)
        step.parked.append(asked)
    else:
        step.answer(asked, codes)


def waited_in_vain(ids: Ids, step: TransactionStep, asked: Asked[AddPartitions]) -> None:
    """Answer what has waited long enough, if it still waits."""
    transactional_id = asked.request.transactional_id
    if ids.unpark(transactional_id, asked):
        refusal = ConcurrentTransactions(f"{transactional_id!r} is still being completed")
        step.answer(asked, failed(asked.request, asked.version, refusal))


def add_partitions_of_client(
    ids: Ids, step: TransactionStep, asked: Asked[AddPartitionsToTxnRequest]
) -> None:
    """Answer AddPartitionsToTxn 0-3."""
    request = asked.request
    topics = asked_topics(request)
    adding = AddPartitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=topics,
    )
    step.answer(asked, added(topics, _add(ids, step, adding, FIRST_VERSION)))


def add_offsets(ids: Ids, step: TransactionStep, asked: Asked[AddOffsetsToTxnRequest]) -> None:
    """Answer AddOffsetsToTxn 0-4: the group's partition of `__consumer_offsets` is added."""
    request = asked.request
    index, _ = group_partition(step.image, request.group_id)
    adding = AddPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        verify_only=False,
        topics=[TopicPartitions(OFFSETS_TOPIC, [index])],
    )
    _open(ids, step, adding, FIRST_VERSION)
    step.answer(asked, AddOffsetsToTxnResponse())


def _add(ids: Ids, step: TransactionStep, adding: AddPartitions, version: int) -> list[int]:
    """Add all partitions, or verify them; none of them if one is unknown."""
    known = [
        _is_known(step.image, topic, index)
        for topic, partitions in adding.topics
        for index in partitions
    ]
    if all(known) and adding.verify_only:
        return _verify(ids, adding)
    if all(known):
        _open(ids, step, adding, version)
        return [int(ErrorCode.NONE)] * len(known)
    unknown, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    return [int(others if one else unknown) for one in known]


def _is_known(image: MetadataImage, name: str, index: int) -> bool:
    topic = image.topic(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def _open(ids: Ids, step: TransactionStep, adding: AddPartitions, version: int) -> None:
    """Have the partitions in an open transaction; raises why that cannot be."""
    before = ids.find(adding.transactional_id)
    if before.state in PREPARED:  # whoever asks: the next producer id may not be known yet
        raise completing(before)
    found = ids.held(adding.transactional_id, adding.producer_id, adding.producer_epoch)
    if found.is_kept:
        raise InvalidTxnState(f"{adding.transactional_id!r} is prepared: it can only be ended")
    partitions = found.with_partitions(adding.topics)
    is_open = found.state is State.ONGOING
    if not is_open or partitions != found.partitions:
        ids.change(
            step,
            replace(
                found,
                state=State.ONGOING,
                partitions=partitions,
                start_ms=found.start_ms if is_open else step.now_ms,
                client_version=version,
            ),
        )


def _verify(ids: Ids, asked: AddPartitions) -> list[int]:
    """Whether each partition belongs to the open transaction (KIP-890)."""
    found = ids.held(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    return [
        int(ErrorCode.NONE if found.has(topic, index) else ErrorCode.TRANSACTION_ABORTABLE)
        for topic, partitions in asked.topics
        for index in partitions
    ]
