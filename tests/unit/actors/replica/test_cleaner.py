"""Which logs the cleaner of a process takes, and when."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from raylog.actors.config import BrokerConfigs, BrokerSettings, resolve_topic
from raylog.actors.ports import PartitionKey, PartitionLeadership, TopicId
from raylog.actors.replica.cleaner import Cleaner
from raylog.actors.replica.config import CleanerSettings, cleaner_settings, partition_config
from raylog.actors.replica.machine import PartitionMachine
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import Runtime
from raylog.storage.log import Log
from tests.support.disk import FaultyDisk
from tests.support.gateway_world import FakeRuntime, settle
from tests.support.logs import append, checkpoint, contents, flush, keyed
from tests.support.replicas import FakeHost

TOPIC_ID = TopicId(bytes(16))
CLEANED = [2, 3]
"""Offsets that stay of `partition`'s."""


BROKER_KEYS = {
    "producer.id.expiration.ms": "1000",
    "transaction.partition.verification.enable": "true",
}


def partition(disk: FaultyDisk, number: int, policy: str = "compact") -> Partition:
    """A leader of four records of one key, of which the last may not be cleaned."""
    topic = {
        "cleanup.policy": policy,
        "internal.segment.bytes": "10",
        "min.cleanable.dirty.ratio": "0",
    }
    config = partition_config(resolve_topic(topic, BrokerConfigs()) | BROKER_KEYS)
    log = Log.open(Path(f"/p{number}"), config.log, disk, now_ms=0)
    for value in range(4):
        append(log, keyed([(b"k", b"%d" % value)]))
    flush(log)
    checkpoint(log)
    found = Partition(
        (TOPIC_ID, number),
        "t",
        log,
        config,
        PartitionMachine(0, log.log_end_offset),
        FakeHost(),
    )
    found.lead(PartitionLeadership(TOPIC_ID, number, 0, 0, 0, (0,), (0,), {}))
    assert found.high_watermark == 4
    return found


def by_key(*partitions: Partition) -> dict[PartitionKey, Partition]:
    return {each.key: each for each in partitions}


def offsets(one: Partition) -> list[int]:
    return [offset for offset, _, _ in contents(one.log)]


def run_for(ms: int, settings: CleanerSettings, partitions: dict[PartitionKey, Partition]) -> None:
    async def run() -> None:
        runtime = FakeRuntime()
        task = runtime.start(
            Cleaner(cast(Runtime, runtime), settings, partitions).run_forever(), "cleaner"
        )
        await runtime.advance(ms)
        await settle()
        task.cancel()
        assert not runtime.failures

    asyncio.run(run())


def test_compacted_logs_are_cleaned_after_the_backoff() -> None:
    disk = FaultyDisk()
    compacted, both, kept = (
        partition(disk, number, policy)
        for number, policy in enumerate(("compact", "compact,delete", "delete"))
    )
    run_for(999, CleanerSettings(backoff_ms=1_000), by_key(compacted, both, kept))
    assert offsets(compacted) == [0, 1, 2, 3]
    run_for(1_001, CleanerSettings(backoff_ms=1_000), by_key(compacted, both, kept))
    assert offsets(compacted) == offsets(both) == CLEANED
    assert offsets(kept) == [0, 1, 2, 3]


def test_a_cleaner_that_is_switched_off_does_nothing() -> None:
    one = partition(FaultyDisk(), 0)
    run_for(100_000, CleanerSettings(enabled=False), by_key(one))
    assert offsets(one) == [0, 1, 2, 3]


def test_memory_for_one_key_takes_more_rounds_at_once() -> None:
    one = partition(FaultyDisk(), 0)
    run_for(15_001, CleanerSettings(memory_bytes=1), by_key(one))
    assert offsets(one) == CLEANED


def test_a_log_that_fails_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    damaged, sound = partition(disk, 0), partition(disk, 1)
    disk.corrupt(f"/p0/{0:020}.log", 66, b"?")
    with caplog.at_level(logging.ERROR):
        run_for(50_000, CleanerSettings(), by_key(damaged, sound))
    assert offsets(sound) == CLEANED
    assert [record.message for record in caplog.records] == ["cleaning of t-0 failed"]
    assert not damaged.log.busy


def test_a_closed_log_is_let_go() -> None:
    one = partition(FaultyDisk(), 0)
    runtime = FakeRuntime()
    steps = 0

    async def stop_after_first(function: object, *args: object) -> None:
        nonlocal steps
        steps += 1
        assert callable(function)
        function(*args)
        one.log.stop_cleaning()

    runtime.run_blocking = stop_after_first  # type: ignore[method-assign]  # of this one
    assert asyncio.run(Cleaner(cast(Runtime, runtime), CleanerSettings(), by_key(one)).sweep()) == 0
    assert steps == 1
    assert not one.log.busy
    one.close()


def test_settings_are_the_brokers() -> None:
    assert cleaner_settings(BrokerSettings()) == replace(
        CleanerSettings(), bytes_per_second=float("1.7976931348623157E308")
    )
    given = BrokerSettings(
        {
            "log.cleaner.enable": "false",
            "log.cleaner.backoff.ms": "7",
            "log.cleaner.dedupe.buffer.size": "1000",
            "log.cleaner.io.max.bytes.per.second": "2.5",
        }
    )
    assert cleaner_settings(given) == CleanerSettings(False, 7, 1_000, 2.5)


@pytest.mark.parametrize(("policy", "expected"), [("compact", 50), ("delete", 100)])
def test_compacted_segments_are_closed_before_records_wait_too_long(
    policy: str, expected: int
) -> None:
    topic = {"cleanup.policy": policy, "segment.ms": "100", "max.compaction.lag.ms": "50"}
    resolved = resolve_topic(topic, BrokerConfigs()) | BROKER_KEYS
    assert partition_config(resolved).log.segment_ms == expected
