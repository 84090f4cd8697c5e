"""A model of a log's contents, and a check of all of the log against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from raylog.storage.checkpoint import PRODUCERS_KIND, decode
from raylog.storage.index import AbortedTransaction
from raylog.storage.log import Log
from raylog.storage.producers import SNAPSHOT_VERSION, ProducerStates
from raylog.wire.control import decode_end_txn_marker
from raylog.wire.records import Record, decode_batch, read_header
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import looked_up


class Batch(NamedTuple):
    """One batch of the log; its offsets are [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    epoch: int
    data: bytes

    @property
    def records(self) -> list[Record]:
        """The batch's records."""
        return decode_batch(self.data)


def transactions_of(
    batches: Sequence[Batch],
) -> tuple[dict[int, int], list[AbortedTransaction]]:
    """Return first offsets of open transactions by producer id, and the aborted transactions."""
    ongoing: dict[int, int] = {}
    aborted = []
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control and header.producer_id in ongoing:
            marker = decode_end_txn_marker(batch.records[0])
            first = ongoing.pop(header.producer_id)
            if marker is not None and not marker.is_commit:
                stable = min(ongoing.values(), default=batch.next_offset)
                aborted.append(
                    AbortedTransaction(header.producer_id, first, batch.base_offset, stable)
                )
        elif header.is_transactional and not header.is_control:
            ongoing.setdefault(header.producer_id, batch.base_offset)
    return ongoing, aborted


def producers_of(batches: Sequence[Batch]) -> ProducerStates:
    """Return the states of the producers of these batches."""
    states = ProducerStates()
    for batch in batches:
        header = read_header(batch.data)
        if header.producer_id >= 0:
            states.apply(header, batch.base_offset, batch.data, 0)
    return states


def _contents(states: ProducerStates) -> Any:
    contents = decode(PRODUCERS_KIND, SNAPSHOT_VERSION, states.snapshot().encode(), "")
    assert contents is not None
    return contents.value


def ended_of(states: ProducerStates) -> list[list[int]]:
    """Return the transactions that ended: the first offset and the marker's offset of each."""
    ended: list[list[int]] = _contents(states)["ended"]
    return ended


def known(states: ProducerStates) -> object:
    """Return all that is known of producers, except when they were last seen."""
    found = _contents(states)
    found["producers"] = sorted([*each[:3], *each[4:]] for each in found["producers"])
    del found["ended"]  # may be dropped below the high watermark
    return found


@dataclass
class LogModel:
    """The model. `batches` has all batches appended and not truncated, including deleted ones."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    """The one of the last checkpoint."""
    saved_start: int = 0
    """The lowest log start after a crash."""
    synced: int = 0
    """Exclusive end of what survives a crash."""
    asked: int = 0
    """The offset of the last truncation; a batch below it may be missing for a while."""
    served: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """What readers may have mapped, by segment name and position."""

    def copy(self) -> LogModel:
        """Return an independent copy."""
        return replace(self, batches=self.batches.copy(), served=self.served.copy())

    def appended(self, data: bytes) -> None:
        """Record that a batch was appended."""
        header = read_header(data)
        self.batches.append(
            Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, data)
        )
        self.end = header.next_offset

    def cut(self, offset: int, *, anew: bool = False) -> None:
        """Record that the log was truncated to `offset`, or begun anew there."""
        if offset >= self.end and not anew:
            return
        self.high_watermark = min(self.high_watermark, offset)
        if offset <= self.start or anew:
            self.batches.clear()
            self.start = self.end = offset
            self.high_watermark = 0  # which means: the log start
        else:
            while self.batches and self.batches[-1].next_offset > offset:
                self.batches.pop()
            last = self.batches[-1].next_offset if self.batches else 0
            self.end = max(self.start, min(offset, last))
        self.asked = offset
        self.synced = min(self.synced, self.end)
        self.saved_start = self.start

    def up_to(self, start: int, end: int) -> LogModel:
        """Return the model of a shorter log."""
        batches = [batch for batch in self.batches if batch.next_offset <= end]
        return replace(self, batches=batches, start=start, end=end, served=self.served.copy())

    # -- checks ----------------------------------------------------------------------------------

    def check(self, log: Log, disk: FaultyDisk) -> None:
        """Assert that everything the log reports is right."""
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.state.recovery_point <= self.end
        assert known(log.producers) == known(producers_of(self.batches))
        live = [batch for batch in self.batches if batch.next_offset > self.start]
        self._check_served(log, disk)
        self._check_reads(log, disk, live)
        self._check_transactions(log, live)
        self._check_epochs(log, live)
        self._check_times(log, live)

    def _check_served(self, log: Log, disk: FaultyDisk) -> None:
        """Assert that a segment, as long as its name exists, keeps the bytes that readers saw."""
        names = disk.listdir(log.directory)
        for (name, position), data in self.served.items():
            if name in names:
                found = disk.contents(f"{log.directory}/{name}")
                assert found[position : position + len(data)] == data, name

    def _check_reads(self, log: Log, disk: FaultyDisk, live: list[Batch]) -> None:
        offset, rest = self.start, b"".join(batch.data for batch in live)
        while (found := log.read(offset, 500, self.end)) is not None:
            assert found.next_offset > offset
            data = log.reader.load(found)
            assert data
            assert rest.startswith(data), offset
            assert (
                disk.contents(f"{log.directory}/{found.segment_id}")[found.position :][
                    : found.length
                ]
                == data
            ), "as whoever maps the file sees it"
            self.served[found.segment_id, found.position] = data
            offset, rest = found.next_offset, rest[len(data) :]
        assert rest == b"", offset
        for batch in live[::3]:
            found = log.read(max(batch.next_offset - 1, self.start), 1, batch.next_offset)
            assert found is not None
            assert log.reader.load(found) == batch.data
            assert (
                log.read(max(batch.base_offset, self.start), 1_000, batch.next_offset - 1) is None
            )

    def _check_transactions(self, log: Log, live: list[Batch]) -> None:
        ongoing, aborted = transactions_of(self.batches)
        assert log.reader.last_stable_offset(self.end) == max(
            self.start, min([self.end, *ongoing.values()])
        )
        edges = [*(max(self.start, batch.base_offset) for batch in live[::4]), self.end]
        for first, last in [(self.start, self.end), *zip(edges, edges[2:], strict=False)]:
            expected = [t for t in aborted if t.last_offset >= first and t.first_offset < last]
            assert log.reader.aborted_transactions(first, last) == expected, (first, last)

    def _check_epochs(self, log: Log, live: list[Batch]) -> None:
        for batch in live:
            offset = max(batch.base_offset, self.start)
            assert log.epochs.epoch_for(offset) == batch.epoch, offset
        entries = log.epochs.entries()
        assert all(entry.start_offset <= self.end for entry in entries)
        assert log.epochs.latest == (live[-1].epoch if live else log.epochs.latest)
        for epoch in {batch.epoch for batch in live}:
            later = [batch.base_offset for batch in live if batch.epoch > epoch]
            assert log.epochs.end_offset_for(epoch, self.end) == (
                epoch,
                later[0] if later else self.end,
            )

    def _check_times(self, log: Log, live: list[Batch]) -> None:
        records = [
            (record.offset, record.timestamp, batch.epoch)
            for batch in live
            for record in batch.records
            if record.offset >= self.start
        ]
        latest = max((each[1] for each in records), default=0)
        for asked in (0, latest, latest - 20, latest + 1):
            expected = next((each for each in records if each[1] >= asked), None)
            assert looked_up(log, asked) == expected
        expected = next((each for each in records if each[1] == latest), None)
        assert looked_up(log, None) == expected


def settle(log: Log, before: LogModel, after: LogModel, lowest_end: int) -> LogModel:
    """Return the model of a log whose change from `before` to `after` was interrupted.

    The log must begin like the longer of the two, up to `lowest_end` at least, and must not
    overstate its high watermark.
    """
    start, end = log.log_start_offset, log.log_end_offset
    longer = max(before, after, key=lambda model: model.end - model.start)
    model = longer.up_to(start, end)
    if (start, end) == (after.start, after.end):
        model = after.copy()
    if start == end and all(batch.next_offset <= start for batch in after.batches):
        # their producers are forgotten, now or later
        model.batches = before.up_to(start, end).batches if len(log.producers) else []
    assert start in {before.saved_start, before.start, after.start}
    if after.batches:  # otherwise all may go, in any number of steps
        assert end >= lowest_end or end == start
    assert end <= max(before.end, after.end)
    assert log.checkpoints.high_watermark_saved <= end
    model.high_watermark = log.checkpoints.high_watermark_saved
    return model
