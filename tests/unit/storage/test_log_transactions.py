"""What a log knows about transactions, after truncation, retention, kills and long silence."""

from __future__ import annotations

import pytest

from raylog.storage.log import Log
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.log_model import ended_of
from tests.worlds.storage.logs import NOW_MS, append, batch, checkpoint, flush, marker, open_log

OPEN, ABORTED = 5, 6
LATER_MS = NOW_MS + 10**12


def filled(disk: FaultyDisk, segment_bytes: int) -> Log:
    """Producer 6 aborts [0, 3), its marker is 4; producer 5 has begun at 3 and goes on at 5."""
    log = open_log(disk, segment_bytes=segment_bytes)
    for sequence in range(3):
        append(log, batch(producer_id=ABORTED, sequence=sequence, transactional=True))
    append(log, batch(producer_id=OPEN, transactional=True))
    append(log, marker(ABORTED, commit=False))
    append(log, batch(producer_id=OPEN, sequence=1, transactional=True))
    return log


SIZES = pytest.mark.parametrize("segment_bytes", [200, 10_000])
"""A segment for each batch, or one for all."""


@SIZES
def test_a_marker_that_is_cut_off_has_ended_nothing(disk: FaultyDisk, segment_bytes: int) -> None:
    log = filled(disk, segment_bytes)
    assert log.reader.aborted_transactions(0, 6) == [(ABORTED, 0, 4, 3)]
    assert log.reader.last_stable_offset(6) == 3
    log.truncate_to(4, NOW_MS)
    assert log.reader.aborted_transactions(0, 6) == []
    assert log.reader.last_stable_offset(4) == 0
    append(log, marker(ABORTED, commit=True))
    append(log, marker(OPEN, commit=False))
    assert log.reader.aborted_transactions(0, 6) == [(OPEN, 3, 5, 6)]
    assert log.reader.last_stable_offset(6) == 6


@SIZES
def test_truncated_transaction_was_never_begun(disk: FaultyDisk, segment_bytes: int) -> None:
    log = filled(disk, segment_bytes)
    log.truncate_to(3, NOW_MS)
    assert log.producers.transaction_start(OPEN) == -1
    assert log.producers.epoch_of(OPEN) == -1
    assert log.producers.transaction_start(ABORTED) == 0
    disk.kill()
    log = open_log(disk, segment_bytes=segment_bytes)
    assert log.producers.transaction_start(OPEN) == -1
    assert log.reader.last_stable_offset(3) == 0


@SIZES
@pytest.mark.parametrize("killed", [False, True])
def test_a_marker_whose_data_expired_is_reported_with_what_it_aborted(
    disk: FaultyDisk, segment_bytes: int, killed: bool
) -> None:
    log = filled(disk, segment_bytes)
    log.delete_records_to(2)
    checkpoint(log)
    if killed:
        disk.kill()
        log = open_log(disk, segment_bytes=segment_bytes)
    assert log.reader.aborted_transactions(2, 6) == [(ABORTED, 0, 4, 3)]
    assert log.reader.last_stable_offset(6) == 3


@SIZES
def test_a_transaction_outlives_its_records_and_any_silence(
    disk: FaultyDisk, segment_bytes: int
) -> None:
    """Somebody has to end it (KIP-664); until then committed records are read as far as it goes."""
    log = filled(disk, segment_bytes)
    append(log, batch(producer_id=9))
    log.roll_if_due(LATER_MS)
    log.retention(LATER_MS, 7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert [one.producer_id for one in log.producers.describe()] == [OPEN]
    assert log.producers.transaction_start(OPEN) == 3
    assert log.reader.last_stable_offset(7) == 7
    flush(log)
    checkpoint(log)
    disk.kill()
    log = open_log(disk, segment_bytes=segment_bytes)
    assert log.producers.transaction_start(OPEN) == 3
    append(log, batch(producer_id=9))
    assert log.reader.last_stable_offset(8) == 7
    append(log, marker(OPEN, commit=False))
    assert log.reader.last_stable_offset(9) == 9
    assert log.reader.aborted_transactions(7, 9) == [(OPEN, 3, 8, 9)]


def test_a_marker_that_is_not_replicated_holds_back_across_a_restart(disk: FaultyDisk) -> None:
    log = filled(disk, 10_000)
    append(log, marker(OPEN, commit=True))
    log.close(6)
    log = open_log(disk, segment_bytes=10_000)
    assert log.reader.last_stable_offset(6) == 3
    assert log.reader.last_stable_offset(7) == 7


def test_what_ended_is_forgotten_once_it_is_replicated_though_nobody_reads(
    disk: FaultyDisk,
) -> None:
    log = filled(disk, 10_000)
    append(log, marker(OPEN, commit=True))
    for high_watermark, left in ((4, [[0, 4], [3, 6]]), (6, [[3, 6]]), (7, [])):
        assert log.checkpoints.begin(NOW_MS, high_watermark) is not None
        assert ended_of(log.producers) == left
