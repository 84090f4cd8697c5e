"""The supervisor's decisions about starting and restarting tasks, without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.client.errors import InvalidSetting
from raylog.client.parallel.effects import ProcessingFailed
from raylog.client.retries import backoff_ms

_FOR_GOOD = (InvalidSetting, ProcessingFailed)
"""Errors for which a restart is useless."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How a failed task is restarted."""

    backoff_ms: float = 500.0
    """First pause; it doubles with each failure."""
    backoff_max_ms: float = 30_000.0
    steady_after_ms: float = 60_000.0
    """A task that ran this long has its failure count reset."""


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task with this index."""

    index: int


@dataclass(frozen=True, slots=True)
class StopTask:
    """Make a task drain, commit and end."""

    index: int


@dataclass(frozen=True, slots=True)
class EndAll:
    """Stop all other tasks and raise an error for which restarts are useless."""

    error: BaseException


Step = StartTask | StopTask | EndAll


@dataclass(slots=True)
class _Task:
    is_running: bool = False
    is_stopping: bool = False
    started_ms: float = 0.0
    due_ms: float | None = None
    failures: int = 0


class Supervision:
    """Keeps tasks 0 to `wanted` - 1 running."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.restarts = 0
        self._policy = policy
        self._wanted = 0
        self._tasks: dict[int, _Task] = {}
        self._is_ending = False

    @property
    def running(self) -> int:
        """The number of tasks that have not ended."""
        return sum(task.is_running for task in self._tasks.values())

    def next_due_ms(self) -> float:
        """When `tick` has something to start."""
        return min(
            (one.due_ms for one in self._tasks.values() if one.due_ms is not None),
            default=float("inf"),
        )

    def scale(self, wanted: int, now_ms: float) -> list[Step]:
        """Change the number of tasks; the last ones stop first."""
        if wanted < 0:
            raise InvalidSetting(f"expected 0 tasks or more, found {wanted}")
        self._wanted = wanted
        return self.tick(now_ms)

    def ended(self, index: int, failure: BaseException | None, now_ms: float) -> list[Step]:
        """Handle the end of a task, with or without a failure."""
        task = self._tasks[index]
        ran_ms = now_ms - task.started_ms
        was_stopping, task.is_running, task.is_stopping = task.is_stopping, False, False
        if isinstance(failure, _FOR_GOOD) and not self._is_ending:
            self._is_ending, self._wanted = True, 0
            return [EndAll(failure), *self.tick(now_ms)]
        if failure is None and was_stopping:
            task.failures = 0
            task.due_ms = None
            return self.tick(now_ms)
        if ran_ms >= self._policy.steady_after_ms:
            task.failures = 0
        policy = self._policy
        task.due_ms = now_ms + backoff_ms(policy.backoff_ms, policy.backoff_max_ms, task.failures)
        task.failures += 1
        return self.tick(now_ms)

    def tick(self, now_ms: float) -> list[Step]:
        """Start tasks that are due, stop those not wanted."""
        steps: list[Step] = []
        for index in range(self._wanted):
            task = self._tasks.setdefault(index, _Task())
            if task.is_running or (task.due_ms is not None and task.due_ms > now_ms):
                continue
            self.restarts += task.due_ms is not None
            task.is_running, task.started_ms, task.due_ms = True, now_ms, None
            steps.append(StartTask(index))
        for index, task in self._tasks.items():
            if index >= self._wanted:
                task.due_ms = None
                if task.is_running and not task.is_stopping:
                    task.is_stopping = True
                    steps.append(StopTask(index))
        return steps
