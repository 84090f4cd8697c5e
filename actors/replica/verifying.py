"""Transactional batches wait here until their transaction holds the partition (KIP-890).

The transaction's coordinator adds the partition for Produce 12 and later, and says for earlier
versions whether it was added. It is asked for the first batch of a transaction in a partition;
what its producer sends meanwhile waits behind that.

| event                                     | batches of the producer that wait here       |
|-------------------------------------------|----------------------------------------------|
| the coordinator says yes                  | are appended, in their order                 |
| it refuses, or nobody answers             | fail                                         |
| a batch of a higher epoch                 | fail: INVALID_PRODUCER_EPOCH                 |
| a marker that ends the transaction        | fail: INVALID_TXN_STATE, whatever the answer |
| leadership goes, the log fails or closes  | fail                                         |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raylog.actors.replica.api import TransactionalWrite
from raylog.actors.replica.produce import Write
from raylog.actors.transaction.api import AddPartitions, TopicPartitions
from raylog.wire.errors import (
    ErrorCode,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    error_of,
)
from raylog.wire.records import BatchHeader, read_header

if TYPE_CHECKING:
    from raylog.actors.replica.partition import Partition

HELD_MAX = 100
"""Batches of one producer that wait for one partition."""
_ASK_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""What the coordinator's whereabouts say; producers know no way on from these."""


class TransactionsPort(Protocol):
    """The coordinators of transactions, wherever they are."""

    def add_partitions(
        self, asked: AddPartitions, settled: Callable[[list[int] | KafkaError], None]
    ) -> None:
        """Have the coordinator add or look for partitions; `settled` is called once."""


class Held(NamedTuple):
    """One transactional batch on its way into a partition."""

    write: Write
    leader_epoch: int
    acks: int
    transaction: TransactionalWrite


@dataclass(eq=False, slots=True)
class Verification:
    """What waits for the coordinator's word about one producer in one partition."""

    partition: Partition
    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool
    held: list[Held] = field(default_factory=list)

    def add(self, held: Held) -> None:
        """Have a batch wait behind the others; raises where it must not."""
        if held.transaction.transactional_id != self.transactional_id:
            raise InvalidProducerIdMapping(
                f"producer {self.producer_id} writes for {self.transactional_id!r}"
            )
        if len(self.held) >= HELD_MAX:
            raise NotEnoughReplicas(f"{HELD_MAX} batches wait for the transaction's coordinator")
        self.held.append(held)

    def end(self) -> bool:
        """Nothing is waited for any more; False if that is known."""
        if self.partition.verifying.get(self.producer_id) is not self:
            return False
        del self.partition.verifying[self.producer_id]
        return True

    def fail(self, failure: KafkaError) -> None:
        """Fail all that waits."""
        if self.end():
            for held in self.held:
                self.partition.refuse(held.write, failure)


class Verifying:
    """Of all partitions of one process; those of one request are asked about together."""

    def __init__(
        self, transactions: TransactionsPort, append: Callable[[Partition, Held], None]
    ) -> None:
        self._transactions = transactions
        self._append = append
        self._fresh: list[Verification] = []

    def produce(self, partition: Partition, held: Held) -> None:
        """Append a batch as soon as its transaction holds the partition; `ask` must follow."""
        header = read_header(held.write.batch)
        if not self._must_ask(partition, header, held):
            self._append(partition, held)
            return
        try:
            partition.machine.require_leader(held.leader_epoch)
            self._verification(partition, header, held).add(held)
        except KafkaError as failure:
            partition.refuse(held.write, failure)

    def _must_ask(self, partition: Partition, header: BatchHeader, held: Held) -> bool:
        if not header.is_transactional or header.producer_id < 0:
            return False
        if not (held.transaction.adds or partition.config.transactions_verified):
            return False
        producers = partition.log.producers
        return (
            producers.transaction_start(header.producer_id) < 0
            or producers.epoch_of(header.producer_id) != header.producer_epoch
        )

    def _verification(self, partition: Partition, header: BatchHeader, held: Held) -> Verification:
        """What the batch has to wait for: one that is under way, or a new one."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        found = partition.verifying.get(producer_id)
        if found is not None and epoch == found.epoch:
            return found
        if found is not None:
            older = InvalidProducerEpoch(f"producer {producer_id} has a newer epoch")
            if epoch < found.epoch:
                raise older
            found.fail(older)
        transaction = held.transaction
        verification = Verification(
            partition, transaction.transactional_id, producer_id, epoch, transaction.adds
        )
        partition.verifying[producer_id] = verification
        self._fresh.append(verification)
        return verification

    def ask(self) -> None:
        """Ask about what came since the last time."""
        fresh, self._fresh = self._fresh, []
        together: dict[tuple[str, int, int, bool], list[Verification]] = {}
        for one in fresh:
            asked = (one.transactional_id, one.producer_id, one.epoch, one.adds)
            together.setdefault(asked, []).append(one)
        for (transactional_id, producer_id, epoch, adds), found in together.items():
            topics = [TopicPartitions(one.partition.topic, [one.partition.key[1]]) for one in found]
            self._transactions.add_partitions(
                AddPartitions(
                    transactional_id, producer_id, epoch, verify_only=not adds, topics=topics
                ),
                partial(self._settled, found),
            )

    def _settled(self, found: list[Verification], outcome: list[int] | KafkaError) -> None:
        for at, one in enumerate(found):
            if one.end():
                failure = outcome if isinstance(outcome, KafkaError) else _failure(outcome[at])
                for held in one.held:
                    self._release(one, held, failure)

    def _release(self, verification: Verification, held: Held, failure: KafkaError | None) -> None:
        partition = verification.partition
        if failure is not None:
            partition.refuse(held.write, told(failure, held.transaction))
            return
        sequence = read_header(held.write.batch).base_sequence
        if (
            verification.adds
            and sequence != 0
            and partition.log.producers.epoch_of(verification.producer_id) < 0
        ):
            failure = OutOfOrderSequenceNumber(
                f"producer {verification.producer_id} is unknown: its transaction begins at "
                f"sequence 0, not {sequence}"
            )
            partition.refuse(held.write, failure)
            return
        self._append(partition, held)


def _failure(code: int) -> KafkaError | None:
    return None if code == ErrorCode.NONE else error_of(ErrorCode(code))


def told(failure: KafkaError, transaction: TransactionalWrite) -> KafkaError:
    """What a client is told of a coordinator's refusal, as Kafka maps it."""
    code = failure.code
    if code is ErrorCode.PRODUCER_FENCED:
        return InvalidProducerEpoch(str(failure))
    if code is ErrorCode.TRANSACTION_ABORTABLE and not transaction.knows_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return error_of(code, "Partition was not added to the transaction")
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not transaction.adds):
        return NotEnoughReplicas(
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}"
        )
    return failure
