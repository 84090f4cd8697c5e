"""Faults of a cluster that `raylog up` started on this machine.

| fault | target | action |
|---|---|---|
| kill-leader | all processes of the broker that leads partition 0 of a topic | SIGKILL |
| kill-coordinator | the coordinator of the first group, or of transactions | SIGKILL |
| kill-controller | the controller and every process that considers itself one | SIGKILL |
| pause-broker | as kill-leader | SIGSTOP, and SIGCONT after `lasts_s` |
| roll | all brokers, then the controller | `raylog brokers restart --all` |

Killed processes restart with their data.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from raylog.actors.names import CONTROLLER, GROUP, TRANSACTION
from raylog.client import Admin
from raylog.cluster_record import ClusterRecord
from raylog.loadtest.scenario import Fault, GroupUsers, Scenario

PAUSE_S = 10.0
"""The default duration of a pause. It is longer than a broker's session."""
COORDINATOR_STARTS_S = 10.0
POLL_S = 0.2
_ROLL_S = 600.0


class FaultFailed(Exception):
    """A fault could not be carried out. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a scenario's topics and groups in a run."""

    topics: dict[str, str]
    groups: dict[str, str]
    transactional_id: str | None = None
    """The transactional id of some user with transactions."""


@dataclass(slots=True)
class Striker:
    """Carries out faults one after another. This process is a driver of the cluster's Ray."""

    record: ClusterRecord
    data: Path
    scenario: Scenario
    names: Names
    client: dict[str, object] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    def strike(self, fault: Fault) -> str:
        """Carry out a fault. Returns a description when it is over. Raises FaultFailed."""
        match fault.kind:
            case "kill-leader":
                broker_id, pids = self._leader(fault)
                _send(signal.SIGKILL, pids)
                return f"broker {broker_id} killed, {len(pids)} processes"
            case "kill-coordinator":
                return self._kill_coordinator()
            case "kill-controller":
                pids = self._controllers()
                _send(signal.SIGKILL, pids)
                return f"controller killed, process {', '.join(map(str, pids))}"
            case "pause-broker":
                return self._pause(fault)
            case "roll":
                return self._roll()

    def end(self) -> None:
        """End a lasting fault: resume a paused broker."""
        self._ended.set()

    # ---- actions -------------------------------------------------------------------------

    def _pause(self, fault: Fault) -> str:
        broker_id, pids = self._leader(fault)
        lasts_s = fault.lasts_s or PAUSE_S
        try:
            _send(signal.SIGSTOP, pids)
            self._ended.wait(lasts_s)
        finally:
            _send(signal.SIGCONT, pids)
        return f"broker {broker_id} stopped for {lasts_s:g} s"

    def _kill_coordinator(self) -> str:
        """Kill a coordinator, waiting a moment if its broker has just started and has none yet."""
        role, who = self._coordinated()
        deadline = time.monotonic() + COORDINATOR_STARTS_S
        while True:
            broker_id = self._coordinator(role, who)
            pids = [pid for found, pid in self._children(broker_id) if found == role]
            if pids:
                _send(signal.SIGKILL, pids)
                return f"coordinator of {who} killed, process {pids[0]} of broker {broker_id}"
            if time.monotonic() > deadline or self._ended.wait(POLL_S):
                raise FaultFailed(f"broker {broker_id} has no process that coordinates {who}")

    def _coordinator(self, role: str, who: str) -> int:
        with self._admin() as admin:
            if role == GROUP:
                return admin.find_coordinators([who])[who].node_id
            return admin.describe_transaction(who).coordinator

    def _coordinated(self) -> tuple[str, str]:
        group = next(
            (one.group for one in self.scenario.users if isinstance(one, GroupUsers)), None
        )
        if group is not None:
            return GROUP, self.names.groups[group]
        if self.names.transactional_id is not None:
            return TRANSACTION, self.names.transactional_id
        raise FaultFailed(
            "there is no coordinator: the scenario has neither groups nor transactions"
        )

    def _roll(self) -> str:
        command = [sys.executable, "-m", "raylog.cli", "brokers", "restart", "--all"]
        done = subprocess.run(  # noqa: S603 - our own command
            [*command, "--data", str(self.data)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_ROLL_S,
        )
        if done.returncode:
            raise FaultFailed(f"raylog brokers restart: {done.stderr.strip()}")
        return "all brokers restarted"

    # ---- targets -------------------------------------------------------------------------

    def _leader(self, fault: Fault) -> tuple[int, list[int]]:
        """The leader of partition 0 of the fault's topic, or of the first one; its processes."""
        name = fault.topic or next(iter(self.scenario.topics))
        topic = self.names.topics[name]
        with self._admin() as admin:
            leader = admin.describe_topic(topic).partitions[0].leader
        if leader is None or leader < 0:
            raise FaultFailed(f"partition 0 of {topic} has no leader")
        return leader, sorted({pid for _, pid in self._children(leader)})

    def _children(self, broker_id: int) -> list[tuple[str, int]]:
        """(role, pid) of a broker and each of its actors. Some share a process."""
        from raylog.actors.cluster import describe_cluster
        from raylog.actors.names import BROKER
        from raylog.actors.runtime.base import PeerLost, PeerTimeout
        from raylog.actors.runtime.ray import RayRuntime

        runtime = RayRuntime.of_driver(self.record.secret_path)
        try:
            (status,) = asyncio.run(describe_cluster(runtime, self.record.cluster_id, [broker_id]))
        except (PeerLost, PeerTimeout) as failure:
            raise FaultFailed(f"broker {broker_id} does not answer: {failure}") from failure
        return [(BROKER, status.pid), *((one.role, one.pid) for one in status.children if one.pid)]

    def _controllers(self) -> list[int]:
        from raylog.actors.runtime.ray_node import actors_named

        prefix = f"{self.record.cluster_id}/{CONTROLLER}"
        pids = [one.pid for one in actors_named(prefix) if one.state == "ALIVE" and one.pid]
        if not pids:
            raise FaultFailed("no controller is running")
        return pids

    @contextmanager
    def _admin(self) -> Iterator[Admin]:
        with Admin({**self.client, "bootstrap.servers": ",".join(self.record.bootstrap)}) as admin:
            yield admin


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to processes. Processes that are gone are ignored."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
