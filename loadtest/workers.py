"""Processes that make load: on this machine, or on the nodes of a Ray cluster."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Protocol

from raylog.loadtest.jobs import WorkerJob

COMMAND = (sys.executable, "-m", "raylog.loadtest.load_process")
END_S = 10.0
"""How long a process may take to end when its standard input has."""
_WORDS_MAX = 2_000


class Workers(Protocol):
    """Processes that make the load of one run."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def bind(self) -> str:
        """The address of this machine that they reach."""

    def start(self, job: WorkerJob) -> None:
        """Start them."""

    def lost(self) -> str | None:
        """What became of one that ended, if one did."""

    def end(self) -> None:
        """End them; harmless when they have ended."""


class LocalWorkers:
    """On this machine."""

    bind = "127.0.0.1"

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, job: WorkerJob) -> None:
        """Start them."""
        first = job.model_dump_json()
        self._processes = [launched(first, stdout=subprocess.DEVNULL) for _ in range(self.count)]

    def lost(self) -> str | None:
        """What became of one that ended, if one did."""
        for process in self._processes:
            code = process.poll()
            if code is not None:
                return f"process {process.pid}, which made load, {ended_by(code)}"
        return None

    def end(self) -> None:
        """End them."""
        for process in self._processes:
            end(process)
            forget(process)
        self._processes = []


class RayWorkers:
    """As actors, spread over the nodes of a Ray cluster that this process is a driver of."""

    def __init__(self, count: int) -> None:
        import ray

        from raylog.actors.runtime.ray_node import live_nodes

        self.count = count
        here = ray.get_runtime_context().get_node_id()
        nodes = sorted(live_nodes(), key=lambda node: (node.node_id == here, node.node_id))
        self._nodes = nodes
        self.bind = next(node.address for node in nodes if node.node_id == here)
        self._actors: list[Any] = []
        self._ends: list[Any] = []

    def start(self, job: WorkerJob) -> None:
        """Start them, on one node after the other."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        host: Any = ray.remote(WorkerHost)
        for index in range(self.count):
            node = self._nodes[index % len(self._nodes)]
            place = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            actor = host.options(num_cpus=0, scheduling_strategy=place).remote()
            self._actors.append(actor)
            self._ends.append(actor.run.remote(job.model_dump_json()))

    def lost(self) -> str | None:
        """What became of one that ended, if one did."""
        import ray
        from ray.exceptions import RayError

        ended, _ = ray.wait(self._ends, timeout=0)
        for one in ended:
            index = self._ends.index(one)
            node = self._nodes[index % len(self._nodes)].address
            try:
                told = ray.get(one)
            except RayError as failure:
                told = f"is gone: {str(failure).strip().splitlines()[0]}"
            return f"process {index + 1} of {self.count} that made load, on {node}, {told}"
        return None

    def end(self) -> None:
        """End them."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._actors, self._ends = [], []


class WorkerHost:
    """An actor with a process that makes load: gevent and Ray do not share one."""

    def run(self, job: str) -> str:
        """Run a `WorkerJob` to its end; returns what became of it. The process ends with this."""
        process = launched(job, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None, "it is a pipe"
        words = process.stderr.read()[-_WORDS_MAX:].decode(errors="replace").strip()
        ended = ended_by(process.wait())
        forget(process)
        return f"{ended}: {words}"


def launched(first: str, *, stdout: int, stderr: int | None = None) -> subprocess.Popen[bytes]:
    """A process of a run, which is told what to do by a first line. Ctrl-C does not reach it."""
    process = subprocess.Popen(  # noqa: S603 - our own module
        COMMAND, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True
    )
    assert process.stdin is not None, "it is a pipe"
    process.stdin.write(first.encode() + b"\n")
    process.stdin.flush()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that ends with its standard input; kill it if it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def forget(process: subprocess.Popen[bytes]) -> None:
    """Close what is left of a process that has ended."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def ended_by(code: int) -> str:
    """How a process ended, in words."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
