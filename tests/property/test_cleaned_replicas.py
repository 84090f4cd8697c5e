"""A leader and followers compact at any time and change roles: all serve readers the same."""

import random
from pathlib import Path

import pytest

from raylog.storage.log import Log, LogConfig
from raylog.wire.compression import Codec
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.records import (
    Record,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import clean

CONFIG = LogConfig(
    segment_bytes=350,
    segment_ms=2**40,
    index_interval_bytes=100,
    compact=True,
    min_cleanable_dirty_ratio=0,
    file_delete_delay_ms=0,
)
KEYS = [b"a", b"b", b"c" * 70, b"d", b"e", b"f"]
NOW_MS = 1_000_000
Latest = dict[bytes | None, tuple[int, bytes | None]]


class Replicas:
    """Three logs with one leader. `epochs` maps start offsets to leaders."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disks = [FaultyDisk() for _ in range(3)]
        self.logs = [self._open(number) for number in range(3)]
        self.leader = 0
        self.epoch = 0
        self.epochs: list[tuple[int, int]] = []
        self.latest: Latest = {}
        self.open: dict[int, dict[bytes | None, tuple[int, bytes | None]]] = {}
        self.sequences = dict.fromkeys(range(5), 0)

    def _open(self, number: int) -> Log:
        return Log.open(Path("/p"), CONFIG, self.disks[number], now_ms=NOW_MS)

    def append(self) -> None:
        """Append as one of the producers: 0 is plain, 1 idempotent, 2 to 4 are transactional."""
        rng = self.rng
        producer = rng.randrange(5)
        pairs = [
            (rng.choice(KEYS), rng.choice([None, b"", rng.randbytes(30)]))
            for _ in range(rng.randint(1, 4))
        ]
        base = self._append(
            encode_batch(
                [Record(0, NOW_MS + i, k, v, []) for i, (k, v) in enumerate(pairs)],
                codec=rng.choice(list(Codec)),
                producer_id=producer or -1,
                producer_epoch=0 if producer else -1,
                base_sequence=self.sequences[producer] if producer else -1,
                is_transactional=producer >= 2,
            )
        )
        self.sequences[producer] += len(pairs)
        into = self.open.setdefault(producer, {}) if producer >= 2 else self.latest
        into.update({key: (base + i, value) for i, (key, value) in enumerate(pairs)})

    def end_transaction(self) -> None:
        if not self.open:
            return
        producer = self.rng.choice(list(self.open))
        commit = self.rng.random() < 0.6
        self._append(
            encode_end_txn_marker(
                EndTxnMarker(commit, 0), producer_id=producer, producer_epoch=0, timestamp_ms=NOW_MS
            )
        )
        for key, found in self.open.pop(producer).items():
            if commit and found > self.latest.get(key, (-1, None)):
                self.latest[key] = found

    def _append(self, batch: bytes) -> int:
        log = self.logs[self.leader]
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            log.epochs.assign(self.epoch, log.log_end_offset)
            self.epochs.append((self.epoch, log.log_end_offset))
        data = bytearray(batch)
        return log.append(data, read_header(data), self.epoch, NOW_MS).base_offset

    def fetch(self, number: int, max_bytes: int) -> None:
        """Let a follower fetch once. The fetch may end anywhere in the leader's log."""
        leader, follower = self.logs[self.leader], self.logs[number]
        if number == self.leader:
            return
        end = leader.log_end_offset
        found = leader.read(follower.log_end_offset, max_bytes, end)
        if found is not None:
            before = follower.log_end_offset
            assert before < follower.append_verbatim(leader.reader.load(found), NOW_MS)
            assert follower.log_end_offset <= found.next_offset

    def level(self, number: int) -> None:
        while self.logs[number].log_end_offset < self.logs[self.leader].log_end_offset:
            self.fetch(number, self.rng.choice([1, 200, 1_000]))

    def lead(self, number: int) -> None:
        """Make another replica the leader, which has everything."""
        self.level(number)
        self.leader = number
        self.epoch += 1

    def restart(self, number: int) -> None:
        end = self.logs[number].log_end_offset
        self.disks[number].kill()
        self.logs[number] = self._open(number)
        assert self.logs[number].log_end_offset == end
        assert self.logs[number].state.is_whole

    def step(self) -> None:
        one = self.rng.randrange(3)
        match self.rng.randrange(12):
            case 0:
                clean(self.logs[one], NOW_MS, memory_bytes=self.rng.choice([400, 10**6]))
            case 1 | 2 | 3:
                self.fetch(one, self.rng.choice([1, 300, 2_000]))
            case 4:
                self.end_transaction()
            case 5:
                if self.rng.random() < 0.3:
                    self.lead(one)
            case 6:
                if self.rng.random() < 0.3:
                    self.restart(one)
            case _:
                self.append()

    # -- what must hold ------------------------------------------------------------------------

    def finish(self) -> None:
        """End transactions, synchronize all replicas, and clean everything that may be cleaned."""
        while self.open:
            self.end_transaction()
        for _ in range(2):  # the growing segment is not cleaned: some of these are in another one
            for number in range(8):
                data = encode_batch([Record(0, NOW_MS, b"end%d" % number, b"x" * 90, [])])
                self.latest[b"end%d" % number] = self._append(data), b"x" * 90
        for number, log in enumerate(self.logs):
            self.level(number)
            while clean(log, NOW_MS):
                pass

    def committed(self, log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
        """The records that a read_committed reader gets."""
        records = []
        aborting: set[int] = set()
        offset = log.log_start_offset
        while (found := log.read(offset, 700, log.log_end_offset)) is not None:
            aborted = log.reader.aborted_transactions(offset, found.next_offset)
            for header, batch in iter_batches(log.reader.load(found)):
                for each in aborted:
                    if each.first_offset <= header.last_offset <= each.last_offset:
                        aborting.add(each.producer_id)
                if header.is_control:
                    aborting.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborting):
                    records += [(r.offset, r.key, r.value) for r in decode_batch(batch)]
            offset = found.next_offset
        return records

    def check_epochs(self, log: Log) -> None:
        """Check that batches keep their leader epochs.

        A follower knows only epochs with records.
        """
        offset = log.log_start_offset
        while (found := log.read(offset, 700, log.log_end_offset)) is not None:
            for header, _ in iter_batches(log.reader.load(found)):
                epoch = header.partition_leader_epoch
                assert epoch == max(e for e, start in self.epochs if start <= header.last_offset)
                assert log.epochs.epoch_for(header.last_offset) == epoch
            offset = found.next_offset

    def check(self) -> None:
        views = []
        for log in self.logs:
            records = self.committed(log)
            assert [r[0] for r in records] == sorted({r[0] for r in records})
            views.append({key: (offset, value) for offset, key, value in records})
            stays = {key: each for key, each in self.latest.items() if each[1] is not None}
            kept = {key: each for key, each in views[-1].items() if each[1] is not None}
            assert kept == stays
            closed = [key for offset, key, _ in records if offset < log.cleaner.first_dirty_offset]
            assert len(closed) == len(set(closed))
            self.check_epochs(log)
            known = {each.producer_id: each.last_sequence for each in log.producers.describe()}
            for producer in range(1, 5):
                if self.sequences[producer]:
                    assert known[producer] == self.sequences[producer] - 1
        assert views[0] == views[1] == views[2] == self.latest


@pytest.mark.parametrize("seed", range(12))
def test_replicas_that_clean_at_different_times_agree(seed: int) -> None:
    replicas = Replicas(seed)
    for _ in range(100):
        replicas.step()
    replicas.finish()
    replicas.check()
    for number in range(3):
        before = replicas.committed(replicas.logs[number])
        replicas.restart(number)
        assert replicas.committed(replicas.logs[number]) == before
    replicas.check()
