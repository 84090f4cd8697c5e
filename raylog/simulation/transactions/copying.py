"""Applications that copy a topic to another and commit their position in the same transaction."""

from __future__ import annotations

from typing import Any

from raylog.actors.names import GROUP
from raylog.actors.replica.messages import READ_COMMITTED
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.simulation.clients import Ledger
from raylog.simulation.simulated_gateway import Fetched
from raylog.simulation.transactions.history import OWN_EPOCHS, Sent
from raylog.simulation.transactions.outcome import committed_records
from raylog.simulation.transactions.producing import (
    FOREVER_S,
    PATIENCE_S,
    Abort,
    BeginAnew,
    TransactionalClient,
)
from raylog.wire.errors import KafkaError
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

RECORDS_MAX = 5
"""The most records in one transaction."""
ADD_OFFSETS_VERSION = 3
FETCH_VERSION = 7
COMMIT_VERSIONS = {1: 4, OWN_EPOCHS: 5}
"""Versions of TxnOffsetCommit by transaction version."""


def offset_fetch(group: str, source: Ledger) -> OffsetFetchRequest:
    """A request for a group's offset that waits for open transactions (KIP-447)."""
    topic = OffsetFetchRequestTopic(name=source.topic, partition_indexes=[source.partition])
    return OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True)


def fetched_offset(answer: Any) -> int:
    """The offset in an OffsetFetch response for one partition; 0 if nothing is stored."""
    [topic] = answer.topics
    [partition] = topic.partitions
    return max(0, int(partition.committed_offset))


def group_of(transactional_id: str) -> str:
    """The group of a copying application."""
    return f"{GROUP}-of-{transactional_id}"


def copied_from(value: bytes) -> tuple[str, int] | None:
    """Group and source offset of the record that was copied; None if `value` is no copy."""
    group, separator, rest = value.partition(b"<")
    if not separator:
        return None
    return group.decode(), int(rest.partition(b" ")[0])


class Copier(TransactionalClient):
    """One instance. It copies its first partition to its other ones."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._source, *self.ways = self.ways
        self._group = group_of(self.identity.transactional_id)
        self._offset = 0
        self._taken: list[tuple[int, bytes]] = []

    async def begin(self, patience_s: float = FOREVER_S) -> None:
        """Fence the previous instance, then fetch its position."""
        await super().begin(patience_s)
        request = offset_fetch(self._group, self._source.ledger)
        try:
            answer = await self.insist(
                lambda: self.coordinators.ask(self._group, request, FETCH_VERSION), repeats=False
            )
        except Abort as refused:
            raise BeginAnew("no offsets") from refused
        self._offset = fetched_offset(answer)

    async def transact(self) -> None:
        """Copy some records, if there are more."""
        try:
            got: Fetched = await self._source.ask("fetch", self._offset, READ_COMMITTED)
        except (PeerLost, PeerTimeout, ActorGone, KafkaError):
            await self.runtime.sleep(self.random.uniform(0.05, 0.2))
            return
        self._taken = [
            (record.offset, record.value or b"")
            for _, records in committed_records(got.data, got.aborted)
            for record in records
            if record.offset >= self._offset
        ][: self.random.randint(1, RECORDS_MAX)]
        if self._taken:
            sent = await self.write_transaction()
            if sent.outcome:
                self._offset = self._taken[-1][0] + 1

    async def work(self, sent: Sent) -> None:
        """Copy what was read. Commits the position at any point before the end."""
        by_way: dict[int, list[bytes]] = {}
        for offset, value in self._taken:
            copy = b"%s<%d %s %s" % (self._group.encode(), offset, sent.label.encode(), value[:20])
            by_way.setdefault(offset % len(self.ways), []).append(copy)
        commit_at = self.random.randrange(len(by_way) + 1)
        for number, (way, values) in enumerate(by_way.items()):
            if number == commit_at:
                await self._commit()
            await self.write(sent, self.ways[way], values)
        if commit_at == len(by_way):
            await self._commit()

    async def _commit(self) -> None:
        """Send TxnOffsetCommit, and AddOffsetsToTxn before it if needed."""
        identity, (producer_id, epoch) = self.identity, self.holder
        if identity.version < OWN_EPOCHS:
            adding = AddOffsetsToTxnRequest(
                transactional_id=identity.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self._group,
            )
            await self.insist(
                lambda: self.coordinators.ask(
                    identity.transactional_id, adding, ADD_OFFSETS_VERSION
                ),
                patience_s=PATIENCE_S,
            )
        ledger, position = self._source.ledger, self._taken[-1][0] + 1
        partition = TxnOffsetCommitRequestPartition(
            partition_index=ledger.partition, committed_offset=position, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=self._group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=ledger.topic, partitions=[partition])],
        )
        version = COMMIT_VERSIONS[identity.version]
        await self.insist(
            lambda: self.coordinators.ask(self._group, request, version), patience_s=PATIENCE_S
        )
