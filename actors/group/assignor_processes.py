"""Runs assignors in worker processes: one process per task, killed at its time limit."""

from __future__ import annotations

import msgpack

from raylog.actors.group.assigning import Assignment, AssignTask, checked
from raylog.actors.runtime.base import PeerLost, PeerTimeout, Runtime
from raylog.actors.runtime.worker_processes import WorkerProcesses
from raylog.assignors.api import MemberAssignment, PluginError
from raylog.assignors.checking import InvalidAssignment
from raylog.assignors.worker import AssignWork


class AssignorProcesses:
    """Runs tasks of `Assigning`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._processes = WorkerProcesses(runtime, nice=0)

    async def run(self, task: AssignTask) -> Assignment | PluginError:
        """Run a task within its time limit; return its result or its failure."""
        work = AssignWork(task.name, task.members, task.topics, task.timeout_ms)
        try:
            answer = await self._processes.do_alone(work, task.timeout_ms)
            return await self._runtime.run_blocking(_found, task, answer)
        except PluginError as failure:
            return failure
        except PeerTimeout:
            return InvalidAssignment(
                f"assignor {task.name!r} did not end within {task.timeout_ms} ms"
            )
        except PeerLost as lost:
            return InvalidAssignment(f"assignor {task.name!r}: {lost}")

    def close(self) -> None:
        """Kill the running processes. Their tasks fail, and so do later ones."""
        self._processes.end()


def _found(task: AssignTask, answer: object) -> Assignment:
    """Check the response of a process; raises PluginError. Blocking, as a group may be large."""
    try:
        result = msgpack.unpackb(answer)
        if "error" in result:
            raise InvalidAssignment(result["error"])
        found = {
            member_id: MemberAssignment(partitions, user_data)
            for member_id, (partitions, user_data) in result["assignment"].items()
        }
        shares_partitions = result["shares_partitions"]
    except (ValueError, TypeError, KeyError, AttributeError) as failure:
        raise InvalidAssignment(
            f"assignor {task.name!r}: unreadable answer: {failure}"
        ) from failure
    return checked(task, found, shares_partitions=shares_partitions)
