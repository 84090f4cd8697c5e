"""A broker on a failing disk waits with its start; a running one starts no child meanwhile."""

import asyncio
import errno
from pathlib import Path
from typing import Any, cast

import pytest

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.broker.identity import DataDirectory, Identity
from raylog.actors.broker.start_notes import note_start
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import Runtime
from tests.worlds.broker.recording import CLUSTER, RecordingCluster
from tests.worlds.runtime import FakeRuntime, settle

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_the_start_is_noted_as_soon_as_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = DataDirectory(tmp_path, Identity("c", 0, "d"), fsync=False)
    starts = [FULL, FULL, FULL, None]
    noted: list[int] = []

    def note() -> None:
        failure = starts.pop(0)
        if failure is not None:
            raise failure
        noted.append(1)

    monkeypatch.setattr(data, "note_start", note)

    async def run() -> None:
        runtime = FakeRuntime()
        waiting = asyncio.ensure_future(note_start(cast(Runtime, runtime), data))
        await settle()
        await runtime.advance(6_900)
        await settle()
        assert not waiting.done()
        await runtime.advance(200)
        await settle()
        await waiting

    asyncio.run(run())
    assert noted == [1]
    assert [one.message for one in caplog.records] == [
        f"the broker waits to start: {tmp_path / 'state.json'} cannot be written: {FULL}"
    ] * 3
    data.close()


def test_a_replica_that_cannot_be_noted_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        cluster = RecordingCluster(tmp_path)
        await cluster.up()
        broker = cluster.world.resident(broker_name(CLUSTER, 0)).actor
        assert isinstance(broker, BrokerActor)
        refused = 0

        def refuse(*_: Any) -> None:
            nonlocal refused
            refused += 1
            raise FULL

        with monkeypatch.context() as patched:
            patched.setattr(broker._data, "remember_children", refuse)
            for replica in cluster.replicas():
                await cluster.kill(replica.name)
            await cluster.until(lambda: refused >= 2)
            assert cluster.replicas() == []
        await cluster.until(lambda: bool(cluster.replicas()))
        await cluster.down()

    asyncio.run(run())
