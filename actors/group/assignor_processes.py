"""The processes that assign: started for one task, ended when it is done or its time is over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import msgpack

from raylog.actors.group.assigning import Assignment, AssignTask, checked
from raylog.assignors.api import MemberAssignment, PluginError
from raylog.assignors.checking import InvalidAssignment
from raylog.assignors.worker import request_of

_COMMAND = (sys.executable, "-P", "-m", "raylog.assignors.worker")


class AssignorProcesses:
    """Carries out tasks of `Assigning`, each in a process. Methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def run(self, task: AssignTask) -> Assignment | PluginError:
        """Carry out a task; blocks up to its time limit. Failures are returned, not raised."""
        try:
            found, shares_partitions = _found(task, self._ask(task))
            return checked(task, found, shares_partitions=shares_partitions)
        except PluginError as failure:
            return failure
        except OSError as failure:
            return InvalidAssignment(f"assignor {task.name!r}: no process for it: {failure}")

    @property
    def running(self) -> int:
        """How many processes there are now."""
        return len(self._running)

    def close(self) -> None:
        """End what runs; its tasks fail, and so do later ones."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _kill(process)

    def _ask(self, task: AssignTask) -> bytes:
        """Start the process, hand it the task and read its answer. Raises OSError, too."""
        request = request_of(
            task.name, task.members, task.topics, path=sys.path, timeout_ms=task.timeout_ms
        )
        with self._process(task) as process:
            try:
                output, _ = process.communicate(request, timeout=task.timeout_ms / 1000)
            except subprocess.TimeoutExpired:
                raise InvalidAssignment(
                    f"assignor {task.name!r} did not end within {task.timeout_ms} ms"
                ) from None
            finally:
                self._end(process)
        if process.returncode:
            raise InvalidAssignment(
                f"assignor {task.name!r}: its process ended with code {process.returncode}"
            )
        return output

    def _process(self, task: AssignTask) -> subprocess.Popen[bytes]:
        """A new process, in a session of its own so that all it starts can be ended with it."""
        with self._lock:
            if self._closed:
                raise InvalidAssignment(f"assignor {task.name!r}: the coordinator is stopping")
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._running.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Leave nothing of a process behind, whether it has ended by itself or not."""
        with self._lock:
            self._running.discard(process)
            _kill(process)


def _found(task: AssignTask, output: bytes) -> tuple[Assignment, bool]:
    """What a process answered, and whether its assignor shares partitions.

    A plug-in may have written anything to where the answer is expected.
    """
    try:
        answer = msgpack.unpackb(output)
        if "error" in answer:
            raise InvalidAssignment(str(answer["error"]))
        found = {
            member_id: MemberAssignment(
                {topic: list(some) for topic, some in partitions.items()}, bytes(user_data)
            )
            for member_id, (partitions, user_data) in answer["assignment"].items()
        }
        return found, bool(answer["shares_partitions"])
    except (ValueError, TypeError, KeyError, AttributeError) as failure:
        raise InvalidAssignment(
            f"assignor {task.name!r}: its process ended without an answer"
        ) from failure


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all in its group. One that has ended is left alone: its id may be new."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
