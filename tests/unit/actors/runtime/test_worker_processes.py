"""Work in its own process: started on demand, ended when idle, replaced when it dies."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from raylog.actors.runtime import worker_processes
from raylog.actors.runtime.base import PeerLost, Runtime
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.processes import is_running, record_of
from raylog.actors.runtime.worker_processes import NICE, WorkerProcesses
from tests.support.ray_clusters import wait_until
from tests.worlds.decorators import in_world

HERE = str(Path(__file__).parent)


class Counting:
    """Counts its steps and reports the process that does them."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> tuple[int, int, int]:
        self.steps += 1
        return self.steps, os.getpid(), os.nice(0)

    def stop(self) -> None:
        raise AssertionError("another process is not reached so")


class Endless(Counting):
    """A step that never ends."""

    def step(self) -> tuple[int, int, int]:
        while True:
            time.sleep(1)


class Broken(Counting):
    """A step with a bug."""

    def step(self) -> tuple[int, int, int]:
        raise AssertionError("a broken invariant")


def run(test: Callable[[WorkerProcesses], Awaitable[None]]) -> None:
    async def in_a_loop() -> None:
        failures: list[BaseException] = []
        runtime = LoopRuntime("test", failures.append)
        with pytest.MonkeyPatch.context() as patched:
            patched.syspath_prepend(HERE)
            helping = WorkerProcesses(cast(Runtime, runtime))
            await test(helping)
        helping.end()
        runtime.end()
        assert not failures

    asyncio.run(in_a_loop())


def work(name: str) -> Counting:
    """As a helper finds it: by the name of this module on its path."""
    import importlib

    found: Counting = getattr(importlib.import_module(Path(__file__).stem), name)()
    return found


async def until(gone: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, gone, "the end of the process", 20)


@in_world(run)
async def test_work_is_done_in_another_process_with_low_priority(helping: WorkerProcesses) -> None:
    given = work("Counting")
    apart = await helping.do(given)
    low = min(os.nice(0) + NICE, 19)
    assert [await apart.step() for _ in range(2)] == [(n, apart.pid, low) for n in (1, 2)]
    assert apart.pid != os.getpid()
    assert given.steps == 0
    await apart.close()


def test_a_process_does_one_work_after_another_and_ends_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_processes, "IDLE_MS", 300)

    async def test(helping: WorkerProcesses) -> None:
        first = await helping.do(work("Counting"))
        await first.step()
        await first.close()
        second = await helping.do(work("Counting"))
        assert second.pid == first.pid
        assert (await second.step())[0] == 1
        record = record_of("helper", first.pid)
        assert record is not None
        await second.close()
        await until(lambda: not is_running(record))
        third = await helping.do(work("Counting"))
        assert (await third.step())[0] == 1
        await third.close()

    run(test)


@pytest.mark.parametrize("how", ["killed", "stopped"])
@in_world(run)
async def test_a_process_that_dies_in_a_step_is_lost(helping: WorkerProcesses, *, how: str) -> None:
    apart = await helping.do(work("Endless"))
    step = asyncio.ensure_future(apart.step())
    await asyncio.sleep(0)
    if how == "killed":
        os.kill(apart.pid, signal.SIGKILL)
    else:
        apart.stop()
    with pytest.raises(PeerLost, match=f"process {apart.pid} is gone"):
        await step
    await apart.close()
    other = await helping.do(work("Counting"))
    assert other.pid != apart.pid
    assert (await other.step())[0] == 1
    await other.close()


@in_world(run)
async def test_a_process_that_was_stopped_between_steps_gets_no_other_work(
    helping: WorkerProcesses,
) -> None:
    stopped = await helping.do(work("Counting"))
    await stopped.step()
    stopped.stop()
    await stopped.close()
    other = await helping.do(work("Counting"))
    assert other.pid != stopped.pid
    await other.close()


@in_world(run)
async def test_a_mistake_in_the_work_ends_its_process_alone(helping: WorkerProcesses) -> None:
    apart = await helping.do(work("Broken"))
    with pytest.raises(PeerLost):
        await apart.step()
    await apart.close()


@in_world(run)
async def test_a_process_ends_with_the_one_that_started_it(helping: WorkerProcesses) -> None:
    apart = await helping.do(work("Endless"))
    step = asyncio.ensure_future(apart.step())
    await asyncio.sleep(0)
    record = record_of("helper", apart.pid)
    assert record is not None
    apart._process._writer.close()  # as the end of this process does
    with pytest.raises(PeerLost):
        await step
    await until(lambda: not is_running(record))
    await apart.close()


def test_no_process_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    async def test(helping: WorkerProcesses) -> None:
        with pytest.raises(PeerLost, match="no process can be started"):
            await helping.do(work("Counting"))

    run(test)
