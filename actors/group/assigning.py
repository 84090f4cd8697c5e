"""Assignors as the coordinator runs them: what is quick and known at once, all else elsewhere.

The assignors that raylog brings are called in place while the group is small. A large group, and
any plug-in, is assigned by a process of its own, so that one that is slow, hangs, crashes or takes
all memory does nothing to the coordinator. `assign` is then asked twice: the first time it raises
AssignmentUnderWay; once the work is done the shell has the group ask again with the same members
and topics, and it returns what was found, or raises what went wrong. If members or topics have
changed meanwhile, it starts anew.
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
"""Partitions and subscriptions of a group that is assigned in place: some milliseconds."""
WORKERS_MAX = 2
"""Processes at a time; what else is to be assigned waits for one to end."""
TIMEOUT_MS = 10_000
"""How long a plug-in may take, its start included."""

Assignment = dict[str, MemberAssignment]


class AssignmentUnderWay(PluginError):
    """No failure: the assignment is being worked out, and the group is told when it is there."""


@dataclass(frozen=True, slots=True)
class AssignTask:
    """One assignment to be worked out in a process of its own."""

    group_id: str
    name: str
    """The assignor's."""
    members: tuple[Member, ...]
    topics: dict[str, Topic]
    timeout_ms: int


@dataclass(slots=True)
class _Run:
    """The last task of a group, and its outcome once there is one."""

    task: AssignTask
    outcome: Assignment | PluginError | None = None


class Assigning:
    """Runs assignors for the groups of one coordinator. A machine: the shell carries tasks out."""

    def __init__(self, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._timeout_ms = timeout_ms
        self._own: dict[str, bool] = {}  # by name; asking the installed packages takes long
        self._loaded: dict[str, Assignor] = {}
        self._runs: dict[str, _Run] = {}  # by group id
        self._waiting: deque[AssignTask] = deque()
        self._running = 0

    def assign(
        self, group_id: str, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> Assignment:
        """Divide the partitions; members come sorted by id.

        Raises AssignmentUnderWay, or another PluginError if it failed, whatever the reason.
        """
        if self._is_own(name):
            # Apache Kafka's server-side assignors know no racks, and these do as they do.
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
        """What the shell is to begin now; it calls `finished` for each."""
        taken = []
        while self._waiting and self._running < WORKERS_MAX:
            taken.append(self._waiting.popleft())
            self._running += 1
        return taken

    def finished(self, task: AssignTask, outcome: Assignment | PluginError) -> bool:
        """Note what came of a task. True if its group is to ask again, False if it is gone."""
        self._running -= 1
        run = self._runs.get(task.group_id)
        if run is None or run.task is not task:
            return False
        run.outcome = outcome
        return True

    def forget(self, group_id: str) -> None:
        """The group is gone, or led elsewhere."""
        run = self._runs.pop(group_id, None)
        if run is not None and run.task in self._waiting:
            self._waiting.remove(run.task)

    def _is_own(self, name: str) -> bool:
        """Whether raylog brings that assignor."""
        known = self._own.get(name)
        if known is None:
            known = self._own[name] = is_own(name)
        return known

    def _assign_here(
        self, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> Assignment:
        """Call one of raylog's own. A bug in it costs its group the assignment, and no more."""
        assignor = self._loaded.get(name)
        if assignor is None:
            assignor = self._loaded[name] = load(name)
        try:
            return assignor.assign(members, topics)
        except Exception as failure:
            raise raised(name, failure) from failure


def _work(members: Sequence[Member], topics: Mapping[str, Topic]) -> int:
    """How large a group is: its partitions and its members' subscriptions."""
    subscriptions = sum(len(member.topics) for member in members)
    return subscriptions + sum(topic.partitions for topic in topics.values())


def checked(task: AssignTask, found: Assignment, *, shares_partitions: bool) -> Assignment:
    """What an assignor found for a task, everything sorted. Raises InvalidAssignment."""
    ids = {member.member_id for member in task.members}
    check(task.name, found, ids, task.topics, shares_partitions=shares_partitions)
    return {
        member_id: MemberAssignment(
            {topic: sorted(some) for topic, some in sorted(found[member_id].partitions.items())},
            found[member_id].user_data,
        )
        for member_id in sorted(found)
    }
