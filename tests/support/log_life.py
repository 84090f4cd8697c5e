"""A log that has seen much, by chance, and everything that a shell does to one."""

from __future__ import annotations

import random
from collections.abc import Callable

from raylog.storage.log import Log, LogConfig
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.records import Record, encode_batch, read_header
from tests.support.disk import FaultyDisk
from tests.support.log_book import LogBook, producers_of, transactions_of
from tests.support.logs import DIRECTORY, NOW_MS

CONFIG = LogConfig(
    segment_bytes=900,
    segment_ms=5_000,
    index_interval_bytes=150,
    retention_ms=-1,
    retention_bytes=4_500,
    file_delete_delay_ms=30,
    index_checkpoint_bytes=400,
)
TRANSACTIONAL = (3, 4)
PRODUCERS = (1, 2, *TRANSACTIONAL)
TAIL: list[tuple[str, bytes | None]] = [("end", b"x")]  # a batch cut short is never whole by chance


class LogLife:
    """One log with its disk and its book; the same seed leads to the same log."""

    def __init__(self, seed: int, disk: FaultyDisk) -> None:
        self.rng = random.Random(seed)
        self.disk = disk
        self.book = LogBook()
        self.now_ms = NOW_MS
        self.epoch = 0
        self.log = self.opened()

    def opened(self) -> Log:
        """The log as it is found."""
        return Log.open(DIRECTORY, CONFIG, self.disk, now_ms=self.now_ms)

    def live(self, steps: int) -> None:
        """Do anything, so often."""
        names, weights = zip(*WEIGHTS.items(), strict=True)
        for name in self.rng.choices(names, weights, k=steps):
            self.now_ms += self.rng.randrange(20)
            name(self)

    # -- appending -------------------------------------------------------------------------------

    def batch(self, producer: int, offset: int = 0, sequence: int | None = None) -> bytearray:
        """A batch of a producer, -1 for none."""
        rng = self.rng
        size = rng.choice((0, 20, 60, 150))
        records = [
            Record(offset + i, self.now_ms + rng.randrange(30), None, b"v" * size, TAIL)
            for i in range(rng.randint(1, 4))
        ]
        if producer < 0:
            return bytearray(encode_batch(records, base_offset=offset, leader_epoch=self.epoch))
        if sequence is None:
            sequence = self.next_sequence(producer)
        return bytearray(
            encode_batch(
                records,
                base_offset=offset,
                leader_epoch=self.epoch,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=producer in TRANSACTIONAL,
            )
        )

    def next_sequence(self, producer: int) -> int:
        """With which the next batch of a producer begins."""
        for info in producers_of(self.book.batches).describe():
            if info.producer_id == producer:
                return info.last_sequence + 1
        return 0

    def append(self) -> None:
        """As a leader."""
        producer = self.rng.choice((-1, -1, *PRODUCERS))
        ongoing = transactions_of(self.book.batches)[0]
        if producer in ongoing and self.rng.random() < 0.5:
            marker = EndTxnMarker(self.rng.random() < 0.4, 0)
            data = bytearray(
                encode_end_txn_marker(
                    marker, producer_id=producer, producer_epoch=0, timestamp_ms=self.now_ms
                )
            )
        else:
            data = self.batch(producer)
        self.log.append(data, read_header(data), self.epoch, self.now_ms)
        self.book.appended(bytes(data))

    def append_much(self) -> None:
        """Until another segment begins."""
        count = self.log.segment_count
        while self.log.segment_count in {0, count}:
            self.append()

    def follow(self) -> None:
        """As a follower: one or more batches, some offsets may be missing."""
        gap = self.rng.choice((0, 0, 0, 2))
        batches: list[bytes] = []
        offset = self.book.end + gap
        for _ in range(self.rng.randint(1, 4)):
            producer = self.rng.choice((-1, 1, 3)) if not batches else -1
            batches.append(bytes(self.batch(producer, offset)))
            offset = read_header(batches[-1]).next_offset + gap
        self.log.append_verbatim(b"".join(batches), self.now_ms)
        for batch in batches:
            self.book.appended(batch)

    def lead_anew(self) -> None:
        """Another leader epoch."""
        self.epoch += self.rng.randint(1, 2)
        self.append()

    # -- upkeep ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make all durable."""
        job = self.log.begin_flush()
        job.run()
        self.log.end_flush(job, self.now_ms)
        assert self.log.recovery_point == self.book.end

    def checkpoint(self) -> None:
        """Save the state, with a high watermark that has moved on."""
        book = self.book
        reached = book.high_watermark + (book.end - book.high_watermark) // 2
        job = self.log.begin_checkpoint(self.now_ms, reached)
        if job is not None:
            job.run()
            self.log.end_checkpoint(job)
        book.high_watermark = reached
        book.saved_start = book.start
        book.synced = max(book.synced, self.log.recovery_point)

    def flush_and_checkpoint(self) -> None:
        """As upkeep does."""
        self.flush()
        self.checkpoint()

    def roll(self) -> None:
        """Begin another segment by age."""
        self.log.roll_if_due(self.now_ms + 20_000)

    def delete_records(self) -> None:
        """Move the log start up."""
        self.book.start = self.rng.randint(self.book.start, (self.book.start + self.book.end) // 2)
        self.log.delete_records_to(self.book.start)

    def retention(self) -> None:
        """Let go of segments."""
        if self.log.retention(self.now_ms, self.book.end):
            self.book.start = self.log.log_start_offset

    def expire(self) -> None:
        """Delete records, let go of their segments, and of the files in the end."""
        self.delete_records()
        self.retention()
        self.checkpoint()
        self.now_ms += 1_000
        self.checkpoint()

    def read(self) -> None:
        """Look at everything, as readers do."""
        self.book.check(self.log, self.disk)

    # -- truncation ------------------------------------------------------------------------------

    def cut(self, offset: int) -> None:
        """As a follower whose leader has other records from `offset` on."""
        self.log.truncate_to(offset, self.now_ms)
        self.book.cut(offset)

    def cut_anywhere(self) -> None:
        """At any offset."""
        self.cut(self.rng.randint(max(self.book.start - 1, 0), self.book.end + 1))

    def cut_at_a_segment(self) -> None:
        """Whole segments go, if there are more than one."""
        bases = [int(name[:20]) for name in self.log.segments]
        self.cut(self.rng.choice([b for b in bases if b > self.book.start] or [self.book.end - 1]))

    def cut_at_the_start(self) -> None:
        """Nothing is left."""
        self.cut(self.book.start)

    def cut_the_last_batch(self) -> None:
        """The least that can be."""
        self.cut(self.book.end - 1)

    def begin_anew(self) -> None:
        """As a follower whose leader has nothing in common with it."""
        self._begin_anew(self.book.end + self.rng.randrange(20))

    def begin_anew_before(self) -> None:
        """The same, at an offset that the log has."""
        self._begin_anew(self.rng.randint(self.book.start, self.book.end))

    def _begin_anew(self, offset: int) -> None:
        self.log.truncate_fully(offset)
        self.book.cut(offset, anew=True)

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close."""
        self.log.close(self.book.high_watermark)
        self.book.synced, self.book.saved_start = self.book.end, self.book.start

    def close_and_open(self) -> None:
        """As a process that is stopped and started."""
        self.close()
        self.log = self.opened()

    def kill_and_open(self) -> None:
        """As a process that is lost and started."""
        self.disk.kill()
        self.log = self.opened()
        self.book.start = self.log.log_start_offset


Step = Callable[[LogLife], None]
WEIGHTS: dict[Step, int] = {
    LogLife.append: 12,
    LogLife.follow: 8,
    LogLife.lead_anew: 3,
    LogLife.flush: 3,
    LogLife.checkpoint: 4,
    LogLife.roll: 1,
    LogLife.delete_records: 1,
    LogLife.retention: 2,
    LogLife.read: 1,
    LogLife.cut_anywhere: 1,
    LogLife.close_and_open: 1,
    LogLife.kill_and_open: 1,
}
STEPS: list[Step] = [
    LogLife.append_much,
    LogLife.follow,
    LogLife.flush,
    LogLife.checkpoint,
    LogLife.flush_and_checkpoint,
    LogLife.expire,
    LogLife.cut_anywhere,
    LogLife.cut_at_a_segment,
    LogLife.cut_at_the_start,
    LogLife.cut_the_last_batch,
    LogLife.begin_anew,
    LogLife.begin_anew_before,
    LogLife.close_and_open,
    LogLife.kill_and_open,
]
"""In which a fault may come."""
