"""The log against a list, with any order of appends, reads, truncations, reopenings and faults."""

import errno
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.storage.log import Log, LogConfig
from raylog.storage.producers import ProducerInfo, ProducerStates
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.errors import KafkaStorageError, OffsetOutOfRange
from raylog.wire.records import Record, encode_batch, read_header
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.log_model import Batch, ended_of, transactions_of
from tests.worlds.storage.logs import looked_up

DIRECTORY = Path("/p")
TAIL: list[tuple[str, bytes | None]] = [("end", b"x")]  # a batch cut short is never whole by chance
CONFIG = LogConfig(
    segment_bytes=700,
    segment_ms=5_000,
    index_interval_bytes=150,
    retention_ms=60_000,
    retention_bytes=4_000,
    file_delete_delay_ms=10,
    index_checkpoint_bytes=300,
    flush_ms=2_000,
)


class LogMachine(RuleBasedStateMachine):
    """`batches` has everything that was appended and not truncated, including deleted batches."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.now_ms = 1_000_000
        self.epoch = 0
        self.synced = 0  # what a crash cannot take
        self.saved_start = 0
        self.sequences: dict[int, int] = {}
        self.served: dict[tuple[str, int], bytes] = {}  # what readers may have mapped
        self.forgotten = ProducerStates().snapshot().encode()
        self.unflushed_ms = 0  # how long a flush was not due although something is not flushed

    @initialize()
    def open(self) -> None:
        self.log = Log.open(DIRECTORY, CONFIG, self.disk, now_ms=self.now_ms)

    # -- appending -----------------------------------------------------------------------------

    def _batch(
        self, count: int, size: int, age_ms: int, producer: int, base_offset: int = 0
    ) -> bytearray:
        records = [
            Record(base_offset + i, self.now_ms - age_ms + i, None, b"v" * size, TAIL)
            for i in range(count)
        ]
        if producer < 0:
            return bytearray(
                encode_batch(records, base_offset=base_offset, leader_epoch=self.epoch)
            )
        return bytearray(
            encode_batch(
                records,
                base_offset=base_offset,
                leader_epoch=self.epoch,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=self.sequences.get(producer, 0),
                is_transactional=producer >= 2,
            )
        )

    def _appended(self, data: bytes, base_offset: int) -> None:
        header = read_header(data)
        assert header.base_offset == base_offset
        if header.producer_id >= 0 and not header.is_control:
            self.sequences[header.producer_id] = header.base_sequence + header.record_count
        self.batches.append(
            Batch(base_offset, header.next_offset, header.partition_leader_epoch, data)
        )
        self.end = header.next_offset

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 200),
        age_ms=st.integers(-4_000, 20_000),
        producer=st.integers(-2, 3),
    )
    def append(self, count: int, size: int, age_ms: int, producer: int) -> None:
        batch = self._batch(count, size, age_ms, producer)
        header = read_header(batch)
        if producer >= 0:
            assert self.log.producers.check(header) is None
        info = self.log.append(batch, header, self.epoch, self.now_ms)
        assert info.base_offset == self.end
        assert info.next_offset == self.end + count
        self._appended(bytes(batch), self.end)

    @rule(producer=st.integers(2, 3), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        batch = bytearray(
            encode_end_txn_marker(
                EndTxnMarker(commit, 0),
                producer_id=producer,
                producer_epoch=0,
                timestamp_ms=self.now_ms,
            )
        )
        self.log.append(batch, read_header(batch), self.epoch, self.now_ms)
        self._appended(bytes(batch), self.end)

    @rule(
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        gap=st.integers(0, 3),
        size=st.integers(0, 100),
    )
    def follow(self, counts: list[int], gap: int, size: int) -> None:
        offset = self.end + gap
        batches = []
        for count in counts:
            batches.append(bytes(self._batch(count, size, 0, -1, offset)))
            offset += count + gap
        assert self.log.append_verbatim(b"".join(batches), self.now_ms) == offset - gap
        for batch in batches:
            self._appended(batch, read_header(batch).base_offset)

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule(ms=st.integers(0, 8_000))
    def time_passes(self, ms: int) -> None:
        unflushed = self.log.state.recovery_point < self.end
        waits = unflushed and not self.log.flushes.is_due(self.now_ms)
        self.now_ms += ms
        self.unflushed_ms += ms if waits else 0

    @rule(ms=st.integers(1, 8_000), later_ms=st.sampled_from([0, CONFIG.flush_ms]))
    def clock_is_set_back(self, ms: int, later_ms: int) -> None:
        if later_ms:
            self.flush()
            self.append(1, 10, 0, -1)
        self.now_ms -= ms
        self.unflushed_ms = 0
        self.time_passes(later_ms)

    # -- upkeep --------------------------------------------------------------------------------

    @rule()
    def roll_if_due(self) -> None:
        before = self.log.segment_count
        rolled = self.log.roll_if_due(self.now_ms)
        assert self.log.segment_count == before + rolled

    @rule()
    def flush(self) -> None:
        job = self.log.flushes.begin()
        job.run()
        self.log.flushes.end(job, self.now_ms)
        assert self.log.state.recovery_point == self.end
        self.unflushed_ms = 0

    @rule()
    def checkpoint(self) -> None:
        job = self.log.checkpoints.begin(self.now_ms, self.end)
        if job is not None:
            job.run()
            self.log.checkpoints.end(job)
        self.saved_start = self.start
        self.synced = max(self.synced, self.log.state.recovery_point)
        assert ended_of(self.log.producers) == [], "replicated transactions are of no interest"

    @rule()
    def retention(self) -> None:
        before = self.log.segments
        gone = self.log.retention(self.now_ms, self.end)
        assert self.log.segments == before[len(gone) :]
        assert self.log.log_start_offset >= self.start
        if gone:
            self.start = self.log.log_start_offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.delete_records_to(self.start)
        with pytest.raises(OffsetOutOfRange):
            self.log.delete_records_to(self.end + 1)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.start - 2, 0), self.end + 1))
        self.log.truncate_to(offset, self.now_ms)
        self._cut(offset)
        assert self.log.log_end_offset == self.end

    def _cut(self, offset: int) -> None:
        """Truncate the model to `offset`."""
        if offset >= self.end:
            return
        if offset <= self.start:
            self.batches.clear()
            self.forgotten = ProducerStates().snapshot().encode()
            self.start = self.end = offset
        else:
            while self.batches and self.batches[-1].next_offset > offset:
                self.batches.pop()
            last = self.batches[-1].next_offset if self.batches else 0
            self.end = max(self.start, min(offset, last))
        self.synced = min(self.synced, self.end)
        self.saved_start = self.start
        self._resequence()

    def _resequence(self) -> None:
        """Let producers continue from what the log knows about them."""
        self.sequences = {
            info.producer_id: info.last_sequence + 1 for info in self.log.producers.describe()
        }

    # -- the end of the world --------------------------------------------------------------------

    @rule()
    def close_and_open(self) -> None:
        self.log.close(self.end)
        assert self.disk.open_descriptors == 0
        last = self.log.state.segments[-1:]
        hole = any(len(self.disk.contents(f"{DIRECTORY}/{s.name}")) > s.size for s in last)
        self.open()
        assert self.log.report.clean != hole
        self.synced, self.saved_start = self.end, self.start

    @rule()
    def close_and_distrust(self) -> None:
        self.log.close(self.end)
        self.log = Log.open(DIRECTORY, CONFIG, self.disk, now_ms=self.now_ms, clean=False)
        self.synced, self.saved_start = self.end, self.start

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.open()
        assert self.saved_start <= self.log.log_start_offset <= self.start
        self.start = self.log.log_start_offset

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        self.disk.crash(random.Random(seed))
        self._find_less()

    def _find_less(self) -> None:
        """Open a log that may have lost what was not flushed."""
        self.served.clear()
        self.synced = min(self.synced, self.end)
        self.open()
        start, end = self.log.log_start_offset, self.log.log_end_offset
        assert self.saved_start <= start <= self.start
        assert min(self.synced, self.end) <= end <= self.end or end == start
        if not self.log.segments and self.synced < start:
            # Deleted records went with their writers. What is known of those may be older.
            self.batches.clear()
            self.forgotten = self.log.producers.snapshot().encode()
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.start, self.end = start, end
        self._resequence()

    @rule()
    def lose_what_can_be_made_again(self) -> None:
        self.log.close(self.end)
        for name in self.disk.listdir(str(DIRECTORY)):
            if name.endswith(".index"):
                self.disk.unlink(f"{DIRECTORY}/{name}")
        self.open()

    # -- faults --------------------------------------------------------------------------------

    @rule(room=st.integers(0, 3), size=st.integers(600, 2_500))
    def full_disk(self, room: int, size: int) -> None:
        self.disk.capacity = self.disk.used_bytes + room * self.disk.block
        batch = self._batch(1, size, 0, -1)
        needs = len(batch) > room * self.disk.block + self.disk.block
        try:
            self.log.append(batch, read_header(batch), self.epoch, self.now_ms)
            assert not needs
            self._appended(bytes(batch), self.end)
        except KafkaStorageError:
            assert not self.log.offline
        self.disk.heal()
        assert self.log.log_end_offset == self.end

    @rule(
        call=st.sampled_from(["pwritev", "fdatasync", "fsync_dir"]),
        path=st.sampled_from(["", str(DIRECTORY)]),
        seed=st.integers(0, 2**32),
    )
    def broken_disk(self, call: str, path: str, seed: int) -> None:
        batch = self._batch(1, 10, 0, -1)
        header = read_header(batch)
        if call != "pwritev":
            self.log.append(batch, header, self.epoch, self.now_ms)
            self._appended(bytes(batch), self.end)
        self.disk.fail(call, errno.EIO, path=path)
        if call == "pwritev":
            with pytest.raises(KafkaStorageError):
                self.log.append(batch, header, self.epoch, self.now_ms)
        else:
            job = self.log.flushes.begin()
            job.run()
            with pytest.raises(KafkaStorageError):
                self.log.flushes.end(job)
        assert self.log.offline
        with pytest.raises(KafkaStorageError):
            self.log.append(batch, header, self.epoch, self.now_ms)
        self.log.close()
        if call == "pwritev":
            self.kill()
        elif seed % 2:
            self.crash(seed)
        else:
            self.disk.kill()
            self._find_less()  # memory may have let go of what was not flushed

    @rule(
        call=st.sampled_from(["fdatasync", "rename", "fsync_dir"]),
        skip=st.integers(0, 3),
        in_another_process=st.booleans(),
        seed=st.none() | st.integers(0, 2**32),
    )
    def broken_checkpoint(
        self, call: str, skip: int, in_another_process: bool, seed: int | None
    ) -> None:
        """What the state says must not be taken back once anything was removed for it."""
        job = self.log.checkpoints.begin(self.now_ms, self.end)
        if job is None:
            return
        self.disk.fail(call, errno.EIO, skip=skip)
        job.run()
        if job.failure is None:
            self.disk.heal()
            self.log.checkpoints.end(job)
            self.saved_start = self.start
            self.synced = max(self.synced, self.log.state.recovery_point)
            return
        with pytest.raises(KafkaStorageError):
            self.log.checkpoints.end(job)
        assert self.log.offline
        if not in_another_process:
            self.log.close()
        self.disk.heal()
        if seed is not None:
            self.crash(seed)
        else:
            self.disk.kill()
            self._find_less()

    @precondition(lambda self: self.end > self.start + 1)
    @rule(
        data=st.data(),
        call=st.sampled_from(["open", "pwritev", "rename", "unlink", "fsync_dir"]),
        code=st.sampled_from([errno.ENOSPC, errno.EMFILE]),
        skip=st.integers(0, 9),
    )
    def truncate_without_room(self, data: st.DataObject, call: str, code: int, skip: int) -> None:
        """All is as before, or the log is offline: opening it tells how far the cut came."""
        offset = data.draw(st.integers(self.start + 1, self.end - 1))
        self.disk.fail(call, code, skip=skip)
        try:
            self.log.truncate_to(offset, self.now_ms)
        except KafkaStorageError:
            if self.log.offline:
                self.log.close()
                self.disk.kill()
                kept = [each.next_offset for each in self.batches if each.next_offset <= offset]
                self.synced = min([self.synced, max(kept, default=0)])
                self._find_less()
                self.disk.fsync_dir(str(DIRECTORY))  # what was cut may be back until then
        else:
            self._cut(offset)
        self.disk.heal()

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def flush_is_due_in_time(self) -> None:
        if self.unflushed_ms >= CONFIG.flush_ms and self.log.state.recovery_point < self.end:
            assert self.log.flushes.is_due(self.now_ms)

    @invariant()
    def offsets_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert 0 <= self.log.state.recovery_point <= self.end

    @invariant()
    def what_was_served_stays(self) -> None:
        """Check that a segment's name always means the same bytes, or nothing."""
        names = self.disk.listdir(str(DIRECTORY))
        for (name, position), data in self.served.items():
            if name in names:
                found = self.disk.contents(f"{DIRECTORY}/{name}")
                assert found[position : position + len(data)] == data

    @invariant()
    def few_descriptors(self) -> None:
        assert self.disk.open_descriptors <= 2

    @invariant()
    def producers_agree(self) -> None:
        expected = ProducerStates.restore(self.forgotten)
        assert expected is not None
        for batch in self.batches:
            header = read_header(batch.data)
            if header.producer_id >= 0:
                expected.apply(header, batch.base_offset, batch.data, 0)
        assert _without_times(self.log.producers) == _without_times(expected)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        up_to = data.draw(st.integers(offset, self.end + 1))
        max_bytes = data.draw(st.integers(1, 1_500))
        at_least_one = data.draw(st.booleans())
        self._read(offset, max_bytes, up_to, at_least_one)

    def _read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> int | None:
        found = self.log.read(offset, max_bytes, up_to, at_least_one=at_least_one)
        visible = [
            batch
            for batch in self.batches
            if batch.next_offset > offset and batch.next_offset <= up_to
        ]
        if found is None:
            assert not visible or (len(visible[0].data) > max_bytes and not at_least_one)
            return None
        data = self.disk.contents(f"{DIRECTORY}/{found.segment_id}")
        data = data[found.position : found.position + found.length]
        assert data == self.log.reader.load(found)
        self.served[found.segment_id, found.position] = data
        assert len(data) <= max_bytes or (at_least_one and len(data) == len(visible[0].data))
        count = 0
        while sum(len(batch.data) for batch in visible[:count]) < len(data):
            count += 1
        assert data == b"".join(batch.data for batch in visible[:count])
        assert visible[count - 1].next_offset <= found.next_offset
        assert count == len(visible) or found.next_offset <= visible[count].base_offset
        return found.next_offset

    @rule(max_bytes=st.integers(1, 2_000))
    def read_all(self, max_bytes: int) -> None:
        offset: int | None = self.start
        last = self.start
        while offset is not None:
            last = offset
            offset = self._read(offset, max_bytes, self.end, True)
        assert not [batch for batch in self.batches if batch.next_offset > last]

    @rule(data=st.data())
    def out_of_range(self, data: st.DataObject) -> None:
        for offset in (self.start - 1, self.end + 1):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100, self.end)

    @rule(ms=st.integers(-30_000, 10_000))
    def timestamps(self, ms: int) -> None:
        records = [
            (record.offset, record.timestamp, batch.epoch)
            for batch in self.batches
            for record in batch.records
            if record.offset >= self.start
        ]
        asked = self.now_ms + ms
        assert looked_up(self.log, asked) == next(
            (each for each in records if each[1] >= asked), None
        )
        largest = max((each[1] for each in records), default=0)
        assert looked_up(self.log, None) == next(
            (each for each in records if each[1] == largest), None
        )

    @rule(data=st.data())
    def transactions(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        end = data.draw(st.integers(offset, self.end))
        ongoing, aborted = transactions_of(self.batches)
        stable = min([self.end, *ongoing.values()])
        assert self.log.reader.last_stable_offset(self.end) == max(self.start, stable)
        expected = [t for t in aborted if t.last_offset >= offset and t.first_offset < end]
        assert self.log.reader.aborted_transactions(offset, end) == expected

    @rule(epoch=st.integers(0, 5))
    def epochs(self, epoch: int) -> None:
        live = [batch for batch in self.batches if batch.next_offset > self.start]
        later = [batch for batch in live if batch.epoch > epoch]
        known = [batch.epoch for batch in live]
        answer = self.log.epochs.end_offset_for(epoch, self.end)
        if epoch == max(known, default=-1):
            assert answer == (epoch, self.end)
        elif later and min(known) <= epoch:
            found = max(each for each in known if each <= epoch)
            assert answer == (found, later[0].base_offset)


def _without_times(producers: ProducerStates) -> set[ProducerInfo]:
    return {info._replace(last_seen_ms=0) for info in producers.describe()}


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    report_multiple_bugs=False,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
