"""What the retention sweep does to logs, whatever their `cleanup.policy`."""

import asyncio
from copy import copy
from pathlib import Path
from typing import cast

import pytest

from raylog.actors.config import BrokerConfigs, resolve_topic
from raylog.actors.ports import PartitionLeadership, TopicId
from raylog.actors.replica.config import partition_config
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.machine import PartitionMachine
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.upkeep import SWEEP_SLICE, Upkeep
from raylog.actors.runtime.base import Runtime
from raylog.storage.log import Log
from tests.support.disk import FaultyDisk
from tests.support.gateway_world import FakeRuntime
from tests.support.logs import NOW_MS, append, keyed
from tests.support.replicas import FakeHost

TOPIC_ID = TopicId(bytes(16))
BROKER_KEYS = {
    "producer.id.expiration.ms": "1000",
    "transaction.partition.verification.enable": "true",
}


def settings(policy: str) -> dict[str, str]:
    topic = {"cleanup.policy": policy, "internal.segment.bytes": "10", "retention.ms": "-1"}
    return resolve_topic(topic, BrokerConfigs()) | BROKER_KEYS


def partition(policy: str) -> Partition:
    """A leader of four records in four segments, of two idempotent producers."""
    config = partition_config(settings(policy))
    log = Log.open(Path("/p0"), config.log, FaultyDisk(), now_ms=0)
    for number in range(4):
        batch = keyed([(b"k", b"v")], producer_id=number // 2, sequence=number % 2)
        append(log, batch, now_ms=NOW_MS)
    machine = PartitionMachine(0, log.log_end_offset)
    found = Partition((TOPIC_ID, 0), "t", log, config, machine, FakeHost())
    found.lead(PartitionLeadership(TOPIC_ID, 0, 0, 0, 0, (0,), (0,), {}))
    assert (found.high_watermark, log.segment_count) == (4, 4)
    return found


def sweep(one: Partition, now_ms: int) -> None:
    async def run() -> None:
        runtime = FakeRuntime()
        runtime._now_ms = now_ms
        failures = StorageFailures(runtime.monotonic_ms)
        upkeep = Upkeep(cast(Runtime, runtime), {one.key: one}, failures, lambda _: None)
        runtime.start(upkeep.sweep(), "sweep")
        await runtime.advance(1)
        assert not runtime.failures

    asyncio.run(run())


POLICIES = ["delete", "compact", "compact,delete"]


@pytest.mark.parametrize("policy", POLICIES)
def test_producers_expire_whatever_the_policy(policy: str) -> None:
    one = partition(policy)
    sweep(one, NOW_MS + 999)
    assert [info.producer_id for info in one.log.producers.describe()] == [0, 1]
    sweep(one, NOW_MS + 1_000)
    assert one.log.producers.describe() == []
    assert one.log.segment_count == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_segments_before_the_log_start_go_whatever_the_policy_is_now(policy: str) -> None:
    one = partition("delete")
    one.delete_records(2)
    one.configure(partition_config(settings(policy)))
    sweep(one, NOW_MS)
    assert one.log.segments == [f"{number:020}.log" for number in (2, 3)]
    assert one.log.log_start_offset == 2
    assert one.log.durable_start_offset == 2


@pytest.mark.parametrize(("policy", "left"), [("delete", 0), ("compact", 4), ("compact,delete", 0)])
def test_records_expire_by_age_where_the_policy_says_delete(policy: str, left: int) -> None:
    one = partition(policy)
    one.configure(partition_config(settings(policy) | {"retention.ms": "1000"}))
    sweep(one, NOW_MS + 1_001)
    assert one.log.segment_count == left


@pytest.mark.parametrize("count", [1, SWEEP_SLICE, SWEEP_SLICE + 1, 2 * SWEEP_SLICE + 1])
def test_a_sweep_looks_at_each_log_once_and_lets_others_run_in_between(count: int) -> None:
    one = partition("delete")
    looked: list[int] = []
    slices: list[int] = []

    class Counting(Upkeep):
        async def _retain(self, partition: Partition) -> None:
            looked.append(partition.key[1])

    class Slicing(FakeRuntime):
        async def sleep(self, seconds: float) -> None:
            slices.append(len(looked))
            await super().sleep(seconds)

    async def run() -> None:
        runtime = Slicing()
        numbered = {(TOPIC_ID, index): copy(one) for index in range(count)}
        for key, each in numbered.items():
            each.key = key
        failures = StorageFailures(runtime.monotonic_ms)
        await Counting(cast(Runtime, runtime), numbered, failures, lambda _: None).sweep()

    asyncio.run(run())
    assert looked == list(range(count))
    assert slices == [
        min(end, count) for end in range(SWEEP_SLICE, count + SWEEP_SLICE, SWEEP_SLICE)
    ]
