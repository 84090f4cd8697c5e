"""Logs and batches for storage tests."""

from collections.abc import Sequence
from pathlib import Path

from raylog.storage.clean_job import CleanJob
from raylog.storage.log import AppendInfo, Log, LogConfig
from raylog.storage.lookup import TimestampOffset
from raylog.storage.segment_work import Pause
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

NOW_MS = 1_700_000_000_000
DIRECTORY = Path("/data/topic-0")


def open_log(disk: FaultyDisk, **settings: int) -> Log:
    """Open the log in `DIRECTORY`, with Kafka's defaults except for `settings`."""
    return Log.open(
        DIRECTORY, LogConfig(delete=True, compact=False, **settings), disk, now_ms=NOW_MS
    )


def batch(
    count: int = 1,
    *,
    size: int = 100,
    timestamp: int = NOW_MS,
    offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> bytearray:
    """Return a batch of `count` records, one ms apart, each with `size` nonzero bytes."""
    records = [
        Record(offset + i, timestamp + i, b"key", b"v" * size, [("end", b"x")])
        for i in range(count)
    ]
    if producer_id < 0:
        return bytearray(encode_batch(records, base_offset=offset, leader_epoch=leader_epoch))
    return bytearray(
        encode_batch(
            records,
            base_offset=offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def marker(
    producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> bytearray:
    """Return the control batch that ends a transaction."""
    return bytearray(
        encode_end_txn_marker(
            EndTxnMarker(commit, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=NOW_MS,
        )
    )


def append(log: Log, data: bytearray, *, epoch: int = 0, now_ms: int = NOW_MS) -> AppendInfo:
    """Append one batch as the leader does."""
    return log.append(memoryview(data), read_header(data), epoch, now_ms)


def flush(log: Log, now_ms: int = NOW_MS) -> None:
    """Flush as a shell does, without the executor."""
    job = log.flushes.begin()
    job.run()
    log.flushes.end(job, now_ms)


def checkpoint(log: Log, now_ms: int = NOW_MS) -> bool:
    """Checkpoint as a shell does; return whether one was due."""
    job = log.checkpoints.begin(now_ms, log.log_end_offset)
    if job is None:
        return False
    job.run()
    log.checkpoints.end(job)
    return True


def keyed(
    pairs: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    sequence: int = 0,
    transactional: bool = False,
) -> bytearray:
    """Return a batch of these keys and values, one ms apart."""
    records = [Record(0, timestamp + i, k, v, []) for i, (k, v) in enumerate(pairs)]
    return bytearray(
        encode_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=transactional,
        )
    )


def begin_clean(
    log: Log,
    now_ms: int = NOW_MS,
    *,
    high_watermark: int | None = None,
    memory_bytes: int = 1_000_000,
    pause: Pause = lambda _: None,
) -> CleanJob | None:
    """Begin to clean all that may be cleaned; return None if nothing is due."""
    end = log.log_end_offset if high_watermark is None else high_watermark
    return log.cleaner.begin_clean(now_ms, end, memory_bytes=memory_bytes, pause=pause, token="t")


def clean_step(log: Log, job: CleanJob, now_ms: int = NOW_MS) -> bool:
    """Run one step of a cleaning, as a shell does; return whether there is another."""
    job.take(job.work.step())
    return log.cleaner.end_clean(job, now_ms)


def clean(
    log: Log, now_ms: int = NOW_MS, *, memory_bytes: int = 1_000_000, upkeep: bool = True
) -> bool:
    """Clean all that may be cleaned, as a shell does; return whether anything was due."""
    if upkeep:
        flush(log, now_ms)
        checkpoint(log, now_ms)
    job = begin_clean(log, now_ms, memory_bytes=memory_bytes)
    while job is not None and clean_step(log, job, now_ms):
        pass
    return job is not None


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of every record except markers, as a consumer reads them."""
    found = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 4_000, log.log_end_offset)) is not None:
        assert piece.next_offset > offset
        for header, data in iter_batches(log.reader.load(piece)):
            records = [] if header.is_control else decode_batch(data)
            found += [(r.offset, r.key, r.value) for r in records if r.offset >= offset]
        offset = piece.next_offset
    return found


def looked_up(log: Log, timestamp: int | None) -> TimestampOffset | None:
    """Return the first record at or after a time in ms; with None, the first of the latest time."""
    job = log.reader.begin_lookup(timestamp)
    job.run()
    assert log.reader.end_lookup(job), "nothing is cleaned meanwhile"
    return job.found


def path(name: str) -> str:
    """Return the path of a file of the log."""
    return f"{DIRECTORY}/{name}"


def names(disk: FaultyDisk, suffix: str) -> list[str]:
    """Return the log's files with a suffix, in order."""
    return sorted(name for name in disk.listdir(str(DIRECTORY)) if name.endswith(suffix))


def put(disk: FaultyDisk, name: str, data: bytes) -> None:
    """Replace the contents of a file."""
    fd = disk.open(path(name), create=True)
    disk.ftruncate(fd, 0)
    disk.pwritev(fd, (data,), 0)
    disk.close(fd)
