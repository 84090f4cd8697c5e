"""Holds transactional offsets until the transaction includes their partition (KIP-890).

For TxnOffsetCommit 5 the transaction coordinator adds the partition. For earlier versions it
reports whether the partition was added. If a marker ends the transaction in the meantime, the
answer is invalid. In version 2 the marker of the previous transaction has the same epoch as the
transaction in question, which waits for it at the coordinator. So such a marker invalidates only
lower epochs.
"""

from __future__ import annotations

from collections.abc import Callable

from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.group.rules.transactions import ABORTABLE_SINCE, ADDS_PARTITIONS_SINCE
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.messages import (
    AddPartitions,
    Marker,
    TopicPartitions,
    TransactionCoordinators,
)
from raylog.wire.errors import ErrorCode, InvalidTxnState, KafkaError, error_of
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

Verified = Callable[[KafkaError | None], None]
"""Called with the reason why offsets may not be written, or with None if they may."""


class Verifying:
    """Verifies transactions for one shard; `needed` says whether to verify earlier versions."""

    def __init__(
        self, transactions: TransactionCoordinators, partition: int, needed: Callable[[], bool]
    ) -> None:
        self._transactions = transactions
        self._partition = partition
        self._needed = needed
        self._asking: dict[int, dict[object, int]] = {}
        """Producer id to pending questions that no marker has invalidated, with their epochs."""

    def ask(self, call: ClientCall[TxnOffsetCommitRequest], verified: Verified) -> None:
        """Call `verified` at once, or when the transaction coordinator has answered."""
        request, version = call.request, call.version
        adds = version >= ADDS_PARTITIONS_SINCE
        if not adds and not self._needed():
            verified(None)
            return
        mark = object()
        self._asking.setdefault(request.producer_id, {})[mark] = request.producer_epoch

        def settled(outcome: list[int] | KafkaError) -> None:
            is_current = self._settle(request.producer_id, mark)
            failure = _failure(outcome, version)
            if failure is None and not is_current:
                failure = InvalidTxnState(
                    f"a transaction of producer {request.producer_id} ended meanwhile"
                )
            verified(failure)

        self._transactions.add_partitions(
            AddPartitions(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                verify_only=not adds,
                topics=[TopicPartitions(OFFSETS_TOPIC, [self._partition])],
            ),
            settled,
        )

    def ended(self, marker: Marker) -> None:
        """Invalidate questions because a marker is being appended."""
        asking = self._asking.get(marker.producer_id, {})
        for mark, epoch in tuple(asking.items()):
            if marker.ends(epoch):
                self._settle(marker.producer_id, mark)

    def _settle(self, producer_id: int, mark: object) -> bool:
        """Remove a question; return whether it is still valid."""
        marks = self._asking.get(producer_id, {})
        if marks.pop(mark, None) is None:
            return False
        if not marks:
            del self._asking[producer_id]
        return True


def _failure(outcome: list[int] | KafkaError, version: int) -> KafkaError | None:
    """Map an outcome to the error for a client of this version, as in Kafka."""
    if isinstance(outcome, KafkaError):
        failure = outcome
    else:
        (number,) = outcome
        if number == ErrorCode.NONE:
            return None
        failure = error_of(ErrorCode(number))
    code = failure.code
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    elif code is ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return failure if code is failure.code else error_of(code, str(failure))
