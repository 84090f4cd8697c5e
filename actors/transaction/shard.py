"""The transactional ids of one partition of `__transaction_state`: a machine fed with events.

Handlers look at the ids, append records to their step, ask for markers and answer. Every answer
waits until what it rests on is durable. The parts: `starting`, `adding`, `ending`, `aging`,
`describing`.

What is answered, by state and by who asks, is what Apache Kafka 4.3.1 answers (tests/differential:
`table_sessions`, `held_sessions`). Resting is EMPTY, COMPLETE_COMMIT and COMPLETE_ABORT; prepared
is PREPARE_COMMIT and PREPARE_ABORT, while markers are being written.

| request, by whom              | nothing | resting         | ONGOING         | prepared     |
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

(*) From a leader or a group coordinator it waits a little for the end (`adding`).
(**) Of the partitions those are described that have no marker yet.

Concurrent is CONCURRENT_TRANSACTIONS: ask again. Fenced is PRODUCER_FENCED, to old versions
INVALID_PRODUCER_EPOCH. Unknown is INVALID_PRODUCER_ID_MAPPING, abortable TRANSACTION_ABORTABLE,
absent TRANSACTIONAL_ID_NOT_FOUND. The epoch before counts if the same producer had it: EndTxn 5 and
InitProducerId with the current epoch raise it. An id is used up with its last epoch. In prepared
the current epoch is the one that comes afterwards, if the end has raised it. Partitions are added
by AddPartitionsToTxn, by Produce since version 12 and by TxnOffsetCommit since 5; older ones of
these two verify, and so does whoever asks with `verify_only`. DEAD and PREPARE_EPOCH_FENCE are
never stored: the first is a tombstone, so nothing, the second is PREPARE_ABORT at once.

One thing differs from Kafka. Where the producer goes on with another id, because its own is used up
or in two-phase commit, that id is not unknown in prepared: it is told to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from raylog.actors.coordination.step import Asked, Change, LogRecord
from raylog.actors.transaction import adding, aging, describing, ending, starting
from raylog.actors.transaction.api import AddPartitions
from raylog.actors.transaction.failures import failed
from raylog.actors.transaction.filtering import ListTransactionsPart
from raylog.actors.transaction.ids import Ids, ProducerIdPool
from raylog.actors.transaction.settings import TransactionSettings
from raylog.actors.transaction.state import PREPARED
from raylog.actors.transaction.step import SendMarkers, TransactionStep
from raylog.wire.errors import KafkaError
from raylog.wire.internal.transactions import TransactionLogKey
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.end_txn import EndTxnRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest


class TransactionShard:
    """The machine of one partition. Requests for other partitions' ids are not its business."""

    def __init__(self, settings: TransactionSettings, producer_ids: ProducerIdPool) -> None:
        self.ids = Ids(settings, producer_ids)

    def replay(self, record: LogRecord) -> Change:
        """Take in a record."""
        return self.ids.replay(record)

    def reverted(
        self, step: TransactionStep, records: Sequence[LogRecord], failure: KafkaError
    ) -> None:
        """The log has refused these records: what waited for an end that is none goes on."""
        del failure
        keys = [key for key, _, _ in records if isinstance(key, TransactionLogKey)]
        for transactional_id in dict.fromkeys(key.transactional_id for key in keys):
            self._resume(step, transactional_id)

    def _resume(self, step: TransactionStep, transactional_id: str) -> None:
        """Answer what has waited for the end of the id's transaction, unless it is still ending."""
        for asked in self.ids.take_parked(transactional_id):
            self.handle(step, asked)

    def handle(self, step: TransactionStep, asked: Asked[Any]) -> None:
        """Answer a request."""
        try:
            _HANDLERS[type(asked.request)](self.ids, step, asked)
        except KafkaError as failure:
            step.answer(asked, failed(asked.request, asked.version, failure))

    def loaded(self, step: TransactionStep) -> None:
        """Everything in the log was replayed: what is decided is completed."""
        for found in tuple(self.ids.transactions.values()):
            if found.state in PREPARED:
                self.ids.send_markers(step, found)

    def marker_written(self, transactional_id: str, topic: str, partition: int) -> None:
        """A partition has its marker, below the high watermark."""
        self.ids.unmarked.get(transactional_id, set()).discard((topic, partition))

    def markers_written(self, step: TransactionStep, markers: SendMarkers) -> None:
        """Every partition has its marker, below the high watermark."""
        ending.complete(
            self.ids,
            step,
            markers.transactional_id,
            markers.producer_id,
            markers.producer_epoch,
        )
        self._resume(step, markers.transactional_id)

    def waited_in_vain(self, step: TransactionStep, asked: Asked[AddPartitions]) -> None:
        """A parked request has waited long enough."""
        adding.waited_in_vain(self.ids, step, asked)

    def markers_uncertain(self, step: TransactionStep, epoch: int) -> None:
        """Markers sent under an epoch may still be on their way: let them be refused later."""
        if epoch >= self.ids.coordinator_epoch:
            self.ids.renew_epoch(step)

    def transactional_ids(self) -> list[str]:
        """Every id there is."""
        return list(self.ids.transactions)

    def abort_timed_out(self, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
        """Abort what is open for too long."""
        aging.abort_timed_out(self.ids, step, transactional_ids)

    def forget_expired(self, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
        """Forget what has been silent for too long."""
        aging.forget_expired(self.ids, step, transactional_ids)


_HANDLERS: dict[type, Callable[[Ids, TransactionStep, Asked[Any]], None]] = {
    InitProducerIdRequest: starting.init_producer_id,
    AddPartitions: adding.add_partitions,
    AddPartitionsToTxnRequest: adding.add_partitions_of_client,
    AddOffsetsToTxnRequest: adding.add_offsets,
    EndTxnRequest: ending.end_transaction,
    DescribeTransactionsRequest: describing.describe,
    ListTransactionsPart: describing.list_transactions,
}
