"""Which logs the cleaner of a process selects, and when."""

import asyncio
import errno
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from raylog.actors.common_messages import PartitionKey, PartitionLeadership, TopicId
from raylog.actors.config import BrokerConfigs, BrokerSettings, resolve_topic, settings_of
from raylog.actors.replica.cleaner import Cleaner
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.config import CleanerSettings, partition_config
from raylog.actors.replica.rules.machine import Appended, PartitionMachine
from raylog.actors.runtime.base import PeerLost, Runtime, Work
from raylog.storage.checkpoint import Claims
from raylog.storage.cleaner import LogCleaner
from raylog.storage.log import Log
from raylog.wire.errors import KafkaStorageError
from tests.worlds.decorators import in_loop
from tests.worlds.replica.fake_host import FakeHost
from tests.worlds.runtime import FakeRuntime, settle
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import append, checkpoint, clean, contents, flush, keyed

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
        FakeHost().as_host(),
    )
    found.lead(PartitionLeadership(TOPIC_ID, number, 0, 0, 0, (0,), (0,), {}))
    assert found.high_watermark == 4
    return found


def by_key(*partitions: Partition) -> dict[PartitionKey, Partition]:
    return {each.key: each for each in partitions}


def offsets(one: Partition) -> list[int]:
    return [offset for offset, _, _ in contents(one.log)]


class FakeBroker:
    """Grants turns on request."""

    def __init__(self) -> None:
        self.grants = True
        self.asked: list[float] = []
        self.ended = 0

    async def cleaning_turn(self, name: str, dirty_ratio: float) -> bool:
        assert name == "me"
        self.asked.append(dirty_ratio)
        return self.grants

    async def cleaning_ended(self, name: str) -> None:
        self.ended += 1


class Process:
    """A cleaner whose logs were just checkpointed, under a stopped clock."""

    def __init__(self, *partitions: Partition, settings: CleanerSettings | None = None) -> None:
        self.runtime = FakeRuntime()
        self.broker = FakeBroker()
        self.runtime.peers["broker"] = self.broker
        self.open = by_key(*partitions)
        self.cleaner = Cleaner(
            cast(Runtime, self.runtime),
            settings or CleanerSettings(),
            self.open,
            name="me",
            broker="broker",
        )
        for each in partitions:
            self.cleaner.note(each)


def run_for(ms: int, settings: CleanerSettings, *partitions: Partition) -> FakeRuntime:
    async def run() -> FakeRuntime:
        process = Process(*partitions, settings=settings)
        await process.runtime.advance(ms)
        await settle()
        assert not process.runtime.failures
        return process.runtime

    return asyncio.run(run())


def test_compacted_logs_are_cleaned_after_the_backoff() -> None:
    disk = FaultyDisk()
    compacted, both, kept = logs = [
        partition(disk, number, policy)
        for number, policy in enumerate(("compact", "compact,delete", "delete"))
    ]
    run_for(999, CleanerSettings(backoff_ms=1_000), *logs)
    assert offsets(compacted) == [0, 1, 2, 3]
    runtime = run_for(1_001, CleanerSettings(backoff_ms=1_000), *logs)
    assert offsets(compacted) == offsets(both) == CLEANED
    assert offsets(kept) == [0, 1, 2, 3]
    assert runtime.pending_timers() == 0  # nothing is looked at while nothing can be due


@in_loop
async def test_cleaned_bytes_are_counted() -> None:
    disk = FaultyDisk()
    first, second = partition(disk, 0), partition(disk, 1)
    size = first.log.size + second.log.size
    process = Process(first, second, settings=CleanerSettings(backoff_ms=1_000))
    assert process.cleaner.candidates == 2
    await process.runtime.advance(1_001)
    await settle()
    counts = process.cleaner.counts
    assert (counts.done, counts.failed, process.cleaner.candidates) == (2, 0, 0)
    assert counts.reclaimed_bytes == size - first.log.size - second.log.size > 0


def test_a_cleaner_that_is_switched_off_does_nothing() -> None:
    one = partition(FaultyDisk(), 0)
    assert run_for(100_000, CleanerSettings(enabled=False), one).pending_timers() == 0
    assert offsets(one) == [0, 1, 2, 3]


def test_memory_for_one_key_takes_more_rounds_at_once() -> None:
    one = partition(FaultyDisk(), 0)
    run_for(15_001, CleanerSettings(memory_bytes=1), one)
    assert offsets(one) == CLEANED


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_timestamps_are_corrected_whatever_the_topic_asks_for(
    policy: str, *, enabled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The growing segment is closed for that, and corrected once it was flushed."""

    class Flushing(FakeHost):
        def appended(self, partition: Partition, now_ms: int) -> None:
            flush(partition.log)

    one = partition(FaultyDisk(), 0, policy)
    one.host = Flushing().as_host()
    log = one.log
    log.state.claims = Claims(0, 4)
    with caplog.at_level(logging.INFO):
        runtime = run_for(40_000, CleanerSettings(enabled=enabled), one)
    assert one.log.cleaner.cleanable(0, 0) is not None, "there are no claims any more"
    assert "corrected timestamps of t-0" in caplog.text
    is_cleaned = policy == "compact" and enabled
    assert offsets(one) == ([3] if is_cleaned else [0, 1, 2, 3])
    assert runtime.pending_timers() == 0


def test_many_logs_with_claims_are_looked_at_a_few_times_each() -> None:
    disk = FaultyDisk()
    logs = [partition(disk, number, "delete") for number in range(60)]
    looks = 0

    class Counting(dict[PartitionKey, Partition]):
        def get(self, *key: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().get(*key)

    async def run() -> None:
        process = Process(*logs)
        process.cleaner._partitions = Counting(process.open)
        await process.runtime.advance(15_001)
        assert all(one.log.segment_count == 5 for one in logs)  # the growing ones are closed
        for one in logs:
            flush(one.log)
        await process.runtime.advance(15_001)
        assert not process.runtime.failures

    for one in logs:
        one.log.state.claims = Claims(0, 4)
    asyncio.run(run())
    assert {one.log.state.claims for one in logs} == {None}
    assert looks < 15 * len(logs)


def test_a_log_that_fails_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    damaged, sound = partition(disk, 0), partition(disk, 1)
    disk.corrupt(f"/p0/{0:020}.log", 66, b"?")
    with caplog.at_level(logging.ERROR):
        run_for(50_000, CleanerSettings(), damaged, sound)
    assert offsets(sound) == CLEANED
    assert [record.message for record in caplog.records] == ["cleaning of t-0 failed"]
    assert not damaged.log.busy


def test_the_dirtiest_log_comes_first() -> None:
    disk = FaultyDisk()
    cleaner, dirtiest, dirty = (partition(disk, number) for number in range(3))
    for each, more in ((cleaner, 1), (dirty, 3)):
        clean(each.log)
        for value in range(more):
            append(each.log, keyed([(b"k", b"%d" % value)]))
        flush(each.log)
        checkpoint(each.log)
        each.handle(Appended(each.log.log_end_offset, 0))
    order: list[Partition] = []

    async def run() -> list[float]:
        process = Process(cleaner, dirtiest, dirty)
        begin = LogCleaner.begin_clean

        def begun(cleaner: LogCleaner, *args: Any, **given: Any) -> Any:
            order.extend(each for each in process.open.values() if each.log.cleaner is cleaner)
            return begin(cleaner, *args, **given)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LogCleaner, "begin_clean", begun)
            await process.cleaner.sweep()
        assert process.broker.ended == 3
        return process.broker.asked

    asked = asyncio.run(run())
    assert order == [dirtiest, dirty, cleaner]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] == 1


def test_others_of_the_broker_have_their_turn() -> None:
    one = partition(FaultyDisk(), 0)

    async def run() -> None:
        process = Process(one)
        process.broker.grants = False
        await process.runtime.advance(20_000)
        assert len(process.broker.asked) == 6  # every second
        assert offsets(one) == [0, 1, 2, 3]
        del process.runtime.peers["broker"]
        await process.runtime.advance(5_000)
        assert offsets(one) == [0, 1, 2, 3]
        process.runtime.peers["broker"] = process.broker
        process.broker.grants = True
        await process.runtime.advance(1_000)
        assert offsets(one) == CLEANED

    asyncio.run(run())


def test_records_above_the_high_watermark_are_cleaned_later() -> None:
    one = partition(FaultyDisk(), 0)
    held = one.machine.high_watermark

    async def run() -> None:
        process = Process(one)
        one.machine.high_watermark = 0
        await process.runtime.advance(40_000)
        assert offsets(one) == [0, 1, 2, 3]
        one.machine.high_watermark = held
        await process.runtime.advance(15_000)
        assert offsets(one) == CLEANED

    asyncio.run(run())


def test_a_log_that_is_being_cut_is_left_alone() -> None:
    one = partition(FaultyDisk(), 0)

    async def run() -> None:
        process = Process(one)
        one.work.reserve(lambda: None)
        await process.runtime.advance(40_000)
        assert not one.log.busy
        assert offsets(one) == [0, 1, 2, 3]
        one.work.release()
        await process.runtime.advance(15_000)
        assert offsets(one) == CLEANED

    asyncio.run(run())


def test_a_closed_log_is_let_go() -> None:
    one = partition(FaultyDisk(), 0)

    async def run() -> int:
        process = Process(one)
        steps = 0

        async def stop_after_first(function: Any, *args: object) -> object:
            nonlocal steps
            steps += 1
            outcome = function(*args)
            one.log.cleaner.stop()
            return outcome

        process.runtime.run_blocking = stop_after_first  # type: ignore[method-assign]  # of this one
        assert await process.cleaner.sweep() == 0
        return steps

    assert asyncio.run(run()) == 2  # a step, and the log's part of it
    assert not one.log.busy
    one.close()


class Mortal:
    """Work that is lost at its third step, as if its process were killed."""

    lost = 0

    def __init__(self, work: Work) -> None:
        self._work = work
        self._steps = 0

    async def step(self) -> object:
        self._steps += 1
        if self._steps == 3 and not Mortal.lost:
            Mortal.lost += 1
            raise PeerLost("killed")
        return self._work.step()

    def stop(self) -> None:
        raise AssertionError("nobody stops it")

    async def close(self) -> None:
        pass


def test_a_process_that_is_lost_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    one = partition(disk, 0)

    async def run() -> None:
        process = Process(one)

        async def apart(work: Work) -> Mortal:
            return Mortal(work)

        process.runtime.apart = apart  # type: ignore[method-assign]  # of this one
        await process.runtime.advance(16_000)
        assert Mortal.lost == 1
        assert not one.log.busy
        assert one.log.cleaner.first_dirty_offset == 0
        await process.runtime.advance(16_000)
        assert offsets(one) == CLEANED

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == [
        "cleaning of t-0 begins anew later: killed"
    ]
    assert not any(name.endswith(".tmp") for name in disk.listdir("/p0"))


def test_settings_are_the_brokers() -> None:
    given = BrokerSettings(
        {
            "log.cleaner.enable": "false",
            "log.cleaner.backoff.ms": "7",
            "log.cleaner.dedupe.buffer.size": "1000",
            "log.cleaner.io.max.bytes.per.second": "2.5",
        }
    )
    assert settings_of(CleanerSettings, given) == CleanerSettings(False, 7, 1_000, 2.5)


@pytest.mark.parametrize(("policy", "expected"), [("compact", 50), ("delete", 100)])
def test_compacted_segments_are_closed_before_records_wait_too_long(
    policy: str, expected: int
) -> None:
    topic = {"cleanup.policy": policy, "segment.ms": "100", "max.compaction.lag.ms": "50"}
    resolved = resolve_topic(topic, BrokerConfigs()) | BROKER_KEYS
    assert partition_config(resolved).log.segment_ms == expected


def test_a_log_that_is_closed_is_noted_no_more() -> None:
    closed, kept = partition(FaultyDisk(), 0), partition(FaultyDisk(), 1)

    async def run() -> None:
        process = Process(closed, kept)
        del process.open[closed.key]
        await process.runtime.advance(16_000)
        assert not process.runtime.failures
        assert (offsets(closed), offsets(kept)) == ([0, 1, 2, 3], CLEANED)
        assert process.runtime.pending_timers() == 0

    asyncio.run(run())


def test_a_log_whose_files_cannot_be_asked_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    failing, sound = partition(disk, 0), partition(disk, 1)
    for each in failing, sound:
        each.log.reconfigure(replace(each.log.state.config, min_compaction_lag_ms=1))
    for segment in failing.log.state.segments:
        segment.max_timestamp = -1  # as of records without times
    disk.fail("modified_ms", errno.EIO, path="p0")
    run_for(50_000, CleanerSettings(), failing, sound)
    assert failing.log.offline
    assert cast(FakeHost, failing.host).calls[-1:] == [("failed", None)]
    assert [record.message for record in caplog.records] == ["t-0 cannot be cleaned"]
    assert not sound.log.offline


def test_a_turn_is_kept_while_a_cleaning_runs_and_given_back_though_the_broker_is_silent() -> None:
    one = partition(FaultyDisk(), 0)

    async def run() -> None:
        process = Process(one)
        take = process.runtime.run_blocking

        async def slowly(function: Any, *args: object) -> object:
            await process.runtime.sleep(2.5)
            return await take(function, *args)

        process.runtime.run_blocking = slowly  # type: ignore[method-assign]  # of this one
        await process.runtime.advance(15_000)
        before = len(process.broker.asked)
        assert (before, process.broker.ended) == (1, 0)
        await process.runtime.advance(4_000)
        assert len(process.broker.asked) - before == 4, "every second"
        del process.runtime.peers["broker"]
        await process.runtime.advance(60_000)
        assert not process.runtime.failures
        assert offsets(one) == CLEANED
        assert process.broker.ended == 0
        process.runtime.peers["broker"] = process.broker
        asked = len(process.broker.asked)
        await process.runtime.advance(60_000)
        assert len(process.broker.asked) == asked, "nobody keeps a turn that is over"

    asyncio.run(run())


@pytest.mark.parametrize("befalls", ["closed", "cut"])
def test_a_log_that_is_no_more_when_its_turn_comes_is_let_go(befalls: str) -> None:
    one = partition(FaultyDisk(), 0)

    async def run() -> None:
        process = Process(one)

        async def granted(name: str, dirty_ratio: float) -> bool:
            if befalls == "closed":
                process.open.pop(one.key, None)
            else:
                one.work.reserve(lambda: None)
            return True

        process.broker.cleaning_turn = granted  # type: ignore[method-assign]  # of this one
        await process.runtime.advance(16_000)
        assert not process.runtime.failures
        assert process.broker.ended == 1
        assert not one.log.busy
        assert offsets(one) == [0, 1, 2, 3]

    asyncio.run(run())


class Stoppable:
    """Work in another process that is stopped before its first step."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.stopped = self.closed = 0

    async def step(self) -> object:
        assert self.stopped
        return self._work.step()

    def stop(self) -> None:
        self.stopped += 1

    async def close(self) -> None:
        self.closed += 1


def test_stop_before_the_process_has_started_stops_the_process() -> None:
    one = partition(FaultyDisk(), 0)
    made: list[Stoppable] = []

    async def run() -> None:
        process = Process(one)

        async def apart(work: Work) -> Stoppable:
            one.log.cleaner.stop()
            made.append(Stoppable(work))
            return made[-1]

        process.runtime.apart = apart  # type: ignore[method-assign]  # of this one
        assert await process.cleaner.sweep() == 0

    asyncio.run(run())
    assert [(each.stopped, each.closed) for each in made] == [(1, 1)]
    assert not one.log.busy
    assert offsets(one) == [0, 1, 2, 3]


def test_damage_that_a_correction_leaves_alone_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FaultyDisk()
    one = partition(disk, 0, "delete")
    one.log.cleaner.claim(0, 3)
    disk.corrupt(f"/p0/{1:020}.log", 66, b"?")
    run_for(16_000, CleanerSettings(), one)
    assert one.log.state.claims is None
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        f"timestamps were not corrected: /p0/{1:020}.log is damaged at byte 0"
    ]


def test_a_log_with_claims_that_is_offline_is_noted_no_more() -> None:
    disk = FaultyDisk()
    one = partition(disk, 0)
    one.log.cleaner.claim(0, 3)
    disk.fail("pwritev", errno.EIO)
    with pytest.raises(KafkaStorageError):
        append(one.log, keyed([(b"k", b"")]))
    assert one.log.offline
    assert run_for(60_000, CleanerSettings(), one).pending_timers() == 0
