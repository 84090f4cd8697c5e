"""Who runs and who is started again: the supervisor's decisions, without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.client.errors import InvalidSetting
from raylog.client.parallel.effects import ProcessingFailed

_FOR_GOOD = (InvalidSetting, ProcessingFailed)
"""A task that ends so would end so again."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How a task that failed is started again."""

    backoff_ms: float = 500.0
    """First pause; it doubles with each failure."""
    backoff_max_ms: float = 30_000.0
    steady_after_ms: float = 60_000.0
    """A task that ran for so long has no failures behind it any more."""


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task under this index."""

    index: int


@dataclass(frozen=True, slots=True)
class StopTask:
    """Have a task drain, commit and end."""

    index: int


@dataclass(frozen=True, slots=True)
class EndAll:
    """A failure that restarts do not cure: stop all the rest, and tell."""

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
    """Tasks 0 to `wanted` - 1 are kept running."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.restarts = 0
        self._policy = policy
        self._wanted = 0
        self._tasks: dict[int, _Task] = {}
        self._is_ending = False

    @property
    def running(self) -> int:
        """Tasks that have not ended."""
        return sum(task.is_running for task in self._tasks.values())

    def next_due_ms(self) -> float:
        """When `tick` has something to start."""
        return min(
            (one.due_ms for one in self._tasks.values() if one.due_ms is not None),
            default=float("inf"),
        )

    def scale(self, wanted: int, now_ms: float) -> list[Step]:
        """Have so many tasks; the last ones go first."""
        if wanted < 0:
            raise InvalidSetting(f"expected 0 tasks or more, found {wanted}")
        self._wanted = wanted
        return self.tick(now_ms)

    def ended(self, index: int, failure: BaseException | None, now_ms: float) -> list[Step]:
        """A task has ended, well or not."""
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
        pause_ms = self._policy.backoff_ms * 2.0 ** min(task.failures, 60)
        task.failures += 1
        task.due_ms = now_ms + min(pause_ms, self._policy.backoff_max_ms)
        return self.tick(now_ms)

    def tick(self, now_ms: float) -> list[Step]:
        """Start what is due, stop what is not wanted."""
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
