"""Workers that are Ray actors, placed by Ray. Only this module needs Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raylog.client.cluster import TopicPartition
from raylog.client.errors import InvalidSetting
from raylog.client.parallel.effects import Outcome
from raylog.client.parallel.interfaces import Began, Ran
from raylog.client.parallel.job import Job, failure_of
from raylog.client.parallel.policy import FailureKind
from raylog.client.parallel.workers.threads import STALLED
from raylog.extras import needs
from raylog.wire.record import Record

_OPTIONS: dict[str, object] = {"scheduling_strategy": "SPREAD", "max_restarts": 0}


class Runner:
    """The actor: runs the job, one call at a time."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def run(self, key: tuple[str, int], records: list[tuple[Any, ...]]) -> Outcome:
        """Run the function on records of one partition."""
        return self._job.run(TopicPartition(*key), [Record(*one) for one in records])


class RayWorkers:
    """Starts actors on demand. A lost actor is replaced, and another one retries its cell."""

    can_end = True

    def __init__(self, job: Job, options: Mapping[str, object] | None = None) -> None:
        """`options` are Ray's actor options, such as `num_cpus`. Ray must be connected."""
        self._job = job
        self._options = {**_OPTIONS, **(options or {})}
        self._idle: list[Any] = []
        self._actors: set[Any] = set()
        self._by_cell: dict[int, Any] = {}
        self._given_up: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    async def start(self, ran: Ran, fatal: Callable[[Exception], None], began: Began) -> None:
        """Import Ray; raise MissingExtra, or InvalidSetting without a connection to a cluster."""
        with needs("ray", "ParallelConsumer(worker_kind='ray')"):
            import ray
        if not ray.is_initialized():
            raise InvalidSetting("workers of kind ray need a Ray cluster: call ray.init() before")
        self._ray, self._ran, self._began = ray, ran, began
        self._loop = asyncio.get_running_loop()
        self._class = ray.remote(Runner).options(**self._options)
        self._job_ref = ray.put(self._job)

    def run(self, cell_id: int, key: TopicPartition, records: Sequence[Record]) -> bool:
        """Send the run to an idle actor or a new one."""
        is_new = not self._idle
        actor = self._new() if is_new else self._idle.pop()
        self._by_cell[cell_id] = actor
        started = actor.__ray_ready__.remote() if is_new else None
        call = actor.run.remote(tuple(key), [tuple(record) for record in records])
        task = self._loop.create_task(self._attend(cell_id, actor, started, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return not is_new

    def give_up(self, cell_id: int) -> None:
        """Kill the actor; its end is the answer."""
        actor = self._by_cell.get(cell_id)
        if actor is not None:
            self._given_up.add(cell_id)
            self._ray.kill(actor)

    async def close(self) -> None:
        """Kill all actors."""
        self._is_closing = True
        for actor in self._actors:
            self._ray.kill(actor)
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _new(self) -> Any:
        actor = self._class.remote(self._job_ref)
        self._actors.add(actor)
        return actor

    async def _attend(self, cell_id: int, actor: Any, started: Any, call: Any) -> None:
        """Wait for one run, and first for its actor if it is new."""
        outcome: Outcome
        try:
            if started is not None:
                await started
                self._began(cell_id)
            outcome = await call
            self._idle.append(actor)
        except self._ray.exceptions.RayTaskError as error:
            outcome = failure_of(error.cause or error)  # it could not be unpickled there, say
            self._idle.append(actor)
        except self._ray.exceptions.RayError as error:
            self._actors.discard(actor)
            self._ray.kill(actor)  # an unreachable actor may be alive: it must not continue
            outcome = failure_of(error, FailureKind.WORKER_LOST)
        del self._by_cell[cell_id]
        if cell_id in self._given_up:
            self._given_up.discard(cell_id)
            if actor in self._idle:
                self._idle.remove(actor)
                self._actors.discard(actor)
            outcome = STALLED
        if not self._is_closing:
            self._ran(cell_id, outcome)
