"""What retention does to logs, for each `cleanup.policy`."""

import asyncio
import errno
from collections.abc import Coroutine
from copy import copy
from pathlib import Path
from typing import Any, cast

import pytest

from raylog.actors.common_messages import PartitionLeadership, TopicId
from raylog.actors.config import BrokerConfigs, resolve_topic
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.log_manager import (
    CHECKPOINT_TICKS,
    LOOK_EVERY_MS,
    SWEEP_SLICE,
    LogManager,
)
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.config import partition_config
from raylog.actors.replica.rules.machine import PartitionMachine
from raylog.actors.replica.rules.work import Task
from raylog.actors.runtime.base import Runtime
from raylog.storage.log import Log
from raylog.wire.errors import KafkaError, KafkaStorageError
from tests.worlds.decorators import in_loop
from tests.worlds.replica.fake_host import FakeHost
from tests.worlds.runtime import FakeRuntime
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import NOW_MS, append, keyed

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
    found = Partition((TOPIC_ID, 0), "t", log, config, machine, FakeHost().as_host())
    found.lead(PartitionLeadership(TOPIC_ID, 0, 0, 0, 0, (0,), (0,), {}))
    assert (found.high_watermark, log.segment_count) == (4, 4)
    return found


def sweep(one: Partition, now_ms: int) -> None:
    async def run() -> None:
        runtime = FakeRuntime()
        runtime._now_ms = now_ms
        failures = StorageFailures(runtime.monotonic_ms)
        log_manager = LogManager(cast(Runtime, runtime), {one.key: one}, failures, lambda _: None)
        runtime.start(log_manager.sweep(), "sweep")
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

    class Counting(LogManager):
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
    """The log_manager of one log, under a fake clock."""

    def __init__(self, one: Partition) -> None:
        self.one = one
        self.runtime = FakeRuntime()
        self.open = {one.key: one}
        self.checkpointed: list[Partition] = []
        self.failures = StorageFailures(self.runtime.monotonic_ms)
        self.log_manager = LogManager(
            cast(Runtime, self.runtime), self.open, self.failures, self.checkpointed.append
        )

    @property
    def calls(self) -> list[tuple[str, object]]:
        return cast(FakeHost, self.one.host).calls

    async def run(self, step: Coroutine[Any, Any, None]) -> None:
        self.calls.clear()
        self.runtime.start(step, "a step")
        await self.runtime.advance(1)
        assert not self.runtime.failures


def fail_disk(one: Partition, call: str, code: int = errno.EIO) -> None:
    cast(FaultyDisk, one.log.state.disk).fail(call, code)


@in_loop
async def test_a_log_that_is_being_cut_is_neither_checkpointed_nor_retained_nor_flushed() -> None:
    world = World(one := partition("delete"))
    one.delete_records(2)
    one.work.reserve(lambda: None)
    await world.run(world.log_manager.checkpoint(one))
    await world.run(world.log_manager.sweep())
    world.log_manager.flush(one)
    await world.runtime.advance(1)
    assert (one.work.runs(Task.FLUSH), world.checkpointed) == (False, [])
    assert (one.log.segment_count, one.log.state.recovery_point) == (4, 0)
    one.work.release()
    await world.run(world.log_manager.checkpoint(one))
    assert world.checkpointed == [one]
    assert one.log.durable_start_offset == 2
    await world.run(world.log_manager.checkpoint(one))
    assert world.checkpointed == [one], "there is nothing new to be saved"


@pytest.mark.parametrize(("code", "is_lost"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_retention_that_fails_is_reported_and_a_log_that_is_offline_is_given_up(
    code: int, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        world = World(one := partition("delete"))
        one.delete_records(2)
        fail_disk(one, "pwritev", code)
        await world.run(world.log_manager.sweep())
        assert one.log.offline == is_lost
        assert world.calls == [("failed", None)] * is_lost
        assert world.checkpointed == []
        if not is_lost:
            await world.run(world.log_manager.sweep())
            assert world.checkpointed == [one]

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["retention of t-0 failed"]


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("retention_ms", ["1000", "-1"])
@in_loop
async def test_followers_are_told_of_a_log_start_that_moved(
    follows: bool, retention_ms: str
) -> None:
    world = World(one := partition("delete"))
    one.configure(partition_config(settings("delete") | {"retention.ms": retention_ms}))
    world.runtime._now_ms = NOW_MS + 5_000
    if follows:
        one.followers[cast(Any, "session")] = cast(Any, None)
    await world.run(world.log_manager.sweep())
    moved = retention_ms == "1000"
    assert one.log.log_start_offset == (4 if moved else 0)
    assert (("watermarks", 4) in world.calls) == (moved and follows)


@in_loop
async def test_a_flush_of_a_log_that_is_offline_fails_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(one := partition("delete"))
    fail_disk(one, "pwritev")
    with pytest.raises(KafkaStorageError):
        append(one.log, keyed([(b"k", b"v")]))
    world.calls.clear()
    failed: list[KafkaError] = []
    monkeypatch.setattr(Partition, "fail_waiting", lambda _, failure: failed.append(failure))
    world.log_manager.flush(one)
    assert one.work.runs(Task.FLUSH)
    await world.runtime.advance(1)
    assert [type(each) for each in failed] == [KafkaStorageError]
    assert world.calls == [("failed", None)]
    assert not one.work.runs(Task.FLUSH)


@pytest.mark.parametrize(("code", "is_lost"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_checkpoint_that_fails_is_reported_and_made_again_where_the_log_goes_on(
    code: int, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        world = World(one := partition("delete"))
        for _ in range(2):
            append(one.log, keyed([(b"k", b"v")]))
            world.log_manager.appended(one, NOW_MS)
            await world.runtime.advance(CHECKPOINT_TICKS * LOOK_EVERY_MS - 1)
            assert world.checkpointed == []
            if not caplog.records:
                cast(FaultyDisk, one.log.state.disk).fail("pwritev", code, path="state")
            await world.runtime.advance(1)
            if is_lost:
                break
        assert world.checkpointed == [one] * (not is_lost)
        assert one.log.offline == is_lost
        assert (("failed", None) in world.calls) == is_lost
        assert not world.runtime.failures

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["checkpoint of t-0 failed"]


@in_loop
async def test_a_log_that_grew_is_saved_after_some_looks_and_looked_at_no_more_then() -> None:
    one, runtime = partition("delete"), FakeRuntime()
    saved: list[float] = []
    failures = StorageFailures(runtime.monotonic_ms)
    log_manager = LogManager(
        cast(Runtime, runtime),
        {one.key: one},
        failures,
        lambda _: saved.append(runtime.monotonic_ms()),
    )
    began = runtime.monotonic_ms()
    log_manager.appended(one, NOW_MS)
    await runtime.advance((CHECKPOINT_TICKS - 2) * LOOK_EVERY_MS)
    log_manager.appended(one, NOW_MS)
    assert runtime.pending_timers() == 1
    await runtime.advance(10 * CHECKPOINT_TICKS * LOOK_EVERY_MS)
    assert saved == [began + CHECKPOINT_TICKS * LOOK_EVERY_MS], "however often it grew meanwhile"
    assert runtime.pending_timers() == 0
    append(one.log, keyed([(b"k", b"v")]), now_ms=NOW_MS)
    log_manager.appended(one, NOW_MS)
    await runtime.advance(CHECKPOINT_TICKS * LOOK_EVERY_MS)
    assert len(saved) == 2
    log_manager.appended(one, NOW_MS)
    log_manager.stop()
    assert runtime.pending_timers() == 0


@pytest.mark.parametrize("flush_ms", ["1000", str(2**63 - 1)])
@in_loop
async def test_a_log_that_is_closed_meanwhile_is_not_saved(flush_ms: str) -> None:
    one, runtime = partition("delete"), FakeRuntime()
    one.configure(partition_config(settings("delete") | {"flush.ms": flush_ms}))
    saved: list[Partition] = []
    partitions = {one.key: one}
    failures = StorageFailures(runtime.monotonic_ms)
    log_manager = LogManager(cast(Runtime, runtime), partitions, failures, saved.append)
    log_manager.appended(one, NOW_MS)
    del partitions[one.key]
    await runtime.advance(2 * CHECKPOINT_TICKS * LOOK_EVERY_MS)
    assert saved == []
    assert runtime.pending_timers() == 0
