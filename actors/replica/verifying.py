"""Holds transactional batches until their transaction includes the partition (KIP-890).

For Produce 12 and later the transaction's coordinator adds the partition; for earlier versions it
says whether the partition was added. It is asked at the first batch of a transaction in a
partition; later batches of the producer queue behind that one.

| event                                     | waiting batches of the producer              |
|-------------------------------------------|----------------------------------------------|
| the coordinator says yes                  | are appended, in their order                 |
| it refuses, or does not answer            | fail                                         |
| a batch of a higher epoch                 | fail: INVALID_PRODUCER_EPOCH                 |
| a marker that ends the transaction        | fail: INVALID_TXN_STATE, whatever the answer |
| leadership ends, the log fails or closes  | fail                                         |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from raylog.actors.replica.messages import TransactionalWrite
from raylog.actors.replica.writes import Write
from raylog.actors.transaction.messages import (
    AddPartitions,
    TopicPartitions,
    TransactionCoordinators,
)
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
"""Limit for batches of one producer that wait in one partition."""
_ASK_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Errors about where the coordinator is; producers cannot handle these."""


class Held(NamedTuple):
    """One transactional batch on its way into a partition."""

    write: Write
    leader_epoch: int
    acks: int
    transaction: TransactionalWrite


@dataclass(eq=False, slots=True)
class Verification:
    """Batches of one producer in one partition that wait for the coordinator's answer."""

    partition: Partition
    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool
    held: list[Held] = field(default_factory=list)

    def add(self, held: Held) -> None:
        """Queue a batch; raises if it must not wait here."""
        if held.transaction.transactional_id != self.transactional_id:
            raise InvalidProducerIdMapping(
                f"producer {self.producer_id} writes for {self.transactional_id!r}"
            )
        if len(self.held) >= HELD_MAX:
            raise NotEnoughReplicas(f"{HELD_MAX} batches wait for the transaction's coordinator")
        self.held.append(held)

    def end(self) -> bool:
        """End the wait; False if it has already ended."""
        if self.partition.verifying.get(self.producer_id) is not self:
            return False
        del self.partition.verifying[self.producer_id]
        return True

    def fail(self, failure: KafkaError) -> None:
        """Fail all waiting batches."""
        if self.end():
            for held in self.held:
                self.partition.refuse(held.write, failure)


class Verifying:
    """Verifications of one process; those from one request are asked about together."""

    def __init__(
        self, transactions: TransactionCoordinators, append: Callable[[Partition, Held], None]
    ) -> None:
        self._transactions = transactions
        self._append = append
        self._fresh: list[Verification] = []

    def produce(self, partition: Partition, held: Held) -> None:
        """Append a batch once its transaction includes the partition; `ask` must be called next."""
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
        """The verification that the batch must wait for: a pending or a new one."""
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
        """Ask the coordinators about verifications added since the last call."""
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
            partition.refuse(held.write, client_error(failure, held.transaction))
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


def client_error(failure: KafkaError, transaction: TransactionalWrite) -> KafkaError:
    """The client's error for a coordinator's refusal, mapped as in Kafka."""
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
