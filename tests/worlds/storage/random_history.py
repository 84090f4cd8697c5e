"""A log with a random history, and every operation that a shell performs on one."""

from __future__ import annotations

import random
from collections.abc import Callable

from raylog.storage.log import Log, LogConfig
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.records import Record, encode_batch, read_header
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.log_model import LogModel, producers_of, transactions_of
from tests.worlds.storage.logs import DIRECTORY, NOW_MS

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
TAIL: list[tuple[str, bytes | None]] = [("end", b"x")]  # a cut batch is never valid by chance


class RandomHistory:
    """One log with its disk and its model; the same seed gives the same log."""

    def __init__(self, seed: int, disk: FaultyDisk) -> None:
        self.rng = random.Random(seed)
        self.disk = disk
        self.model = LogModel()
        self.now_ms = NOW_MS
        self.epoch = 0
        self.log = self.opened()

    def opened(self) -> Log:
        """Open the log."""
        return Log.open(DIRECTORY, CONFIG, self.disk, now_ms=self.now_ms)

    def live(self, steps: int) -> None:
        """Perform `steps` random operations."""
        names, weights = zip(*WEIGHTS.items(), strict=True)
        for name in self.rng.choices(names, weights, k=steps):
            self.now_ms += self.rng.randrange(20)
            name(self)

    # -- appending -------------------------------------------------------------------------------

    def batch(self, producer: int, offset: int = 0, sequence: int | None = None) -> bytearray:
        """Return a batch of a producer, -1 for none."""
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
        """Return the base sequence of a producer's next batch."""
        for info in producers_of(self.model.batches).describe():
            if info.producer_id == producer:
                return info.last_sequence + 1
        return 0

    def append(self) -> None:
        """Append a batch as a leader does."""
        producer = self.rng.choice((-1, -1, *PRODUCERS))
        ongoing = transactions_of(self.model.batches)[0]
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
        self.model.appended(bytes(data))

    def append_much(self) -> None:
        """Append until a new segment begins."""
        count = self.log.segment_count
        while self.log.segment_count in {0, count}:
            self.append()

    def follow(self) -> None:
        """Append as a follower does: one or more batches, perhaps with a gap in the offsets."""
        gap = self.rng.choice((0, 0, 0, 2))
        batches: list[bytes] = []
        offset = self.model.end + gap
        for _ in range(self.rng.randint(1, 4)):
            producer = self.rng.choice((-1, 1, 3)) if not batches else -1
            batches.append(bytes(self.batch(producer, offset)))
            offset = read_header(batches[-1]).next_offset + gap
        self.log.append_verbatim(b"".join(batches), self.now_ms)
        for batch in batches:
            self.model.appended(batch)

    def lead_anew(self) -> None:
        """Begin another leader epoch."""
        self.epoch += self.rng.randint(1, 2)
        self.append()

    # -- maintenance -----------------------------------------------------------------------------

    def flush(self) -> None:
        """Flush everything."""
        job = self.log.flushes.begin()
        job.run()
        self.log.flushes.end(job, self.now_ms)
        assert self.log.state.recovery_point == self.model.end

    def checkpoint(self) -> None:
        """Save a checkpoint, with a high watermark that has advanced."""
        model = self.model
        reached = model.high_watermark + (model.end - model.high_watermark) // 2
        job = self.log.checkpoints.begin(self.now_ms, reached)
        if job is not None:
            job.run()
            self.log.checkpoints.end(job)
        model.high_watermark = reached
        model.saved_start = model.start
        model.synced = max(model.synced, self.log.state.recovery_point)

    def flush_and_checkpoint(self) -> None:
        """Flush and checkpoint, as maintenance does."""
        self.flush()
        self.checkpoint()

    def roll(self) -> None:
        """Roll the segment by age."""
        self.log.roll_if_due(self.now_ms + 20_000)

    def delete_records(self) -> None:
        """Advance the log start offset."""
        self.model.start = self.rng.randint(
            self.model.start, (self.model.start + self.model.end) // 2
        )
        self.log.delete_records_to(self.model.start)

    def retention(self) -> None:
        """Delete segments by retention."""
        if self.log.retention(self.now_ms, self.model.end):
            self.model.start = self.log.log_start_offset

    def expire(self) -> None:
        """Advance the log start offset, delete segments, and finally their files."""
        self.delete_records()
        self.retention()
        self.checkpoint()
        self.now_ms += 1_000
        self.checkpoint()

    def read(self) -> None:
        """Read everything, as readers do."""
        self.model.check(self.log, self.disk)

    # -- truncation ------------------------------------------------------------------------------

    def cut(self, offset: int) -> None:
        """Truncate as a follower whose leader has other records from `offset` on."""
        self.log.truncate_to(offset, self.now_ms)
        self.model.cut(offset)

    def cut_anywhere(self) -> None:
        """Truncate at any offset."""
        self.cut(self.rng.randint(max(self.model.start - 1, 0), self.model.end + 1))

    def cut_at_a_segment(self) -> None:
        """Remove whole segments, if there is more than one."""
        bases = [int(name[:20]) for name in self.log.segments]
        self.cut(
            self.rng.choice([b for b in bases if b > self.model.start] or [self.model.end - 1])
        )

    def cut_at_the_start(self) -> None:
        """Truncate everything."""
        self.cut(self.model.start)

    def cut_the_last_batch(self) -> None:
        """Truncate the last batch only."""
        self.cut(self.model.end - 1)

    def begin_anew(self) -> None:
        """Begin anew, as a follower whose leader shares no records with it."""
        self._begin_anew(self.model.end + self.rng.randrange(20))

    def begin_anew_before(self) -> None:
        """Begin anew at an offset that the log has."""
        self._begin_anew(self.rng.randint(self.model.start, self.model.end))

    def _begin_anew(self, offset: int) -> None:
        self.log.truncate_fully(offset)
        self.model.cut(offset, anew=True)

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the log."""
        self.log.close(self.model.high_watermark)
        self.model.synced, self.model.saved_start = self.model.end, self.model.start

    def close_and_open(self) -> None:
        """Close and reopen the log, as a process that is stopped and started."""
        self.close()
        self.log = self.opened()

    def kill_and_open(self) -> None:
        """Reopen the log after a kill of the process."""
        self.disk.kill()
        self.log = self.opened()
        self.model.start = self.log.log_start_offset


Step = Callable[[RandomHistory], None]
WEIGHTS: dict[Step, int] = {
    RandomHistory.append: 12,
    RandomHistory.follow: 8,
    RandomHistory.lead_anew: 3,
    RandomHistory.flush: 3,
    RandomHistory.checkpoint: 4,
    RandomHistory.roll: 1,
    RandomHistory.delete_records: 1,
    RandomHistory.retention: 2,
    RandomHistory.read: 1,
    RandomHistory.cut_anywhere: 1,
    RandomHistory.close_and_open: 1,
    RandomHistory.kill_and_open: 1,
}
STEPS: list[Step] = [
    RandomHistory.append_much,
    RandomHistory.follow,
    RandomHistory.flush,
    RandomHistory.checkpoint,
    RandomHistory.flush_and_checkpoint,
    RandomHistory.expire,
    RandomHistory.cut_anywhere,
    RandomHistory.cut_at_a_segment,
    RandomHistory.cut_at_the_start,
    RandomHistory.cut_the_last_batch,
    RandomHistory.begin_anew,
    RandomHistory.begin_anew_before,
    RandomHistory.close_and_open,
    RandomHistory.kill_and_open,
]
"""The steps in which a fault may occur."""
