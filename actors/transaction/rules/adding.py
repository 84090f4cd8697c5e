"""Adds partitions to open transactions, and verifies them: AddPartitionsToTxn, AddOffsetsToTxn.

Since KIP-890, leaders of partitions also send requests: to verify that a partition to be written
belongs to an open transaction (`verify_only`), or to add it.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.coordination.rules.placement import partition_of
from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import GROUP, OFFSETS_TOPIC
from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.actors.transaction.rules.failures import added, asked_topics, failed
from raylog.actors.transaction.rules.ids import Ids, completing
from raylog.actors.transaction.rules.state import FIRST_VERSION, OWN_EPOCHS, PREPARED, State
from raylog.actors.transaction.rules.step import TransactionStep
from raylog.wire.errors import ConcurrentTransactions, ErrorCode, InvalidTxnState
from raylog.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from raylog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest


def add_partitions(ids: Ids, step: TransactionStep, call: ClientCall[AddPartitions]) -> None:
    """Answer the leader of a partition, or a group coordinator, with transaction version 2.

    If the previous transaction is still being completed, the request waits briefly for that,
    because a producer of version 2 continues at once and would otherwise often have to retry.
    """
    request = call.request
    try:
        codes = _add(ids, step, request, OWN_EPOCHS)
    except ConcurrentTransactions:
        if request.verify_only:
            raise
        ids.park(request.transactional_id, call)
        step.parked.append(call)
    else:
        step.answer(call, codes)


def expire_wait(ids: Ids, step: TransactionStep, call: ClientCall[AddPartitions]) -> None:
    """Answer a request that has waited long enough, if it is still waiting."""
    transactional_id = call.request.transactional_id
    if ids.unpark(transactional_id, call):
        refusal = ConcurrentTransactions(f"{transactional_id!r} is still being completed")
        step.answer(call, failed(call.request, call.version, refusal))


def add_partitions_of_client(
    ids: Ids, step: TransactionStep, call: ClientCall[AddPartitionsToTxnRequest]
) -> None:
    """Answer AddPartitionsToTxn 0-3."""
    request = call.request
    topics = asked_topics(request)
    adding = AddPartitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=topics,
    )
    step.answer(call, added(topics, _add(ids, step, adding, FIRST_VERSION)))


def add_offsets(ids: Ids, step: TransactionStep, call: ClientCall[AddOffsetsToTxnRequest]) -> None:
    """Answer AddOffsetsToTxn 0-4: add the group's partition of `__consumer_offsets`."""
    request = call.request
    index, _ = partition_of(step.image, GROUP, request.group_id)
    adding = AddPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        verify_only=False,
        topics=[TopicPartitions(OFFSETS_TOPIC, [index])],
    )
    _open(ids, step, adding, FIRST_VERSION)
    step.answer(call, AddOffsetsToTxnResponse())


def _add(ids: Ids, step: TransactionStep, adding: AddPartitions, version: int) -> list[int]:
    """Add or verify all partitions; if one is unknown, none of them."""
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
    """Open a transaction with the partitions, or add them; raises the reason for a refusal."""
    before = ids.find(adding.transactional_id)
    if before.state in PREPARED:  # for every caller, because the next producer id may be unknown
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


def _verify(ids: Ids, request: AddPartitions) -> list[int]:
    """Check for each partition whether it belongs to the open transaction (KIP-890)."""
    found = ids.held(request.transactional_id, request.producer_id, request.producer_epoch)
    return [
        int(ErrorCode.NONE if found.has(topic, index) else ErrorCode.TRANSACTION_ABORTABLE)
        for topic, partitions in request.topics
        for index in partitions
    ]
