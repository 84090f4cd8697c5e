"""The file that names the owner of a log directory."""

import errno
import json
import random
from dataclasses import astuple

import pytest

from raylog.storage.layout import PARTITION_FILE
from raylog.storage.partition_file import (
    PartitionFile,
    PartitionFileDamaged,
    TopicNote,
    read_partition_file,
    write_partition_file,
)
from raylog.wire.errors import KafkaStorageError
from tests.worlds.storage.disk import FaultyDisk

DIRECTORY = "/topics/orders-3"
PATH = f"{DIRECTORY}/{PARTITION_FILE}"
NOTED = TopicNote(6, 7, 1_000)
FILE = PartitionFile("orders", bytes(range(16)), 3, {"retention.ms": "5"}, noted=NOTED)
AS_WRITTEN = """{
 "version": 2,
 "topic": "orders",
 "topic_id": "AAECAwQFBgcICQoLDA0ODw",
 "partition": 3,
 "settings": {
  "retention.ms": "5"
 },
 "begun_anew": false,
 "partitions": 6,
 "metadata_epoch": 7,
 "metadata_offset": 1000
}"""
VERSION_1 = """{
 "version": 1,
 "topic": "orders",
 "topic_id": "AAECAwQFBgcICQoLDA0ODw",
 "partition": 3,
 "settings": {
  "retention.ms": "5"
 },
 "begun_anew": true
}"""


def put(disk: FaultyDisk, text: str) -> None:
    disk.mkdir(DIRECTORY)
    fd = disk.open(PATH, create=True)
    disk.ftruncate(fd, 0)
    disk.pwritev(fd, [text.encode()], 0)
    disk.close(fd)


def test_partition_file_round_trips_as_readable_text() -> None:
    disk = FaultyDisk()
    disk.mkdir(DIRECTORY)
    assert read_partition_file(disk, DIRECTORY) is None
    write_partition_file(disk, DIRECTORY, FILE)
    assert read_partition_file(disk, DIRECTORY) == FILE
    assert disk.contents(PATH).decode() == AS_WRITTEN
    assert disk.open_descriptors == 0


def test_partition_file_survives_a_power_loss() -> None:
    for seed in range(20):
        disk = FaultyDisk()
        disk.mkdir(DIRECTORY)
        disk.fsync_dir("/topics")
        write_partition_file(disk, DIRECTORY, FILE)
        disk.crash(random.Random(seed))
        assert read_partition_file(disk, DIRECTORY) == FILE


def test_a_file_of_version_1_says_neither_how_many_partitions_nor_since_when() -> None:
    disk = FaultyDisk()
    put(disk, VERSION_1)
    read = read_partition_file(disk, DIRECTORY)
    assert read is not None
    assert astuple(read.noted) == (0, -1, 0)
    assert (read.settings, read.begun_anew) == ({"retention.ms": "5"}, True)


def test_a_newer_format_is_refused_by_name() -> None:
    disk = FaultyDisk()
    put(disk, AS_WRITTEN.replace('"version": 2', '"version": 3'))
    expected = f"{PATH} has format 3, this build knows 2"
    with pytest.raises(KafkaStorageError, match=expected) as refused:
        read_partition_file(disk, DIRECTORY)
    assert not isinstance(refused.value, PartitionFileDamaged)


def test_a_newer_format_is_refused_whatever_else_it_says() -> None:
    disk = FaultyDisk()
    put(disk, '{"version": 7, "partitions": []}')
    with pytest.raises(KafkaStorageError, match="has format 7, this build knows 2"):
        read_partition_file(disk, DIRECTORY)


GOOD = json.loads(AS_WRITTEN)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "7", "\x00" * 40, AS_WRITTEN[:50]),
        *(
            json.dumps(GOOD | wrong)
            for wrong in (
                {"version": "1"},
                {"version": True},
                {"topic": 7},
                {"topic_id": "short"},
                {"topic_id": 7},
                {"partition": "3"},
                {"partition": None},
                {"settings": {"retention.ms": 5}},
                {"settings": ["retention.ms"]},
                {"settings": None},
                {"begun_anew": 0},
                {"partitions": "6"},
                {"metadata_epoch": True},
                {"metadata_offset": None},
            )
        ),
        *(json.dumps({k: v for k, v in GOOD.items() if k != gone}) for gone in GOOD),
    ],
)
def test_a_damaged_file_is_distinguished(text: str) -> None:
    disk = FaultyDisk()
    put(disk, text)
    with pytest.raises(PartitionFileDamaged) as damaged:
        read_partition_file(disk, DIRECTORY)
    assert str(damaged.value).startswith(f"{PATH} is damaged: it begins with b'")


@pytest.mark.parametrize("call", ["open", "pwritev", "fdatasync", "rename"])
def test_a_file_that_cannot_be_written_leaves_the_one_before(call: str) -> None:
    disk = FaultyDisk()
    disk.mkdir(DIRECTORY)
    write_partition_file(disk, DIRECTORY, FILE)
    disk.fail(call, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        write_partition_file(disk, DIRECTORY, PartitionFile("orders", FILE.topic_id, 3))
    assert read_partition_file(disk, DIRECTORY) == FILE
