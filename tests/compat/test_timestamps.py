"""Timestamps that earlier commits stored as clients claimed them (`make_timestamps.py`)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from raylog.storage.config import LogConfig
from raylog.storage.disk import OsDisk
from raylog.storage.log import Log
from raylog.testing import EmbeddedBroker
from raylog.wire.records import iter_batches
from tests.compat.make_timestamps import CLAIMS, COMPACTED, HOUR_MS, RECORDS, TIME_MS, TOPIC

ARCHIVES = sorted((Path(__file__).parent / "data").glob("*/timestamps.tar.xz"))
HASTY = {"log.retention.check.interval.ms": "200", "log.cleaner.backoff.ms": "100"}
WAIT_S = 60
RIGHT = [TIME_MS + number * HOUR_MS + RECORDS - 1 for number in range(len(CLAIMS))]


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.parent.name)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.unpack_archive(request.param, tmp_path)
    return tmp_path


@contextmanager
def consuming(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        yield consumer
    finally:
        consumer.close()


def found_by_time(consumer: Consumer, topic: str) -> list[int]:
    """The offset of the first record at or after the last one of each batch."""
    return [
        consumer.offsets_for_times([TopicPartition(topic, 0, at)], timeout=WAIT_S)[0].offset
        for at in RIGHT
    ]


def times(data: Path) -> dict[str, list[int]]:
    """The largest timestamps of all batches by topic, as they are on disk."""
    found = {}
    for directory in data.glob("broker-*/topics/claimed*"):
        log = Log.open(directory, LogConfig(retention_ms=-1), OsDisk(), now_ms=0)
        assert log.state.claims is None
        assert log.log_start_offset == 0
        headers = []
        offset = 0
        while (piece := log.read(offset, 1 << 20, log.log_end_offset)) is not None:
            headers += [header for header, _ in iter_batches(log.reader.load(piece))]
            offset = piece.next_offset
        found[directory.name.split("-0.")[0]] = [header.max_timestamp for header in headers]
        log.close()
    return found


def test_claims_are_corrected_before_anything_expires_by_them(data: Path) -> None:
    expected = [RECORDS * (number + 1) - 1 for number in range(len(RIGHT))]
    deadline = time.monotonic() + WAIT_S
    with EmbeddedBroker(data=data, settings=HASTY) as cluster, consuming(cluster.bootstrap) as own:
        for topic in (TOPIC, COMPACTED):
            while (found := found_by_time(own, topic)) != expected:
                assert time.monotonic() < deadline, found
            assert own.get_watermark_offsets(TopicPartition(topic, 0)) == (0, expected[-1] + 1)
    assert times(data) == {TOPIC: RIGHT, COMPACTED: RIGHT}
    with EmbeddedBroker(data=data, settings=HASTY) as cluster, consuming(cluster.bootstrap) as own:
        assert found_by_time(own, TOPIC) == expected
