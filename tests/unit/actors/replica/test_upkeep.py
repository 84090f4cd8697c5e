"""What the retention sweep does to logs, whatever their `cleanup.policy`."""

import asyncio
import errno
from collections.abc import Coroutine
from copy import copy
from pathlib import Path
from typing import Any, cast

import pytest

from raylog.actors.config import BrokerConfigs, resolve_topic
from raylog.actors.ports import PartitionLeadership, TopicId
from raylog.actors.replica.config import partition_config
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.machine import PartitionMachine
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.upkeep import CHECKPOINT_TICKS, SWEEP_SLICE, UPKEEP_MS, Upkeep
from raylog.actors.runtime.base import Runtime
from raylog.storage.log import Log
from raylog.wire.errors import KafkaError, KafkaStorageError
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


class World:
    """The upkeep of one log, under a clock of the test."""

    def __init__(self, one: Partition) -> None:
        self.one = one
        self.runtime = FakeRuntime()
        self.open = {one.key: one}
        self.checkpointed: list[Partition] = []
        self.failures = StorageFailures(self.runtime.monotonic_ms)
        self.upkeep = Upkeep(
            cast(Runtime, self.runtime), self.open, self.failures, self.checkpointed.append
        )

    @property
    def told(self) -> list[tuple[str, object]]:
        return cast(FakeHost, self.one.host).told

    async def run(self, step: Coroutine[Any, Any, None]) -> None:
        self.told.clear()
        self.runtime.start(step, "a step")
        await self.runtime.advance(1)
        assert not self.runtime.failures


def fail_disk(one: Partition, call: str, code: int = errno.EIO) -> None:
    cast(FaultyDisk, one.log._disk).fail(call, code)


def test_a_log_that_is_being_cut_is_neither_checkpointed_nor_retained_nor_flushed() -> None:
    async def run() -> None:
        world = World(one := partition("delete"))
        one.delete_records(2)
        one.in_surgery = True
        await world.run(world.upkeep.checkpoint(one))
        await world.run(world.upkeep.sweep())
        world.upkeep.flush(one)
        await world.runtime.advance(1)
        assert (one.flush_running, world.checkpointed) == (False, [])
        assert (one.log.segment_count, one.log.recovery_point) == (4, 0)
        one.in_surgery = False
        await world.run(world.upkeep.checkpoint(one))
        assert world.checkpointed == [one]
        assert one.log.durable_start_offset == 2
        await world.run(world.upkeep.checkpoint(one))
        assert world.checkpointed == [one], "there is nothing new to be saved"

    asyncio.run(run())


@pytest.mark.parametrize(("code", "is_lost"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_retention_that_fails_is_told_and_a_log_that_is_offline_is_given_up(
    code: int, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        world = World(one := partition("delete"))
        one.delete_records(2)
        fail_disk(one, "pwritev", code)
        await world.run(world.upkeep.sweep())
        assert one.log.offline == is_lost
        assert world.told == [("failed", None)] * is_lost
        assert world.checkpointed == []
        if not is_lost:
            await world.run(world.upkeep.sweep())
            assert world.checkpointed == [one]

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["retention of t-0 failed"]


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("retention_ms", ["1000", "-1"])
def test_followers_are_told_of_a_log_start_that_moved(follows: bool, retention_ms: str) -> None:
    async def run() -> None:
        world = World(one := partition("delete"))
        one.configure(partition_config(settings("delete") | {"retention.ms": retention_ms}))
        world.runtime._now_ms = NOW_MS + 5_000
        if follows:
            one.followers[cast(Any, "session")] = cast(Any, None)
        await world.run(world.upkeep.sweep())
        moved = retention_ms == "1000"
        assert one.log.log_start_offset == (4 if moved else 0)
        assert (("figures", 4) in world.told) == (moved and follows)

    asyncio.run(run())


def test_a_flush_of_a_log_that_is_offline_fails_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        world = World(one := partition("delete"))
        fail_disk(one, "pwritev")
        with pytest.raises(KafkaStorageError):
            append(one.log, keyed([(b"k", b"v")]))
        world.told.clear()
        failed: list[KafkaError] = []
        monkeypatch.setattr(Partition, "fail_waiting", lambda _, failure: failed.append(failure))
        world.upkeep.flush(one)
        assert one.flush_running
        await world.runtime.advance(1)
        assert [type(each) for each in failed] == [KafkaStorageError]
        assert world.told == [("failed", None)]
        assert not one.flush_running

    asyncio.run(run())


@pytest.mark.parametrize(("code", "is_lost"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_checkpoint_that_fails_is_told_and_made_again_where_the_log_goes_on(
    code: int, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        world = World(one := partition("delete"))
        for _ in range(2):
            append(one.log, keyed([(b"k", b"v")]))
            world.upkeep.appended(one)
            await world.runtime.advance(CHECKPOINT_TICKS * UPKEEP_MS - 1)
            assert world.checkpointed == []
            if not caplog.records:
                cast(FaultyDisk, one.log._disk).fail("pwritev", code, path="state")
            await world.runtime.advance(1)
            if is_lost:
                break
        assert world.checkpointed == [one] * (not is_lost)
        assert one.log.offline == is_lost
        assert (("failed", None) in world.told) == is_lost
        assert not world.runtime.failures

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["checkpoint of t-0 failed"]


def test_a_log_that_grew_is_saved_after_some_looks_and_looked_at_no_more_then() -> None:
    async def run() -> None:
        one, runtime = partition("delete"), FakeRuntime()
        saved: list[float] = []
        failures = StorageFailures(runtime.monotonic_ms)
        upkeep = Upkeep(
            cast(Runtime, runtime),
            {one.key: one},
            failures,
            lambda _: saved.append(runtime.monotonic_ms()),
        )
        began = runtime.monotonic_ms()
        upkeep.appended(one)
        await runtime.advance((CHECKPOINT_TICKS - 2) * UPKEEP_MS)
        upkeep.appended(one)
        assert runtime.pending_timers() == 1
        await runtime.advance(10 * CHECKPOINT_TICKS * UPKEEP_MS)
        assert saved == [began + CHECKPOINT_TICKS * UPKEEP_MS], "however often it grew meanwhile"
        assert runtime.pending_timers() == 0
        append(one.log, keyed([(b"k", b"v")]), now_ms=NOW_MS)
        upkeep.appended(one)
        await runtime.advance(CHECKPOINT_TICKS * UPKEEP_MS)
        assert len(saved) == 2
        upkeep.appended(one)
        upkeep.stop()
        assert runtime.pending_timers() == 0

    asyncio.run(run())


def test_a_log_that_is_closed_meanwhile_is_not_saved() -> None:
    async def run() -> None:
        one, runtime = partition("delete"), FakeRuntime()
        saved: list[Partition] = []
        partitions = {one.key: one}
        failures = StorageFailures(runtime.monotonic_ms)
        upkeep = Upkeep(cast(Runtime, runtime), partitions, failures, saved.append)
        upkeep.appended(one)
        del partitions[one.key]
        await runtime.advance(2 * CHECKPOINT_TICKS * UPKEEP_MS)
        assert saved == []
        assert runtime.pending_timers() == 0

    asyncio.run(run())
