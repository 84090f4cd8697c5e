"""Access to the files of one log: tasks may run concurrently, or one has the log to itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum

Callback = Callable[[], None]


class Task(IntEnum):
    """Kinds of tasks that may run concurrently."""

    FLUSH = 0
    CHECKPOINT = 1
    CLEAN = 2
    CHECK = 3
    """Checks a slice not read since the log was opened; a reader waits for it."""
    LOAD_INDEX = 4
    """A reader waits for it too."""
    PARTITION_FILE = 5


class LogWork:
    """Registers the work on one log's files; threads do only what was begun here.

    Truncating and closing need the log to themselves. Once one of them is queued no task begins,
    and it waits for those that run.
    """

    __slots__ = ("_is_held", "_line", "_on_release", "_running")

    def __init__(self) -> None:
        self._running = [0] * len(Task)
        self._line: deque[Callback] = deque()
        self._is_held = False
        self._on_release: list[Callback] = []

    @property
    def is_reserved(self) -> bool:
        """Whether the log is exclusively held or queued for: no task may begin."""
        return self._is_held or bool(self._line)

    @property
    def has_readers_waiting(self) -> bool:
        """Whether a thread reads something that a reader waits for."""
        return self._running[Task.CHECK] > 0 or self._running[Task.LOAD_INDEX] > 0

    def runs(self, task: Task) -> bool:
        """Whether a task of this kind is running."""
        return self._running[task] > 0

    def begin(self, task: Task) -> bool:
        """Register a task, to be ended later; False, without effect, while the log is reserved."""
        if self._is_held or self._line:
            return False
        self._running[task] += 1
        return True

    def end(self, task: Task) -> None:
        """End a task."""
        assert self._running[task] > 0, f"no {task.name} runs"
        self._running[task] -= 1
        self._grant()

    def reserve(self, granted: Callback) -> None:
        """Queue for exclusive use; `granted` is called when nothing else runs, perhaps at once."""
        self._line.append(granted)
        self._grant()

    def release(self) -> None:
        """End exclusive use: the next in the queue gets the log, or tasks may begin again."""
        assert self._is_held, "nobody has the log to itself"
        self._is_held = False
        callbacks, self._on_release = self._on_release, []
        self._grant()
        for callback in callbacks:
            callback()

    def on_release(self, callback: Callback) -> None:
        """Call back once at the next `release`; a log being closed is never released."""
        self._on_release.append(callback)

    def _grant(self) -> None:
        if self._line and not self._is_held and not any(self._running):
            self._is_held = True
            self._line.popleft()()
