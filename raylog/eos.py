"""Exactly-once processing from topics to topics: read, transform, write.

    def fn(record: ConsumerRecord) -> ProducerRecord | None: ...

    with process("orders", "invoices", fn, group="billing", config="localhost:9092") as running:
        running.scale(3)
        running.wait()

Each task is a member of the group and has its own transactional producer. The results of `fn` and
the offsets of the records that they come from are committed in one transaction. The coordinator
rejects the commit of a member that has lost its partitions (KIP-447). Readers of committed records
therefore see the results of each record exactly once, whatever crashes.
"""

from __future__ import annotations

import difflib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from raylog.client.callables import argument_names
from raylog.client.errors import InvalidSetting
from raylog.client.parallel.consumer import ParallelConsumer
from raylog.client.parallel.effects import Statistics
from raylog.client.parallel.policy import check_topics
from raylog.client.parallel.supervision import (
    EndAll,
    RestartPolicy,
    StartTask,
    Step,
    StopTask,
    Supervision,
)
from raylog.client.setting_parsing import Config
from raylog.extras import check

__all__ = ["Processing", "RestartPolicy", "process"]

log = logging.getLogger(__name__)
_TRANSACTION_TIMEOUT_MS = 15_000
_COMMIT_INTERVAL_MS = 100.0
_KINDS = ("thread", "ray")
_ACTOR_CALLS = 4
"""Calls of an actor at a time: `run` takes one for as long as the task lives."""

Ended = Callable[[int, BaseException | None], None]


def process(
    source: str | Iterable[str],
    sink: str,
    fn: Callable[..., object],
    *,
    group: str,
    config: Config = None,
    tasks: int = 1,
    kind: str = "thread",
    restart: RestartPolicy | None = None,
    transactional_id_prefix: str | None = None,
    transaction_timeout_ms: int = _TRANSACTION_TIMEOUT_MS,
    commit_interval_ms: float = _COMMIT_INTERVAL_MS,
    actor_options: Mapping[str, object] | None = None,
    **options: Any,
) -> Processing:
    """Start to process `source` into `sink`. Returns immediately.

    `fn` returns None, a value, a ProducerRecord (of any topic), or several. `tasks` of `kind`
    "thread" run in this process, those of kind "ray" as actors on any node; a task that fails is
    restarted. A record that fails all attempts goes to the dead-letter topic, in the transaction.

    With `transactional_id_prefix`, the producers have the same transactional ids after a restart,
    which then aborts open transactions immediately instead of after `transaction_timeout_ms`. Two
    processes must not share a prefix. Other options are those of ParallelConsumer.
    """
    if not isinstance(source, Iterable):
        raise InvalidSetting(f"expected source to be a topic or several, found {source!r}")
    topics = [source] if isinstance(source, str) else list(source)
    check_topics("sink", [sink])
    _check_options(options)
    if kind not in _KINDS:
        raise InvalidSetting(f"expected kind to be one of {', '.join(_KINDS)}; found {kind!r}")
    if kind == "ray":
        check("ray", "raylog.eos.process(kind='ray')")
    arguments = {
        "config": config,
        "topics": topics,
        "fn": fn,
        "sink": sink,
        "group_id": group,
        "transaction_timeout_ms": transaction_timeout_ms,
        "commit_interval_ms": commit_interval_ms,
        **options,
    }
    prefix = transactional_id_prefix or f"{group}-{uuid.uuid4().hex[:12]}"
    _made(arguments, f"{prefix}-0")  # what makes no sense is raised here
    made = Processing(arguments, prefix, kind, restart or RestartPolicy(), actor_options or {})
    made.scale(tasks)
    return made


class Processing:
    """The tasks, and their supervisor, which is a thread of this process."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        prefix: str,
        kind: str,
        restart: RestartPolicy,
        actor_options: Mapping[str, object],
    ) -> None:
        self._arguments = arguments
        self._prefix = prefix
        self._kind = kind
        self._actor_options = actor_options
        self._supervision = Supervision(restart)
        self._running: dict[int, _Task] = {}
        self._events: queue.SimpleQueue[Callable[[float], list[Step]]] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._supervise, name="raylog eos", daemon=True)
        self._thread.start()

    def scale(self, tasks: int) -> None:
        """Change the number of tasks; excess tasks drain, commit and leave. Thread-safe."""
        if tasks < 0:
            raise InvalidSetting(f"expected 0 tasks or more, found {tasks}")
        self._events.put(lambda now_ms: self._supervision.scale(tasks, now_ms))

    @property
    def restarts(self) -> int:
        """How often tasks were restarted."""
        return self._supervision.restarts

    def statistics(self) -> dict[int, Statistics]:
        """Statistics by task, of the tasks that answer now."""
        found = {index: task.statistics() for index, task in dict(self._running).items()}
        return {index: one for index, one in found.items() if one is not None}

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return False on timeout. Raises the failure that ended it, if any."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, timeout_s: float | None = None) -> None:
        """Let all tasks drain and commit, and wait until they have ended."""

        def end(now_ms: float) -> list[Step]:
            self._is_stopping = True
            return self._supervision.scale(0, now_ms)

        self._events.put(end)
        self.wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _supervise(self) -> None:
        """Run the supervisor. If it fails, `wait` raises the cause and all tasks stop."""
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._failure = error
            for task in self._running.values():
                task.stop()

    def _run(self) -> None:
        """Handle events until the last task has ended."""
        supervision = self._supervision
        while not (self._is_stopping and supervision.running == 0):
            left_ms = supervision.next_due_ms() - _now_ms()
            try:
                event = self._events.get(
                    timeout=None if left_ms == float("inf") else max(0.0, left_ms / 1000)
                )
            except queue.Empty:
                event = supervision.tick
            for step in event(_now_ms()):
                self._carry_out(step)

    def _carry_out(self, step: Step) -> None:
        match step:
            case StartTask(index):
                self._start(index)
            case StopTask(index):
                if index in self._running:  # else it could not be started, or has just ended
                    self._running[index].stop()
            case EndAll(error):
                self._failure, self._is_stopping = error, True

    def _start(self, index: int) -> None:
        arguments, own_id = self._arguments, f"{self._prefix}-{index}"
        try:
            if self._kind == "ray":
                task: _Task = _ActorTask(arguments, own_id, self._actor_options)
            else:
                task = _ThreadTask(arguments, own_id)
        except Exception as error:  # noqa: BLE001  # of Ray, say: as if the task had run
            self._ended(index, error)
            return
        self._running[index] = task
        task.start(index, self._ended)

    def _ended(self, index: int, failure: BaseException | None) -> None:
        """Record the end of a task. Ray's own threads call this too, so it must not block."""
        if failure is not None:
            log.warning("task %d of %s failed: %r", index, self._prefix, failure)

        def ended(now_ms: float) -> list[Step]:
            task = self._running.pop(index, None)
            if task is not None:
                task.close()
            return self._supervision.ended(index, failure, now_ms)

        self._events.put(ended)


class _Task(Protocol):
    def start(self, index: int, ended: Ended) -> None: ...

    def stop(self) -> None: ...

    def statistics(self) -> Statistics | None: ...

    def close(self) -> None:
        """Release the resources of a task that has ended."""


class _ThreadTask:
    """A task as a thread with its own event loop."""

    def __init__(self, arguments: Mapping[str, Any], transactional_id: str) -> None:
        self._consumer = _made(arguments, transactional_id)

    def start(self, index: int, ended: Ended) -> None:
        threading.Thread(
            target=self._run, args=(index, ended), name=f"raylog eos {index}", daemon=True
        ).start()

    def stop(self) -> None:
        self._consumer.stop()

    def statistics(self) -> Statistics | None:
        return self._consumer.statistics()

    def close(self) -> None:
        """Do nothing: the thread has released everything."""

    def _run(self, index: int, ended: Ended) -> None:
        failure: BaseException | None = None
        try:
            self._consumer.run()
        except BaseException as error:  # noqa: BLE001  # the supervisor decides
            failure = error
        ended(index, failure)


class TaskActor:
    """A task as a Ray actor."""

    def __init__(self, arguments: Mapping[str, Any], transactional_id: str) -> None:
        self._consumer = _made(arguments, transactional_id)

    def run(self) -> None:
        """Process until `stop`."""
        self._consumer.run()

    def stop(self) -> None:
        """Drain, commit and end `run`."""
        self._consumer.stop()

    def statistics(self) -> Statistics:
        """Counts of this task."""
        return self._consumer.statistics()


class _ActorTask:
    """The supervisor's handle of a task that is a Ray actor."""

    def __init__(
        self, arguments: Mapping[str, Any], transactional_id: str, options: Mapping[str, object]
    ) -> None:
        import ray

        if not ray.is_initialized():
            raise InvalidSetting("tasks of kind ray need a Ray cluster: call ray.init() before")
        self._ray = ray
        made: Any = ray.remote(TaskActor).options(
            scheduling_strategy="SPREAD", max_restarts=0, max_concurrency=_ACTOR_CALLS, **options
        )
        self._actor: Any = made.remote(dict(arguments), transactional_id)

    def start(self, index: int, ended: Ended) -> None:
        future = self._actor.run.remote().future()
        future.add_done_callback(lambda done: self._run_ended(index, done.exception(), ended))

    def stop(self) -> None:
        self._actor.stop.remote()

    def statistics(self) -> Statistics | None:
        try:
            found: Statistics = self._ray.get(self._actor.statistics.remote(), timeout=5)
        except (self._ray.exceptions.RayError, TimeoutError):
            return None  # it is being replaced
        return found

    def close(self) -> None:
        """Kill the actor, which may be alive though it cannot be reached."""
        self._ray.kill(self._actor)

    def _run_ended(self, index: int, failure: BaseException | None, ended: Ended) -> None:
        cause = failure.cause if isinstance(failure, self._ray.exceptions.RayTaskError) else None
        ended(index, cause or failure)


def _check_options(options: Mapping[str, object]) -> None:
    """Raise InvalidSetting for an option that looks like a misspelt argument of `process`."""
    own, others = argument_names(process), argument_names(ParallelConsumer)
    for name in options:
        meant = difflib.get_close_matches(name, own, 1, 0.8)
        if meant and name not in others:
            raise InvalidSetting(f"unknown argument {name!r}: the nearest is {meant[0]!r}")


def _made(arguments: Mapping[str, Any], transactional_id: str) -> ParallelConsumer:
    named = dict(arguments)
    config, topics, fn = named.pop("config"), named.pop("topics"), named.pop("fn")
    return ParallelConsumer(config, topics, fn, transactional_id=transactional_id, **named)


def _now_ms() -> float:
    return time.monotonic() * 1000
