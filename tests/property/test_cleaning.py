"""Compaction against a dictionary, with any appends, cleanings, truncations and reopenings."""

import random
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.storage.index import AbortedTransaction
from raylog.storage.log import Log, LogConfig
from raylog.storage.segment import Slice
from raylog.wire.compression import Codec
from raylog.wire.control import EndTxnMarker, decode_end_txn_marker, encode_end_txn_marker
from raylog.wire.records import (
    BatchHeader,
    Record,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import checkpoint, clean, flush, looked_up

DIRECTORY = Path("/p")
RETENTION_MS = 1_000
DELETE_DELAY_MS = 10
KEYS = [b"a", b"b", b"c" * 64, b"c" * 65, b"d" * 90, b"e", b"f"]
CONFIG = LogConfig(
    segment_bytes=300,
    segment_ms=2**40,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=DELETE_DELAY_MS,
    index_checkpoint_bytes=300,
)


class Written(NamedTuple):
    """A record as it was appended; `producer` is -1 outside transactions."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    producer: int


class SlowReader:
    """Reads committed records step by step. What it located may be cleaned before it reads it."""

    def __init__(self) -> None:
        self.position = 0
        self.asked: tuple[int, Slice, list[AbortedTransaction]] | None = None
        self.aborting: set[int] = set()
        self.seen: list[Record] = []

    def ask(self, log: Log, end: int, now_ms: int) -> None:
        """Find what comes next, as a fetch does."""
        found = log.read(self.position, 400, log.reader.last_stable_offset(end))
        if found is not None:
            aborted = log.reader.aborted_transactions(self.position, found.next_offset)
            self.asked = now_ms, found, aborted

    def get(self, disk: FaultyDisk, now_ms: int) -> None:
        """Read the segment file, which stays for a while after it was replaced."""
        assert self.asked is not None
        asked_ms, found, aborted = self.asked
        self.asked = None
        if now_ms > asked_ms + DELETE_DELAY_MS:
            return
        handle = disk.open(f"{DIRECTORY}/{found.segment_id}")
        data = disk.pread(handle, found.length, found.position)
        disk.close(handle)
        self.seen += [
            record
            for record in committed_records(data, aborted, self.aborting)
            if record.offset >= self.position
        ]
        self.position = found.next_offset


def committed_records(
    data: bytes, aborted: list[AbortedTransaction], aborting: set[int]
) -> list[Record]:
    """What a read_committed reader takes from a slice. `aborting` is passed to the next call."""
    records: list[Record] = []
    for header, batch in iter_batches(data):
        for each in aborted:
            if each.first_offset <= header.last_offset <= each.last_offset:
                aborting.add(each.producer_id)
        if header.is_control:
            if header.record_count:
                assert decode_end_txn_marker(decode_batch(batch)[0]) is not None
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            records += decode_batch(batch)
    return records


class CleanedLog(RuleBasedStateMachine):
    """`written` has everything that was appended and not truncated, without aborted records."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.written: dict[int, Written] = {}
        self.open_since: dict[int, list[int]] = {}  # producer -> offsets of its transaction
        self.sequences: dict[int, int] = {}
        self.cleaned_ms: dict[int, int] = {}  # offset of a tombstone -> when it was first cleaned
        self.now_ms = 1_000_000
        self.end = 0
        self.dirty = 0  # nothing from here on was ever cleaned
        self.reader = SlowReader()

    @initialize()
    def open(self) -> None:
        self.log = Log.open(DIRECTORY, CONFIG, self.disk, now_ms=self.now_ms)
        self.reader.asked = None

    # -- appending -----------------------------------------------------------------------------

    @rule(
        pairs=st.lists(
            st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=40)),
            min_size=1,
            max_size=5,
        ),
        producer=st.integers(-2, 3),
        codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
        age_ms=st.integers(-500, 500) | st.just(2**61),
    )
    def append(
        self,
        pairs: list[tuple[bytes, bytes | None]],
        producer: int,
        codec: Codec,
        age_ms: int,
    ) -> None:
        records = [
            Record(0, self.now_ms - age_ms * i, key, value, [("h", b"x")])
            for i, (key, value) in enumerate(pairs)
        ]
        transactional = producer >= 2
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=max(producer, -1),
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequences.get(producer, 0) if producer >= 0 else -1,
            is_transactional=transactional,
        )
        base = self._append(batch)
        self.sequences[producer] = self.sequences.get(producer, 0) + len(pairs)
        for i, record in enumerate(records):
            self.written[base + i] = Written(
                base + i,
                record.key,
                record.value,
                record.timestamp,
                producer if transactional else -1,
            )
        if transactional:
            self.open_since.setdefault(producer, []).extend(range(base, self.end))

    @rule(seed=st.integers(0, 2**32), count=st.integers(3, 15))
    def append_many(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            producer = rng.choice([-1, -1, 0, 1, 2, 3])
            if producer >= 2 and rng.random() < 0.3:
                self.end_transaction(producer, rng.random() < 0.5)
            pairs = [
                (rng.choice(KEYS), rng.choice([None, b"", rng.randbytes(20)]))
                for _ in range(rng.randint(1, 4))
            ]
            codec = rng.choice([Codec.NONE, Codec.LZ4])
            self.append(pairs, producer, codec, rng.randint(-500, 500))
        for producer in list(self.open_since):
            if rng.random() < 0.8:
                self.end_transaction(producer, rng.random() < 0.5)

    def _append(self, batch: bytes) -> int:
        data = bytearray(batch)
        info = self.log.append(data, read_header(data), 0, self.now_ms)
        self.end = info.next_offset
        return info.base_offset

    @rule(producer=st.integers(2, 3), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self._append(
            encode_end_txn_marker(
                EndTxnMarker(commit, 0),
                producer_id=producer,
                producer_epoch=0,
                timestamp_ms=self.now_ms,
            )
        )
        for offset in self.open_since.pop(producer, []):
            if not commit:
                del self.written[offset]

    @rule(ms=st.integers(0, RETENTION_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    # -- a reader in the middle ----------------------------------------------------------------

    @rule()
    def reader_asks(self) -> None:
        self.reader.ask(self.log, self.end, self.now_ms)

    @precondition(lambda self: self.reader.asked is not None)
    @rule()
    def reader_gets(self) -> None:
        self.reader.get(self.disk, self.now_ms)

    @rule()
    def cleaned_between_its_question_and_the_answer(self) -> None:
        self.reader_asks()
        self.clean(1_000)
        checkpoint(self.log, self.now_ms)
        if self.reader.asked is not None:
            self.reader_gets()

    # -- cleaning and other upkeep -------------------------------------------------------------

    @rule(keys=st.sampled_from([1, 3, 1_000]))
    def clean(self, keys: int) -> None:
        if clean(self.log, self.now_ms, memory_bytes=200 * keys):
            self.dirty = max(self.dirty, self.log.cleaner.first_dirty_offset)
            for offset, record in self.written.items():
                if record.value is None and offset < self.log.cleaner.first_dirty_offset:
                    self.cleaned_ms.setdefault(offset, self.now_ms)
            self.readers_see_the_latest_of_each_key()

    @rule()
    def close_and_open(self) -> None:
        self.log.close(self.end)
        assert self.disk.open_descriptors == 0
        self.open()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.open()

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        flush(self.log)
        self.disk.crash(random.Random(seed))
        self.open()

    @rule()
    def lose_what_can_be_made_again(self) -> None:
        self.log.close(self.end)
        for name in self.disk.listdir(str(DIRECTORY)):
            if name.endswith((".index", "cleaner")):
                self.disk.unlink(f"{DIRECTORY}/{name}")
        self.open()

    @precondition(lambda self: not self.open_since)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.dirty, self.end))
        if any(batch.base_offset >= offset and batch.is_control for batch in self._headers()):
            return  # what a marker decided would have to be taken back
        self.log.truncate_to(offset, self.now_ms)
        if self.reader.position > offset:
            self.reader = SlowReader()  # it read what was not committed
        self.reader.asked = None
        self.end = self.log.log_end_offset
        self.written = {each: self.written[each] for each in self.written if each < self.end}
        self.sequences = {
            each.producer_id: each.last_sequence + 1 for each in self.log.producers.describe()
        }

    def teardown(self) -> None:
        self.the_reader_in_the_middle_has_the_latest_of_each_key()
        self.readers_see_the_latest_of_each_key()
        self.times_lead_to_records()

    # -- what always holds ---------------------------------------------------------------------

    def _headers(self) -> list[BatchHeader]:
        headers: list[BatchHeader] = []
        offset = self.log.log_start_offset
        while (found := self.log.read(offset, 900, self.end)) is not None:
            headers += [header for header, _ in iter_batches(self.log.reader.load(found))]
            offset = found.next_offset
        return headers

    def _committed(self) -> list[Record]:
        """What a read_committed reader gets, using the list of aborted transactions."""
        records: list[Record] = []
        offset = self.log.log_start_offset
        stable = self.log.reader.last_stable_offset(self.end)
        aborting: set[int] = set()
        while (found := self.log.read(offset, 900, stable)) is not None:
            aborted = self.log.reader.aborted_transactions(offset, found.next_offset)
            records += committed_records(self.log.reader.load(found), aborted, aborting)
            offset = found.next_offset
        return records

    @rule()
    def readers_see_the_latest_of_each_key(self) -> None:
        found = self._committed()
        stable = self.log.reader.last_stable_offset(self.end)
        expected = {o: each for o, each in self.written.items() if o < stable}
        for record in found:
            original = expected[record.offset]
            assert (record.key, record.value) == (original.key, original.value)
            assert record.timestamp == original.timestamp
            assert record.headers == [("h", b"x")]
        offsets = {record.offset for record in found}
        latest = {each.key: each for each in expected.values()}
        for each in latest.values():
            seen_ms = self.cleaned_ms.get(each.offset, self.now_ms)
            is_late = self.now_ms >= seen_ms + RETENTION_MS or each.timestamp < 0
            may_be_gone = each.value is None and is_late
            assert each.offset in offsets or may_be_gone
        assert {each for each in expected if each >= self.dirty} <= offsets
        cleaned = [r.key for r in found if r.offset < self.log.cleaner.first_dirty_offset]
        assert len(cleaned) == len(set(cleaned))

    def the_reader_in_the_middle_has_the_latest_of_each_key(self) -> None:
        reader, stable = self.reader, self.log.reader.last_stable_offset(self.end)
        reader.asked = None
        while reader.position < stable:
            reader.ask(self.log, self.end, self.now_ms)
            reader.get(self.disk, self.now_ms)
        offsets = [record.offset for record in reader.seen]
        assert offsets == sorted(set(offsets))
        for record in reader.seen:
            original = self.written[record.offset]
            assert (record.key, record.value) == (original.key, original.value)
        latest = {each.key: each for each in self.written.values() if each.offset < stable}
        seen = {record.key: record for record in reader.seen}
        for each in latest.values():
            seen_ms = self.cleaned_ms.get(each.offset, self.now_ms)
            is_early = self.now_ms < seen_ms + RETENTION_MS and each.timestamp >= 0
            if each.value is not None or is_early:
                assert seen[each.key].offset == each.offset

    @invariant()
    def offsets_and_producers_go_on(self) -> None:
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == 0
        known = {each.producer_id: each for each in self.log.producers.describe()}
        for producer, sequence in self.sequences.items():
            if producer >= 0:
                assert known[producer].last_sequence == sequence - 1
        assert set(self.open_since) == {
            each.producer_id for each in known.values() if each.transaction_start_offset >= 0
        }

    @rule()
    def times_lead_to_records(self) -> None:
        records = [r for h in self._all() for r in h]
        newest = max((record.timestamp for record in records), default=0)
        for timestamp in (newest, newest - 300):
            first = next((r for r in records if r.timestamp >= timestamp), None)
            found = looked_up(self.log, timestamp)
            assert (found and found.offset) == (first and first.offset)
        newest_found = looked_up(self.log, None)
        assert (newest_found and newest_found.timestamp) == (newest if records else None)

    def _all(self) -> list[list[Record]]:
        batches = []
        offset = self.log.log_start_offset
        while (found := self.log.read(offset, 2_000, self.end)) is not None:
            batches += [
                decode_batch(batch) for _, batch in iter_batches(self.log.reader.load(found))
            ]
            offset = found.next_offset
        return batches


TestCleanedLog = CleanedLog.TestCase
TestCleanedLog.settings = settings(
    report_multiple_bugs=False,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
