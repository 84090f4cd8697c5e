"""A run of steps: machines, clients, and what was seen in each step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient, PartitionMetadata
from rich.console import Console

from tests.checker.history import load
from tests.checker.report import show
from tests.checker.workload import Plan, Workload
from tests.machines import commands
from tests.machines.machine import Machine
from tests.machines.machine_cluster import MachineCluster
from tests.machines.outages import Span, outages, table
from tests.machines.pipeline import Pipeline
from tests.support.librdkafka import QUICK
from tests.support.ray_clusters import wait_until

LEVEL_S = 300.0
"""The time until all replicas are in sync again."""
LOAD = Plan(
    producers=2,
    transactional=1,
    consumers=1,
    members=2,
    partitions=6,
    replicas=3,
    min_insync=2,
    records_per_s=20,
    probe_s=0.05,
    patience_s=1_200,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the machines."""

    do: Callable[[StepRun], None]
    limit_s: float | None = None
    """The longest allowed time without an acknowledged write to a partition; None: no limit."""
    ends_brokers: bool = False
    """Whether no brokers are left afterwards."""


@dataclass(slots=True)
class StepRun:
    """A run of steps."""

    cluster: MachineCluster
    console: Console
    began_s: float
    bootstrap: str = ""
    """The bootstrap servers; empty before there are brokers."""
    workload: Workload | None = None
    pipeline: Pipeline | None = None
    failures: list[str] = field(default_factory=list)
    """Failures, besides those that the history shows."""
    _spans: list[Span] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def say(self, text: str) -> None:
        """Print progress."""
        elapsed_s = time.monotonic() - self.began_s
        load = os.getloadavg()[0]
        self.console.print(f"[{elapsed_s:5.0f} s, load {load:4.1f}] {text}", markup=False)

    def run(self, name: str, step: Step) -> None:
        """Run one step, and then wait until all replicas are in sync, if there are brokers."""
        began_ns = time.monotonic_ns()
        try:
            step.do(self)
            if self.workload is not None and not step.ends_brokers:
                self.say(f"{name}: all replicas in sync {self.until_level():.1f} s later")
                self.cluster.head.run(commands.ELECT_LEADERS.format(bootstrap=self.bootstrap))
            if self.pipeline is not None and not step.ends_brokers:
                self.say(f"{name}: the pipeline wrote {self.pipeline.until_written():.1f} s later")
        finally:
            if self.workload is not None:
                self._spans.append(Span(name, began_ns, time.monotonic_ns(), step.limit_s))

    # ---- clients -------------------------------------------------------------------------

    def start_load(self) -> None:
        """Let clients write and read from here, outside of the machines, until `judge`."""
        folder = self.cluster.folder / "clients"
        folder.mkdir()
        self.workload = self._stack.enter_context(Workload(self.bootstrap, folder, LOAD))

    def until_level(self) -> float:
        """Wait until all replicas of all partitions are live and in sync. Returns the seconds."""
        return self._until(
            "all replicas in sync",
            lambda one, live: one.leader >= 0 and {*one.isrs} >= {*one.replicas} <= live,
        )

    def until_led_without(self, broker_id: int | None) -> float:
        """Wait until a broker counts as gone and others lead all partitions.

        Returns the seconds.
        """
        return self._until(
            "other leaders", lambda one, live: broker_id not in live and one.leader in live
        )

    def _until(self, what: str, holds: Callable[[PartitionMetadata, set[int]], bool]) -> float:
        """Wait until a condition holds for every partition, given the live brokers."""
        began = time.monotonic()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})

        def look() -> bool:
            time.sleep(0.5)
            metadata = admin.list_topics(timeout=10)
            found = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
            return all(holds(one, {*metadata.brokers}) for one in found)

        wait_until(look, what, LEVEL_S)
        return time.monotonic() - began

    def start_pipeline(self) -> None:
        """Start a Spark job that copies until `judge`. Its driver is on a worker."""
        folder = self.cluster.folder / "pipeline"
        folder.mkdir()
        machine = self.cluster.machines[self.cluster.workers[1]]
        self.pipeline = Pipeline(machine, self.bootstrap, folder)

    def judge(self) -> None:
        """Stop the clients, read everything, and judge what all of them saw."""
        if self.pipeline is not None:
            copied = self.pipeline.finish()
            self.say(str(copied))
            self.failures += [f"pipeline: {one}" for one in copied.wrong]
        if self.workload is None:
            return
        done, self.workload = self.workload, None
        self._stack.close()
        show(done.verdict, self.console)
        found = outages(load([done.path]).sends, self._spans)
        self.console.print(table(found))
        self.failures += done.failures
        if not done.verdict.valid:
            self.failures.append("the history checker found anomalies")
        self.failures += [
            f"{one.span.name}: {one.partition} was not written for {one.seconds:.1f} s"
            for one in found
            if one.is_too_long
        ]

    # ---- the cluster's own view ----------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The output of `raylog status` on the head."""
        found: dict[str, Any] = json.loads(self.cluster.head.run(f"{commands.STATUS} --json"))
        return found

    def led_by(self, machine: Machine) -> int:
        """How many of the clients' partitions a machine's broker leads."""
        assert self.workload is not None, "clients are at work"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})
        topic = self.workload.topic
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        return sum(one.leader == machine.broker_id for one in found)

    def until_managed(self) -> float:
        """Wait until `raylog status` shows every wanted broker. Returns the seconds."""
        began = time.monotonic()
        wait_until(lambda: not self.status()["failures"], "status without failures", LEVEL_S)
        return time.monotonic() - began

    def machine_of(self, broker_id: int) -> Machine:
        """The machine of a broker."""
        (found,) = [one for one in self.cluster.members() if one.broker_id == broker_id]
        return found
