"""Embedded brokers on real disks, each of which can be killed and restarted on its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from raylog.actors.broker.actor import BrokerActor, broker_spec
from raylog.actors.broker.messages import BrokerStatus
from raylog.actors.cluster import ClusterPlan, plan_cluster, start_cluster, stop_cluster
from raylog.actors.gateway.actor import GatewayActor
from raylog.actors.names import broker_name
from raylog.actors.replica.actor import ReplicaActor
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.work import Task
from raylog.actors.roles import role_class
from raylog.actors.runtime.inproc import InprocWorld
from raylog.testing.embedded import HOST, TEST_SETTINGS
from tests.worlds.replica.actor import raw_log

T = TypeVar("T")
CALL_TIMEOUT_MS = 10_000
READY_TIMEOUT_MS = 30_000
SETTINGS = {
    **TEST_SETTINGS,
    "replica.fetch.backoff.ms": "50",
    "broker.heartbeat.interval.ms": "100",
    "replica.actors.max": "2",
}


class KillableCluster:
    """Brokers 0 to `brokers` - 1; the controller survives the death of any of them."""

    def __init__(self, data: Path, brokers: int = 3, **settings: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="brokers", daemon=True)
        self._thread.start()
        self._settings = SETTINGS | {k.replace("_", "."): v for k, v in settings.items()}
        self._statuses: dict[int, BrokerStatus] = {}
        self._data = data
        self._world: InprocWorld
        self._plan: ClusterPlan
        self.run(self._begin(brokers))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the brokers' event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _begin(self, brokers: int) -> None:
        self._world = InprocWorld(role_class)
        self._runtime = self._world.runtime()
        self._plan = plan_cluster(
            self._data, self._runtime, host=HOST, ports=[0] * brokers, settings=self._settings
        )
        for status in await start_cluster(self._runtime, self._plan):
            self._statuses[status.broker_id] = status

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`."""
        return ",".join(one.bootstrap for one in self._statuses.values())

    @property
    def failures(self) -> list[BaseException]:
        """The failures that ended actors."""
        return self._world.failures

    def address(self, broker_id: int) -> tuple[str, int]:
        """Return the host and port where a broker listens."""
        _, host, port = self._statuses[broker_id].endpoints[0]
        return host, port

    def directory(self, broker_id: int) -> Path:
        """Return a broker's data directory."""
        return next(one.directory for one in self._plan.brokers if one.broker_id == broker_id)

    def partition_directory(self, broker_id: int, topic: str, partition: int) -> Path:
        """Return a broker's directory of a partition."""
        (found,) = (self.directory(broker_id) / "topics").glob(f"{topic}-{partition}.*")
        return found

    # ---- death and return ----------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """Kill a broker and its children, as SIGKILL would."""
        self.run(self._kill(broker_id))

    async def _kill(self, broker_id: int) -> None:
        own = [one for one in self._world.residents() if _is_of(one.ref.name, broker_id)]
        for resident in own:
            self._world.dismiss(resident.ref.name)
        for resident in own:  # released when their processes end
            match resident.actor:
                case BrokerActor() as broker:
                    await broker.stop()
                case GatewayActor() as gateway:
                    await gateway.stop()
                case ReplicaActor() as replica:
                    for partition in replica._partitions.values():
                        _let_go(partition)

    def shut_down(self, broker_id: int) -> None:
        """Stop a broker cleanly."""
        name = broker_name(self._plan.cluster_id, broker_id)
        self.run(self._runtime.call(name, "shutdown", timeout_ms=CALL_TIMEOUT_MS))
        self.kill(broker_id)

    def checkpoint(self, broker_id: int, topic: str) -> None:
        """Flush all of a broker's partitions of a topic and save their state."""
        self.run(self._checkpoint(broker_id, topic))

    async def _checkpoint(self, broker_id: int, topic: str) -> None:
        for (holder, _), partition in self.replicas(topic).items():
            log_manager = partition.host.log_manager
            if holder == broker_id and partition.work.begin(Task.FLUSH):
                await log_manager._flush_now(partition)
                await log_manager.checkpoint(partition)

    def start(self, broker_id: int) -> None:
        """Restart a broker and wait until it serves; raise the reason if it does not."""
        self._statuses[broker_id] = self.run(self._start(broker_id))

    async def _start(self, broker_id: int) -> BrokerStatus:
        plan = self._plan
        broker = next(one for one in plan.brokers if one.broker_id == broker_id)
        await self._runtime.spawn(
            broker_spec(
                cluster_id=plan.cluster_id,
                broker_id=broker_id,
                data=broker.directory,
                settings=broker.settings,
                broker_ids=[one.broker_id for one in plan.brokers],
                initial_voters=list(plan.initial_voters),
            )
        )
        name = broker_name(plan.cluster_id, broker_id)
        await self._runtime.call(name, "ready", READY_TIMEOUT_MS, timeout_ms=2 * READY_TIMEOUT_MS)
        status: BrokerStatus = await self._runtime.call(
            name, "describe", timeout_ms=CALL_TIMEOUT_MS
        )
        return status

    def stop(self) -> None:
        """Shut the cluster down cleanly."""
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        ids = [one.broker_id for one in self._plan.brokers]
        await stop_cluster(self._runtime, self._plan.cluster_id, ids)
        await self._world.stop()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    # ---- looking -------------------------------------------------------------------------

    def replicas(self, topic: str) -> dict[tuple[int, int], Partition]:
        """Return the open replicas by (broker id, partition), to be inspected only."""
        found = {}
        for resident in self._world.residents():
            if isinstance(resident.actor, ReplicaActor):
                for key, partition in resident.actor._partitions.items():
                    if partition.topic == topic:
                        found[_broker_of(resident.ref.name), key[1]] = partition
        return found

    def raw(self, partition: Partition) -> bytes:
        """Return a replica's batches up to its high watermark."""

        async def read() -> bytes:
            return raw_log(partition, partition.high_watermark)

        return self.run(read())


def _broker_of(name: str) -> int:
    return int(name.split("/")[2])


def _is_of(name: str, broker_id: int) -> bool:
    """Return whether an actor is a broker or one of its children, even a co-located one."""
    parts = name.split("/")
    return len(parts) > 3 and parts[1] != "controller" and int(parts[2]) == broker_id


def _let_go(partition: Partition) -> None:
    for segment in partition.log.state.segments:
        if segment.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(segment.fd)
            segment.fd = -1
