"""Processes that make load, on this machine or on the nodes of a Ray cluster."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Protocol

from raylog.loadtest.jobs import WorkerJob

COMMAND = (sys.executable, "-m", "raylog.loadtest.load_process")
END_S = 10.0
"""How long a process may take to end after its standard input."""
_WORDS_MAX = 2_000


class Workers(Protocol):
    """The load processes of one run."""

    @property
    def count(self) -> int:
        """The number of processes."""

    @property
    def bind(self) -> str:
        """The address of this machine at which they reach it."""

    def start(self, job: WorkerJob) -> None:
        """Start the processes."""

    def lost(self) -> str | None:
        """How one of them ended, if one did."""

    def end(self) -> None:
        """End the processes that run."""


class LocalWorkers:
    """Processes on this machine."""

    bind = "127.0.0.1"

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, job: WorkerJob) -> None:
        """Start the processes."""
        first = job.model_dump_json()
        self._processes = [launched(first, stdout=subprocess.DEVNULL) for _ in range(self.count)]

    def lost(self) -> str | None:
        """How one of them ended, if one did."""
        for process in self._processes:
            code = process.poll()
            if code is not None:
                return f"process {process.pid} of the load {ended_by(code)}"
        return None

    def end(self) -> None:
        """End the processes that run."""
        for process in self._processes:
            end(process)
            forget(process)
        self._processes = []


class RayWorkers:
    """Processes started by actors, spread over the nodes of the Ray cluster of this driver."""

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
        """Start the processes, one node after another."""
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
        """How one of them ended, if one did."""
        import ray
        from ray.exceptions import RayError

        ended, _ = ray.wait(self._ends, timeout=0)
        for one in ended:
            index = self._ends.index(one)
            node = self._nodes[index % len(self._nodes)].address
            try:
                outcome = ray.get(one)
            except RayError as failure:
                outcome = f"is gone: {str(failure).strip().splitlines()[0]}"
            return f"process {index + 1} of {self.count} of the load, on {node}, {outcome}"
        return None

    def end(self) -> None:
        """End the processes that run."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._actors, self._ends = [], []


class WorkerHost:
    """An actor that runs a load process. gevent and Ray cannot share one."""

    def run(self, job: str) -> str:
        """Run a `WorkerJob` to its end. Returns how it ended. Its process ends with this actor."""
        process = launched(job, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None, "it is a pipe"
        words = process.stderr.read()[-_WORDS_MAX:].decode(errors="replace").strip()
        ended = ended_by(process.wait())
        forget(process)
        return f"{ended}: {words}"


def launched(first: str, *, stdout: int, stderr: int | None = None) -> subprocess.Popen[bytes]:
    """Start a process of a run with its first input line. Ctrl-C does not reach it."""
    process = subprocess.Popen(  # noqa: S603 - our own module
        COMMAND, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True
    )
    assert process.stdin is not None, "it is a pipe"
    process.stdin.write(first.encode() + b"\n")
    process.stdin.flush()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process by closing its standard input. Kill it if it does not end."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def forget(process: subprocess.Popen[bytes]) -> None:
    """Release what is left of a process that has ended."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def ended_by(code: int) -> str:
    """How a process ended, in words."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
