"""Runs assignors: small assignments in place, others in separate processes.

Raylog's own assignors run in place while a group is small. Large groups, and all plug-ins, are
assigned in a separate process, so that an assignor that is slow, hangs, crashes or uses up memory
does not harm the coordinator. `assign` is then called twice. The first call raises
AssignmentUnderWay. When the work is done, the shell makes the group call again with the same
members and topics; this call returns the result or raises the assignor's error. If members or
topics have changed in the meantime, the second call starts another task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raylog.assignors.api import (
    Assignor,
    Member,
    MemberAssignment,
    PluginError,
    Topic,
    is_own,
    load,
    raised,
)
from raylog.assignors.checking import check

INLINE_WORK_MAX = 2_000
"""Size limit for in-place assignment, in partitions plus subscriptions; takes a few ms."""
WORKERS_MAX = 2
"""Concurrent processes; other assignments wait for one to end."""
TIMEOUT_MS = 10_000
"""Time limit for an assignor, including the start of its process."""

Assignment = dict[str, MemberAssignment]


class AssignmentUnderWay(PluginError):
    """Not a failure: the assignment is still being computed, and the group gets it later."""


@dataclass(frozen=True, slots=True)
class AssignTask:
    """One assignment to compute in a separate process."""

    group_id: str
    name: str
    """The assignor's name."""
    members: tuple[Member, ...]
    topics: dict[str, Topic]
    timeout_ms: int


@dataclass(slots=True)
class _Run:
    """The last task of a group, and its outcome once it has finished."""

    task: AssignTask
    outcome: Assignment | PluginError | None = None


class Assigning:
    """Runs assignors for the groups of one coordinator; the shell runs the tasks."""

    def __init__(self, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._timeout_ms = timeout_ms
        self._own: dict[str, bool] = {}  # by name; searching installed packages is slow
        self._loaded: dict[str, Assignor] = {}
        self._runs: dict[str, _Run] = {}  # by group id
        self._waiting: deque[AssignTask] = deque()
        self._running = 0

    def assign(
        self, group_id: str, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> Assignment:
        """Assign the partitions; `members` is sorted by id.

        Raises AssignmentUnderWay, or another PluginError if the assignor failed.
        """
        if self._is_own(name):
            # Apache Kafka's server-side assignors ignore racks, so these do too.
            topics = {topic.name: Topic(topic.name, topic.partitions) for topic in topics.values()}
            if _work(members, topics) <= INLINE_WORK_MAX:
                return self._assign_here(name, members, topics)
        task = AssignTask(group_id, name, tuple(members), dict(topics), self._timeout_ms)
        run = self._runs.get(group_id)
        if run is not None and run.task == task and run.outcome is not None:
            del self._runs[group_id]
            if isinstance(run.outcome, PluginError):
                raise run.outcome
            return run.outcome
        if run is None or run.outcome is not None:
            self._runs[group_id] = _Run(task)
            self._waiting.append(task)
        raise AssignmentUnderWay(f"assignor {name!r} is at work")

    def take_tasks(self) -> list[AssignTask]:
        """Return the tasks that the shell should start now; it calls `finished` for each."""
        taken = []
        while self._waiting and self._running < WORKERS_MAX:
            taken.append(self._waiting.popleft())
            self._running += 1
        return taken

    def finished(self, task: AssignTask, outcome: Assignment | PluginError) -> bool:
        """Record a task's outcome; return whether its group should call `assign` again."""
        self._running -= 1
        run = self._runs.get(task.group_id)
        if run is None or run.task is not task:
            return False
        run.outcome = outcome
        return True

    def forget(self, group_id: str) -> None:
        """Forget a group that was deleted or is now led elsewhere."""
        run = self._runs.pop(group_id, None)
        if run is not None and run.task in self._waiting:
            self._waiting.remove(run.task)

    def _is_own(self, name: str) -> bool:
        """Whether this is one of Raylog's own assignors."""
        known = self._own.get(name)
        if known is None:
            known = self._own[name] = is_own(name)
        return known

    def _assign_here(
        self, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> Assignment:
        """Call one of Raylog's own assignors. If it has a bug, only this assignment fails."""
        assignor = self._loaded.get(name)
        if assignor is None:
            assignor = self._loaded[name] = load(name)
        try:
            return assignor.assign(members, topics)
        except Exception as failure:
            raise raised(name, failure) from failure


def _work(members: Sequence[Member], topics: Mapping[str, Topic]) -> int:
    """Return the size of a group: its partitions and its members' subscriptions."""
    subscriptions = sum(len(member.topics) for member in members)
    return subscriptions + sum(topic.partitions for topic in topics.values())


def checked(task: AssignTask, found: Assignment, *, shares_partitions: bool) -> Assignment:
    """Check an assignor's result for a task and sort it; raises InvalidAssignment."""
    ids = {member.member_id for member in task.members}
    check(task.name, found, ids, task.topics, shares_partitions=shares_partitions)
    return {
        member_id: MemberAssignment(
            {topic: sorted(some) for topic, some in sorted(found[member_id].partitions.items())},
            found[member_id].user_data,
        )
        for member_id in sorted(found)
    }
