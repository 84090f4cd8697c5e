"""While a thread closes or truncates a log, nothing else uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.storage.durability import Flushes
from raylog.storage.log import Log
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, run_world
from tests.worlds.runtime import settle
from tests.worlds.storage.logs import batch

FLUSH_MS = 1_000


def test_a_log_that_is_being_closed_is_not_flushed_beside_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        node = world.nodes[1]
        flushed: list[str] = []
        closing = False
        begin_flush = Flushes.begin

        def note(flushes: Flushes) -> Any:
            flushed.append("by the timer" if closing else "before, or by the close")
            return begin_flush(flushes)

        async def in_a_thread(function: Callable[..., Any], *args: Any) -> Any:
            nonlocal closing
            if function.__name__ != "close_logs":
                return function(*args)
            closing = True
            await world.clock.advance(2 * FLUSH_MS)  # the thread takes that long to begin
            await settle()
            closing = False
            return function(*args)

        monkeypatch.setattr(Flushes, "begin", note)
        monkeypatch.setattr(node.runtime, "run_blocking", in_a_thread)
        for _ in range(2):  # the first is flushed at once, the second when the time has come
            assert len(await world.produce(1)) == 1
        await node.actor.close_partitions(list(world.keys), False)
        assert "by the timer" not in flushed

    run_world(scenario, brokers=1, config={"flush.ms": str(FLUSH_MS)})


@in_world(run_world)
async def test_a_cut_that_a_full_disk_refuses_is_tried_again_after_the_backoff(
    world: ReplicaWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = world.produce(1)
    await world.pass_ms(60)
    assert await shared
    alone = world.produce(1, batch(3), acks=1)  # nobody else has it
    await world.kill(1)
    assert await alone
    await world.elect(2, isr=(2, 3))
    other = world.produce(2)
    await world.pass_ms(30)
    await other
    cuts = []
    truncate = Log.truncate_to

    def note(log: Log, *args: Any) -> None:
        cuts.append(world.clock.now_ms())
        truncate(log, *args)

    monkeypatch.setattr(Log, "truncate_to", note)
    await world.start(1)
    world.disks[1].capacity = 0
    await world.pass_ms(5 * SETTINGS.backoff_ms)
    assert 2 <= len(cuts) <= 6
    world.disks[1].heal()
    await world.pass_ms(2 * SETTINGS.backoff_ms)
    assert world.raw(1) == world.raw(2)


@in_world(run_world)
async def test_a_follower_whose_log_is_not_cut_yet_hears_of_no_high_watermark(
    world: ReplicaWorld,
) -> None:
    """It would hold records of its own to be committed."""

    shared = world.produce(1)
    await world.pass_ms(60)
    assert await shared
    alone = world.produce(1, batch(3), acks=1)  # nobody else has it
    await world.kill(1)
    assert await alone
    await world.elect(2, isr=(2, 3))
    await world.start(1)
    world.disks[1].capacity = 0
    for _ in range(10):
        written = world.produce(2)
        await world.pass_ms(SETTINGS.backoff_ms / 2)
        assert await written
        log_end_offset, high_watermark = world.ends()[0]
        assert log_end_offset == 4
        assert high_watermark <= 1
    world.disks[1].heal()
    await world.pass_ms(3 * SETTINGS.backoff_ms)
    assert world.raw(1) == world.raw(2)
    assert world.ends() == [(11, 11)] * 3, "and hears of it then, without more records"
