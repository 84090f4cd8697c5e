"""The machine of one partition of `__transaction_state`: its transactional ids and requests.

Handlers read the ids, append records to their step, request markers and answer. Every answer waits
until what it rests on is durable. The parts are `starting`, `adding`, `ending`, `aging` and
`describing`.

The answers by state and caller are those of Apache Kafka 4.3.1 (tests/differential:
`table_sessions`, `held_sessions`). Resting means EMPTY, COMPLETE_COMMIT or COMPLETE_ABORT. Prepared
means PREPARE_COMMIT or PREPARE_ABORT: markers are being written.

| request                       | nothing | resting         | ONGOING         | prepared     |
|-------------------------------|---------|-----------------|-----------------|--------------|
| InitProducerId without epoch  | new id  | next epoch      | aborts, concurr.| concurrent   |
|   with the current epoch      | new id  | next epoch      | aborts, concurr.| concurrent   |
|   with the epoch before       | new id  | the current one | aborts, concurr.| concurrent   |
|   with any other epoch        | new id  | fenced          | aborts, concurr.| concurrent   |
|   of the id before, used up   | new id  | the current one | aborts, concurr.| concurrent   |
|   of any other producer id    | new id  | fenced          | fenced          | concurrent   |
| add partitions, or offsets    | unknown | ONGOING         | ONGOING         | concurrent(*)|
|   with any other epoch        | unknown | fenced          | fenced          | concurrent(*)|
|   of any other producer id    | unknown | unknown         | unknown         | concurrent(*)|
| verify partitions             | unknown | abortable       | abortable, done | concurrent   |
|   with any other epoch        | unknown | fenced          | fenced          | fenced       |
|   of any other producer id    | unknown | unknown         | unknown         | unknown      |
| EndTxn 5                      | unknown | see `ending`    | ends            | concurrent   |
|   with the epoch before       | unknown | see `ending`    | fenced          | concurrent   |
|   with any other epoch        | unknown | fenced          | fenced          | concurrent   |
|   of any other producer id    | unknown | unknown         | unknown         | concurrent   |
| EndTxn 0-4                    | unknown | see `ending`    | ends            | concurrent   |
|   with any other epoch        | unknown | fenced          | fenced          | fenced       |
|   of any other producer id    | unknown | unknown         | unknown         | unknown      |
| Describe-, ListTransactions   | absent  | as it is        | as it is        | as it is (**)|

(*) A request of a leader or a group coordinator waits for the end for a moment (`adding`).
(**) The described partitions are those without a marker.

Concurrent means CONCURRENT_TRANSACTIONS: ask again. Fenced means PRODUCER_FENCED, or
INVALID_PRODUCER_EPOCH for old versions. Unknown means INVALID_PRODUCER_ID_MAPPING, abortable
TRANSACTION_ABORTABLE, absent TRANSACTIONAL_ID_NOT_FOUND. The previous epoch counts if the same
producer had it: EndTxn 5 and InitProducerId with the current epoch raise it. An id is used up with
its last epoch. While prepared, the current epoch is the one afterwards, if the end has raised it.
Partitions are added by AddPartitionsToTxn, by Produce from version 12 on and by TxnOffsetCommit
from version 5 on. Older versions of the last two verify, as do requests with `verify_only`. DEAD
and PREPARE_EPOCH_FENCE are never stored: a tombstone stands for the first, and the second is
PREPARE_ABORT at once.

There is one difference from Kafka. If the producer goes on with another id, because its own is used
up or in two-phase commit, that id is not unknown while prepared, but is told to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from raylog.actors.coordination.rules.step import Change, ClientCall, LogRecord
from raylog.actors.transaction.messages import AddPartitions
from raylog.actors.transaction.rules import adding, aging, describing, ending, starting
from raylog.actors.transaction.rules.failures import failed
from raylog.actors.transaction.rules.filtering import ListTransactionsPart
from raylog.actors.transaction.rules.ids import Ids, ProducerIdPool
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.state import PREPARED
from raylog.actors.transaction.rules.step import SendMarkers, TransactionStep
from raylog.wire.errors import KafkaError
from raylog.wire.internal.transactions import TransactionLogKey
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest


class TransactionShard:
    """The machine of one partition; it receives only requests for its own ids."""

    def __init__(self, settings: TransactionSettings, producer_ids: ProducerIdPool) -> None:
        self.ids = Ids(settings, producer_ids)

    def replay(self, record: LogRecord) -> Change:
        """Apply a record."""
        return self.ids.replay(record)

    def reverted(
        self, step: TransactionStep, records: Sequence[LogRecord], failure: KafkaError
    ) -> None:
        """Handle requests that waited for an end whose records the log has refused."""
        keys = [key for key, _, _ in records if isinstance(key, TransactionLogKey)]
        for transactional_id in dict.fromkeys(key.transactional_id for key in keys):
            self._resume(step, transactional_id)

    def _resume(self, step: TransactionStep, transactional_id: str) -> None:
        """Handle the requests that waited for the id's transaction, unless it is still ending."""
        for call in self.ids.take_parked(transactional_id):
            self.handle(step, call)

    def handle(self, step: TransactionStep, call: ClientCall[Any]) -> None:
        """Answer a request."""
        try:
            _HANDLERS[type(call.request)](self.ids, step, call)
        except KafkaError as failure:
            step.answer(call, failed(call.request, call.version, failure))

    def loaded(self, step: TransactionStep) -> None:
        """Send the markers of decided transactions again after a load."""
        for found in tuple(self.ids.transactions.values()):
            if found.state in PREPARED:
                self.ids.send_markers(step, found)

    def marker_written(self, transactional_id: str, topic: str, partition: int) -> None:
        """Record that a partition has its marker, below the high watermark."""
        self.ids.unmarked.get(transactional_id, set()).discard((topic, partition))

    def markers_written(self, step: TransactionStep, markers: SendMarkers) -> None:
        """Complete a transaction: all partitions have their markers, below the high watermark."""
        ending.complete(
            self.ids,
            step,
            markers.transactional_id,
            markers.producer_id,
            markers.producer_epoch,
        )
        self._resume(step, markers.transactional_id)

    def expire_wait(self, step: TransactionStep, call: ClientCall[AddPartitions]) -> None:
        """Answer a parked request that has waited long enough."""
        adding.expire_wait(self.ids, step, call)

    def markers_uncertain(self, step: TransactionStep, epoch: int) -> None:
        """Make leaders refuse markers of this epoch that may still arrive."""
        if epoch >= self.ids.coordinator_epoch:
            self.ids.renew_epoch(step)

    def transactional_ids(self) -> list[str]:
        """Return all ids."""
        return list(self.ids.transactions)

    def abort_timed_out(self, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
        """Abort transactions that have exceeded their timeout."""
        aging.abort_timed_out(self.ids, step, transactional_ids)

    def forget_expired(self, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
        """Forget ids that have been idle for too long."""
        aging.forget_expired(self.ids, step, transactional_ids)


_HANDLERS: dict[type, Callable[[Ids, TransactionStep, ClientCall[Any]], None]] = {
    InitProducerIdRequest: starting.init_producer_id,
    AddPartitions: adding.add_partitions,
    AddPartitionsToTxnRequest: adding.add_partitions_of_client,
    AddOffsetsToTxnRequest: adding.add_offsets,
    EndTxnRequest: ending.end_transaction,
    DescribeTransactionsRequest: describing.describe,
    ListTransactionsPart: describing.list_transactions,
}
