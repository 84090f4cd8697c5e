"""The transactional ids of one shard, and their changes."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

from raylog.actors.coordination.rules.step import (
    NO_CHANGE,
    Change,
    ClientCall,
    LogRecord,
    Undo,
    put,
)
from raylog.actors.metadata.features import TRANSACTION_VERSION
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.state import (
    COMES_FROM,
    NO_PRODUCER_ID,
    PREPARED,
    State,
    Transaction,
    from_value,
)
from raylog.actors.transaction.rules.step import SendMarkers, TransactionStep
from raylog.wire.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidRequest,
    ProducerFenced,
)
from raylog.wire.internal.transactions import (
    CoordinatorEpochKey,
    CoordinatorEpochValue,
    TransactionLogKey,
    TransactionLogValue,
)

FLEXIBLE_SINCE = 1
"""Level of TRANSACTION_VERSION from which records have their newer format."""


def completing(found: Transaction) -> ConcurrentTransactions:
    """Return the error for requests while markers are being written; clients retry it."""
    return ConcurrentTransactions(f"{found.transactional_id!r} is being completed")


class ProducerIdPool:
    """Producer ids that the controller has allocated to this process."""

    def __init__(self) -> None:
        self._ranges: deque[range] = deque()
        self.was_short = False
        """Whether an id was needed while there was none."""

    def __len__(self) -> int:
        return sum(map(len, self._ranges))

    def add(self, first: int, count: int) -> None:
        """Add a block."""
        if count:
            self._ranges.append(range(first, first + count))
            self.was_short = False

    def take(self) -> int:
        """Take an id; raises CoordinatorLoadInProgress, which clients retry, if there is none."""
        if not self._ranges:
            self.was_short = True
            raise CoordinatorLoadInProgress("the controller has given no producer ids yet")
        found = self._ranges.popleft()
        if len(found) > 1:
            self._ranges.appendleft(found[1:])
        return found[0]


class Ids:
    """The transactional ids of one shard, and their changes."""

    def __init__(self, settings: TransactionSettings, producer_ids: ProducerIdPool) -> None:
        self.settings = settings
        self.producer_ids = producer_ids
        self.transactions: dict[str, Transaction] = {}
        self.coordinator_epoch = -1
        """The newest epoch in the log."""
        self._epoch_is_own = False
        """Whether this incarnation of the coordinator has appended it."""
        self.unmarked: dict[str, set[tuple[str, int]]] = {}
        """For ids whose transaction is completing, the partitions that lack a marker."""
        self._parked: dict[str, list[ClientCall[Any]]] = {}

    def replay(self, record: LogRecord) -> Change:
        """Apply a record; nothing else changes stored state."""
        key, value, _ = record
        if isinstance(key, TransactionLogKey):
            transactional_id = key.transactional_id
            found = None
            if value is not None:
                assert isinstance(value, TransactionLogValue)
                found = from_value(transactional_id, value)
            return put(self.transactions, transactional_id, found)
        if isinstance(key, CoordinatorEpochKey):
            assert isinstance(value, CoordinatorEpochValue)
            epoch = self.coordinator_epoch
            self.coordinator_epoch = value.coordinator_epoch
            return Undo(partial(setattr, self, "coordinator_epoch", epoch))
        return NO_CHANGE

    def find(self, transactional_id: str) -> Transaction:
        """Return the state of an id; raises InvalidProducerIdMapping if it has none."""
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        found = self.transactions.get(transactional_id)
        if found is None:
            raise InvalidProducerIdMapping(f"{transactional_id!r} has no producer id")
        return found

    def held(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """Return the state of an id for the producer that holds it; raises for any other producer.

        While markers are being written, the next holder gets ConcurrentTransactions and retries.
        """
        found = self.find(transactional_id)
        own_id, own_epoch = found.holder
        if found.state in PREPARED and (producer_id, epoch) == found.after:
            raise completing(found)
        if producer_id != own_id:
            raise InvalidProducerIdMapping(
                f"{transactional_id!r} has producer id {own_id}, not {producer_id}"
            )
        if epoch != own_epoch:
            raise ProducerFenced(f"{transactional_id!r} has epoch {own_epoch}, not {epoch}")
        if found.state in PREPARED:
            raise completing(found)
        return found

    def park(self, transactional_id: str, call: ClientCall[Any]) -> None:
        """Let a request wait until the id's transaction is complete."""
        self._parked.setdefault(transactional_id, []).append(call)

    def take_parked(self, transactional_id: str) -> list[ClientCall[Any]]:
        """Return the waiting requests in order; none while the transaction completes."""
        found = self.transactions.get(transactional_id)
        if found is not None and found.state in PREPARED:
            return []
        return self._parked.pop(transactional_id, [])

    def unpark(self, transactional_id: str, call: ClientCall[Any]) -> bool:
        """Stop a request from waiting; return whether it was."""
        parked = self._parked.get(transactional_id, [])
        if call not in parked:
            return False
        parked.remove(call)
        if not parked:
            del self._parked[transactional_id]
        return True

    def change(self, step: TransactionStep, new: Transaction) -> None:
        """Append a new state of an id."""
        old = self.transactions.get(new.transactional_id)
        assert old is None or old.state in COMES_FROM[new.state], (old, new)
        assert (
            old is None
            or old.producer_id != new.producer_id
            or (old.producer_epoch <= new.producer_epoch)
        ), (old, new)
        previous = new.producer_id if old is None else old.producer_id
        stored = replace(new, previous_producer_id=previous, last_update_ms=step.now_ms)
        level = step.image.features.get(TRANSACTION_VERSION, 0)
        version = int(level >= FLEXIBLE_SINCE or stored.next_producer_id != NO_PRODUCER_ID)
        key = TransactionLogKey(transactional_id=new.transactional_id)
        step.append(key, stored.to_value(version), version)
        replayed = self.transactions[new.transactional_id]
        self.transactions[new.transactional_id] = replace(
            replayed, last_producer_epoch=stored.last_producer_epoch
        )

    def forget(self, step: TransactionStep, transactional_id: str) -> None:
        """Append the tombstone of an id."""
        step.append(TransactionLogKey(transactional_id=transactional_id), None)

    def send_markers(self, step: TransactionStep, decided: Transaction) -> None:
        """Send the markers of a decided transaction, once the decision is durable."""
        assert decided.state in PREPARED
        if not self._epoch_is_own:
            self.renew_epoch(step)
        markers = SendMarkers(
            transactional_id=decided.transactional_id,
            producer_id=decided.producer_id,
            producer_epoch=decided.producer_epoch,
            committed=decided.state is State.PREPARE_COMMIT,
            transaction_version=decided.client_version,
            partitions=decided.partitions,
        )
        step.markers.append(markers)
        unmarked = {
            (topic, index) for topic, found in decided.partitions.items() for index in found
        }
        step.if_refused(put(self.unmarked, decided.transactional_id, unmarked).revert)

    def renew_epoch(self, step: TransactionStep) -> None:
        """Use a higher epoch in markers, so that leaders refuse earlier ones."""
        epoch, was_own = self.coordinator_epoch + 1, self._epoch_is_own
        step.append(CoordinatorEpochKey(), CoordinatorEpochValue(coordinator_epoch=epoch))
        self._epoch_is_own = True
        step.if_refused(partial(setattr, self, "_epoch_is_own", was_own))
        step.coordinator_epoch = epoch
