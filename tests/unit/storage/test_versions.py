"""Files of other builds: older ones are read, newer ones are refused and left unchanged."""

import pytest

from raylog.storage.checkpoint import (
    CLEANER_KIND,
    HIGH_WATERMARK_KIND,
    PRODUCERS_KIND,
    STATE_KIND,
    NewerVersion,
    encode,
)
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import DIRECTORY, append, batch, checkpoint, flush, open_log

SMALL_FILES = {
    "state": STATE_KIND,
    "high-watermark": HIGH_WATERMARK_KIND,
    "cleaner": CLEANER_KIND,
    "00000000000000000006.producers": PRODUCERS_KIND,
}


@pytest.fixture
def disk() -> FaultyDisk:
    """The disk of a log with six batches of a producer in three segments, closed."""
    disk = FaultyDisk()
    log = open_log(disk, segment_bytes=500)
    for number in range(6):
        append(log, batch(producer_id=1, sequence=number))
    flush(log)
    checkpoint(log)
    log.close()
    return disk


def put(disk: FaultyDisk, name: str, data: bytes) -> None:
    fd = disk.open(f"{DIRECTORY}/{name}", create=True)
    disk.ftruncate(fd, 0)
    disk.pwritev(fd, (data,), 0)
    disk.close(fd)


def files(disk: FaultyDisk) -> dict[str, bytes]:
    names = disk.listdir(str(DIRECTORY))
    return {name: disk.contents(f"{DIRECTORY}/{name}") for name in names}


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_file_of_a_newer_build_is_refused_by_name_and_nothing_is_changed(
    disk: FaultyDisk, name: str
) -> None:
    known = files(disk).get(name)
    put(disk, name, encode(SMALL_FILES[name], 99, {"anything": 1}))
    before = files(disk)
    for _ in range(2):
        with pytest.raises(NewerVersion, match=f"{DIRECTORY}/{name} has version 99, .* knows 1 to"):
            open_log(disk, segment_bytes=500)
        assert files(disk) == before
        assert disk.open_descriptors == 0
    if known is None:
        disk.unlink(f"{DIRECTORY}/{name}")
    else:
        put(disk, name, known)
    log = open_log(disk, segment_bytes=500)
    assert (log.log_end_offset, log.report.clean) == (6, True)


@pytest.mark.parametrize(
    "name", ["00000000000000000006.log3", "6.log", "00000000000000000006-a.log"]
)
def test_segments_of_a_newer_build_are_refused_by_name(disk: FaultyDisk, name: str) -> None:
    put(disk, name, b"")
    before = files(disk)
    if name.endswith(".log"):
        with pytest.raises(KafkaStorageError, match=f"{DIRECTORY}/{name}: no segment"):
            open_log(disk)
    else:
        assert open_log(disk).log_end_offset == 6  # no name of ours
    assert files(disk) == before


def test_an_index_of_a_newer_build_is_made_again(disk: FaultyDisk) -> None:
    name = "00000000000000000002.index"
    data = bytearray(files(disk)[name])
    good = bytes(data)
    data[4] = 99
    put(disk, name, bytes(data))
    log = open_log(disk, segment_bytes=500)
    assert log.log_end_offset == 6
    assert files(disk)[name] == good


def test_a_high_watermark_of_the_first_version_is_read(disk: FaultyDisk) -> None:
    put(disk, "high-watermark", encode(HIGH_WATERMARK_KIND, 1, 4))
    log = open_log(disk, segment_bytes=500)
    assert log.checkpoints.high_watermark_saved == 4
    put(disk, "high-watermark", encode(HIGH_WATERMARK_KIND, 1, "4"))
    assert open_log(disk, segment_bytes=500).checkpoints.high_watermark_saved == 0
