"""The process that cleans is killed with SIGKILL: the log is intact, and is cleaned later."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from raylog.actors.replica.pacing import Pacing
from raylog.actors.runtime.base import Apart, PeerLost, Runtime
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.worker_processes import WorkerProcesses
from raylog.storage.clean_job import CleanJob
from raylog.storage.disk import OsDisk
from raylog.storage.log import Log, LogConfig
from tests.worlds.storage.killing_disk import KillingDisk
from tests.worlds.storage.logs import NOW_MS, append, checkpoint, contents, flush, keyed

ROOT = str(Path(__file__).parents[4])
CALLS = (1, 9, 20)
"""Some while it reads keys, some while it writes a segment."""


def filled(directory: Path) -> Log:
    config = LogConfig(segment_bytes=300, min_cleanable_dirty_ratio=0)
    log = Log.open(directory, config, OsDisk(), now_ms=NOW_MS)
    for number in range(24):
        append(log, keyed([(b"k%d" % (number % 3), b"%d" % number), (b"j%d" % number, b"v")]))
    flush(log)
    checkpoint(log)
    return log


async def clean_apart(log: Log, helpers: WorkerProcesses, disk: OsDisk) -> bool:
    """Whether the cleaning came to its end."""
    pause = Pacing(float("inf"), 0.0)
    end = log.log_end_offset
    job = log.cleaner.begin_clean(NOW_MS, end, memory_bytes=10**6, pause=pause, token="t")
    assert job is not None
    job.work.disk = disk
    apart = await helpers.do(job.work)
    try:
        await run(log, job, apart)
    except PeerLost:
        job.abandon()
        assert not log.cleaner.end_clean(job, NOW_MS)
        return False
    finally:
        await apart.close()
    return True


async def run(log: Log, job: CleanJob, apart: Apart) -> None:
    more = True
    while more:
        job.take(await apart.step())
        more = log.cleaner.end_clean(job, NOW_MS)


def test_a_cleaner_that_is_killed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    log = filled(tmp_path)
    latest = {key: (offset, value) for offset, key, value in contents(log)}

    def is_whole() -> bool:
        assert not log.busy
        assert not list(tmp_path.glob("*.tmp"))
        return {key: (offset, value) for offset, key, value in contents(log)} == latest

    async def test() -> list[bool]:
        failures: list[BaseException] = []
        runtime = LoopRuntime("test", failures.append)
        helpers = WorkerProcesses(cast(Runtime, runtime))
        ended = []
        for calls in CALLS:
            ended.append(await clean_apart(log, helpers, KillingDisk(calls)))
            assert is_whole()
        ended.append(await clean_apart(log, helpers, OsDisk()))
        helpers.end()
        runtime.end()
        assert not failures
        return ended

    assert asyncio.run(test()) == [False, False, False, True]
    assert is_whole()
    assert len(contents(log)) < 48
    log.close()
    reopened = Log.open(tmp_path, LogConfig(), OsDisk(), now_ms=NOW_MS)
    assert reopened.report.clean
    assert {key: (offset, value) for offset, key, value in contents(reopened)} == latest
