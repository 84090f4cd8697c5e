"""Offsets in transactions wait here until the transaction holds the partition they go to (KIP-890).

The transaction's coordinator adds it for TxnOffsetCommit 5, and says for earlier versions whether
it was added. A marker that ends the transaction while that is asked makes the answer worthless.
Under version 2 the marker of the transaction before has the epoch of the one that is asked about,
which waits for it at the coordinator; it ends lower ones only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from raylog.actors.coordination.step import Asked
from raylog.actors.group.transactions import ABORTABLE_SINCE, ADDS_PARTITIONS_SINCE
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.api import AddPartitions, Marker, TopicPartitions
from raylog.wire.errors import ErrorCode, InvalidTxnState, KafkaError, error_of
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

Verified = Callable[[KafkaError | None], None]
"""Told why offsets may not be written; None: they may."""


class TransactionsPort(Protocol):
    """The coordinators of transactions, wherever they are."""

    def add_partitions(
        self, asked: AddPartitions, settled: Callable[[list[int] | KafkaError], None]
    ) -> None:
        """Have the coordinator add or look for partitions; `settled` is called once."""


class Verifying:
    """Of one partition's shard. `needed` tells whether earlier versions are verified, too."""

    def __init__(
        self, transactions: TransactionsPort, partition: int, needed: Callable[[], bool]
    ) -> None:
        self._transactions = transactions
        self._partition = partition
        self._needed = needed
        self._asking: dict[int, dict[object, int]] = {}
        """Producer id to what is asked and was not overtaken by a marker, with its epoch."""

    def ask(self, asked: Asked[TxnOffsetCommitRequest], verified: Verified) -> None:
        """Call `verified` at once, or when the transaction's coordinator has answered."""
        request, version = asked.request, asked.version
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
        """A marker is on its way into the log."""
        asking = self._asking.get(marker.producer_id, {})
        for mark, epoch in tuple(asking.items()):
            if marker.ends(epoch):
                self._settle(marker.producer_id, mark)

    def _settle(self, producer_id: int, mark: object) -> bool:
        """Whether no marker has come since."""
        marks = self._asking.get(producer_id, {})
        if marks.pop(mark, None) is None:
            return False
        if not marks:
            del self._asking[producer_id]
        return True


def _failure(outcome: list[int] | KafkaError, version: int) -> KafkaError | None:
    """What a client of that version is told, as Kafka maps it."""
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
