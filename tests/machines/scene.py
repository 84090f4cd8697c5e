"""A run of steps: machines, clients, what was seen in each step."""

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
from tests.checker.workload import QUICK, Plan, Workload
from tests.machines import commands
from tests.machines.machine import Machine
from tests.machines.outages import Span, outages, table
from tests.machines.pipeline import Pipeline
from tests.machines.site import Site
from tests.support.ray_clusters import wait_until

LEVEL_S = 300.0
"""For all replicas to be in sync again."""
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
    """Something that is done to the machines."""

    do: Callable[[Scene], None]
    limit_s: float | None = None
    """How long a partition may be without an acknowledged write; None: it is only stated."""
    ends_brokers: bool = False
    """Whether there are none afterwards."""


@dataclass(slots=True)
class Scene:
    """A run of steps."""

    site: Site
    console: Console
    began_s: float
    bootstrap: str = ""
    """Of the brokers; empty before there are any."""
    workload: Workload | None = None
    pipeline: Pipeline | None = None
    failures: list[str] = field(default_factory=list)
    """What must not be, beside what the history tells."""
    _spans: list[Span] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def say(self, text: str) -> None:
        """Progress."""
        elapsed_s = time.monotonic() - self.began_s
        load = os.getloadavg()[0]
        self.console.print(f"[{elapsed_s:5.0f} s, load {load:4.1f}] {text}", markup=False)

    def run(self, name: str, step: Step) -> None:
        """One step; then all replicas are in sync, if there are brokers."""
        began_ns = time.monotonic_ns()
        try:
            step.do(self)
            if self.workload is not None and not step.ends_brokers:
                self.say(f"{name}: all replicas in sync {self.until_level():.1f} s later")
                self.site.head.run(commands.ELECT_LEADERS.format(bootstrap=self.bootstrap))
            if self.pipeline is not None and not step.ends_brokers:
                self.say(f"{name}: the pipeline wrote {self.pipeline.until_written():.1f} s later")
        finally:
            if self.workload is not None:
                self._spans.append(Span(name, began_ns, time.monotonic_ns(), step.limit_s))

    # ---- clients -------------------------------------------------------------------------

    def start_load(self) -> None:
        """Have clients write and read, from here, a place of its own, until `judge`."""
        folder = self.site.folder / "clients"
        folder.mkdir()
        self.workload = self._stack.enter_context(Workload(self.bootstrap, folder, LOAD))

    def until_level(self) -> float:
        """Wait until every partition has all replicas in sync, all of them live; the seconds."""
        return self._until(
            "all replicas in sync",
            lambda one, live: one.leader >= 0 and {*one.isrs} >= {*one.replicas} <= live,
        )

    def until_led_without(self, broker_id: int | None) -> float:
        """Wait until a broker counts as gone, and others lead all partitions; the seconds."""
        return self._until(
            "other leaders", lambda one, live: broker_id not in live and one.leader in live
        )

    def _until(self, what: str, holds: Callable[[PartitionMetadata, set[int]], bool]) -> float:
        """Wait until something holds of every partition, given the live brokers."""
        began = time.monotonic()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})

        def look() -> bool:
            time.sleep(0.5)
            told = admin.list_topics(timeout=10)
            found = [one for topic in told.topics.values() for one in topic.partitions.values()]
            return all(holds(one, {*told.brokers}) for one in found)

        wait_until(look, what, LEVEL_S)
        return time.monotonic() - began

    def start_pipeline(self) -> None:
        """Have a Spark job copy from topic to topic until `judge`; its driver is on a worker."""
        folder = self.site.folder / "pipeline"
        folder.mkdir()
        machine = self.site.machines[self.site.workers[1]]
        self.pipeline = Pipeline(machine, self.bootstrap, folder)

    def judge(self) -> None:
        """End the clients, have one read everything, and judge what all of them saw."""
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

    # ---- the cluster as it says it is ----------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What `raylog status` says on the head."""
        found: dict[str, Any] = json.loads(self.site.head.run(f"{commands.STATUS} --json"))
        return found

    def led_by(self, machine: Machine) -> int:
        """How many of the clients' partitions a machine's broker leads."""
        assert self.workload is not None, "clients are at work"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})
        topic = self.workload.topic
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        return sum(one.leader == machine.broker_id for one in found)

    def until_managed(self) -> float:
        """Wait until `raylog status` finds every broker that shall run; the seconds it took."""
        began = time.monotonic()
        wait_until(lambda: not self.status()["failures"], "status without failures", LEVEL_S)
        return time.monotonic() - began

    def machine_of(self, broker_id: int) -> Machine:
        """Where a broker runs."""
        (found,) = [one for one in self.site.members() if one.broker_id == broker_id]
        return found
