"""Readers of partitions with transactional records."""

from __future__ import annotations

from raylog.actors.replica.messages import READ_COMMITTED
from raylog.simulation.clients import Reader
from raylog.simulation.cluster import Cluster
from raylog.simulation.properties import Checks, Property
from raylog.simulation.simulated_gateway import Fetched
from raylog.simulation.transactions.history import StableLedger
from raylog.simulation.transactions.outcome import committed_records
from raylog.wire.records import decode_batch, iter_batches


class CommittedReader(Reader):
    """Reads committed records from the start, in a loop, from the last position on."""

    def __init__(self, cluster: Cluster, checks: Checks, ledger: StableLedger, number: int) -> None:
        super().__init__(cluster, checks, ledger, number)
        self._stable = ledger

    async def poll(self) -> int:
        """Read once. Returns the last stable offset in the answer."""
        got: Fetched = await self.ask("fetch", self.offset, READ_COMMITTED)
        self.take(got)
        return got.last_stable_offset

    def take(self, got: Fetched) -> None:
        """Check what was read."""
        hold, name, ledger = self.checks.hold, self.ledger.name, self._stable
        stable = got.last_stable_offset
        first_seen = ledger.stable.setdefault(got.high_watermark, stable)
        hold(
            Property.STABLE_AS_LOGGED,
            first_seen == stable,
            name,
            got.high_watermark,
            first_seen,
            stable,
        )
        for header, records in committed_records(got.data, got.aborted):
            contiguous = header.base_offset <= self.offset < header.next_offset
            hold(Property.READS_CONTIGUOUS, contiguous, name, self.offset, header)
            decided = header.next_offset <= stable
            hold(Property.READS_DECIDED, decided, name, header, stable)
            for record in records:
                value = record.value or b""
                before = ledger.committed.setdefault(record.offset, value)
                same = before == value
                hold(Property.ONE_VALUE_AN_OFFSET, same, name, record.offset, before, value)
            self.offset = header.next_offset
        ledger.passed = max(ledger.passed, self.offset)


class LogReader(Reader):
    """Reads a whole log and keeps its batches, including markers."""

    def __init__(
        self, cluster: Cluster, checks: Checks, ledger: StableLedger, number: int, epoch: int
    ) -> None:
        super().__init__(cluster, checks, ledger, number, leader_epoch=epoch)
        self._stable = ledger

    def take(self, got: Fetched) -> None:
        """Check what was read, and keep it."""
        self._stable.batches += [
            (header, decode_batch(batch))
            for header, batch in iter_batches(got.data)
            if header.base_offset >= self.offset
        ]
        super().take(got)
