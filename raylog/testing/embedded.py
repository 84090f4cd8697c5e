"""The embedded broker: a whole cluster on one event loop in a thread of this process, without Ray.

It runs the same code as a cluster on Ray: controller, brokers, gateways and replicas with real logs
on disk and real sockets. Only the runtime differs.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from raylog.actors.broker.messages import BrokerStatus
from raylog.actors.cluster import identities, plan_cluster, start_cluster, stop_cluster
from raylog.actors.config import BrokerSettings
from raylog.actors.config.agreement import check_agreement
from raylog.actors.endpoints import endpoint_of
from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, REPLICA, broker_name
from raylog.actors.roles import role_class
from raylog.actors.runtime.base import Runtime
from raylog.actors.runtime.inproc import InprocWorld

for _role in (CONTROLLER, BROKER, GATEWAY, REPLICA):
    role_class(_role)  # loaded with this module, so that starting a broker is fast
HOST = "127.0.0.1"
STOP_TIMEOUT_S = 60.0
TEST_SETTINGS = {
    "metadata.log.fsync": "false",
    "replica.actors.spare": "0",
    "gateway.in.replica.process": "false",
    "group.initial.rebalance.delay.ms": "0",
}
"""A test's cluster does not have to survive a power loss, needs no warm spare processes, and does
not delay the first member of a group."""


class EmbeddedBroker:
    """A cluster of `brokers` brokers. It is ready when the `with` block begins.

    `settings` are broker settings with Kafka's names. Without `data` everything is in a temporary
    directory, which is removed at the end. With it, a later EmbeddedBroker finds the data again.
    `racks` are assigned to the brokers in turn. `port` is the port of the first broker, and the
    others have the following ports; 0 means free ports. A setting `listeners` that other machines
    can reach needs `insecure=True`. An instance can be started once: create another one for a
    second cluster or for the same data.

        with EmbeddedBroker() as broker:
            Producer({"bootstrap.servers": broker.bootstrap})
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        data: str | Path | None = None,
        port: int = 0,
        first_broker_id: int = 0,
        racks: Sequence[str] = (),
        insecure: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"expected 1 broker or more, found {brokers}")
        for name, text in (settings or {}).items():
            if not isinstance(text, str):
                raise TypeError(f"setting {name}: expected a str as in Kafka, found {text!r}")
        self._brokers = brokers
        self._settings = {**TEST_SETTINGS, **(settings or {})}
        self._data = None if data is None else Path(data)
        self._port = port
        self._first_broker_id = first_broker_id
        self._racks = racks
        self._insecure = insecure
        self._started: Future[list[BrokerStatus]] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._runtime: Runtime | None = None
        self._cluster_id = ""

    @property
    def statuses(self) -> list[BrokerStatus]:
        """The brokers' statuses when they became ready, by broker id."""
        if not self._started.done():
            raise RuntimeError("the embedded broker was not started: use `with`, or call start()")
        return self._started.result()

    @property
    def bootstrap(self) -> str:
        """`host:port` of every broker, separated by commas, for `bootstrap.servers`."""
        return ",".join(self.bootstrap_servers)

    @property
    def bootstrap_servers(self) -> list[str]:
        """`host:port` of every broker."""
        return [status.bootstrap for status in self.statuses]

    @property
    def metrics_urls(self) -> list[str]:
        """The Prometheus URL of each broker with the setting `health.listener`."""
        return [f"http://{one.http}/metrics" for one in self.statuses if one.http]

    def bootstrap_of(self, listener: str) -> str:
        """`host:port` of every broker with a listener, on that listener."""
        found = [endpoint_of(status.endpoints, listener) for status in self.statuses]
        return ",".join(one.address for one in found if one is not None)

    def start(self) -> Self:
        """Start and wait until every broker serves. Raises the error of a broker that fails."""
        if self._thread is not None:
            raise RuntimeError("this embedded broker was started before: make another one")
        if self._data is not None:
            self._data.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="raylog-embedded", daemon=True)
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def stop(self) -> None:
        """Shut down cleanly and wait for it. Does nothing if already stopped."""
        if self._thread is None or not self._thread.is_alive():
            return
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the embedded broker did not stop within {STOP_TIMEOUT_S:g} s")

    def stop_broker(self, broker_id: int) -> None:
        """Shut one broker down cleanly and wait for it. The others take over its partitions."""
        assert self._loop is not None
        assert self._runtime is not None
        call = self._runtime.call(
            broker_name(self._cluster_id, broker_id),
            "shutdown",
            timeout_ms=int(1_000 * STOP_TIMEOUT_S),
        )
        asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def _run(self) -> None:
        """Run the thread, which owns the event loop and the temporary directory."""
        temporary = None if self._data else tempfile.mkdtemp(prefix="raylog-")
        data = self._data or Path(temporary or "")
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._live(data))
        except BaseException as failure:
            if self._started.done():
                raise
            self._started.set_exception(failure)
        finally:
            if temporary is not None:
                shutil.rmtree(temporary)

    async def _live(self, data: Path) -> None:
        check_agreement(BrokerSettings(self._settings).raw)
        world = InprocWorld(role_class)
        runtime = world.runtime()
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        count = max(self._brokers, len(identities(data)))
        plan = plan_cluster(
            data,
            runtime,
            host=HOST,
            ports=[self._port + n if self._port else 0 for n in range(count)],
            first_broker_id=self._first_broker_id,
            settings=self._settings,
            racks=self._racks,
            insecure=self._insecure,
        )
        self._runtime, self._cluster_id = runtime, plan.cluster_id
        try:
            self._started.set_result(await start_cluster(runtime, plan))
            await self._stopping.wait()
        finally:
            await stop_cluster(runtime, plan.cluster_id, [one.broker_id for one in plan.brokers])
            await world.stop()
        for failure in world.failures:
            raise failure
