"""One assignment as work for a process of its own (`raylog.actors.runtime.worker_process`).

A plug-in cannot harm the coordinator there: time and memory are bounded, and the answer is plain
data. The process ends itself when the time limit is over, should its parent be gone by then.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgpack

from raylog.assignors.api import Member, MemberAssignment, PluginError, Topic, load, raised

DATA_BYTES_MAX = 2 << 30
"""The most memory that a plug-in may use."""


@dataclass(frozen=True, slots=True)
class AssignWork:
    """What an assignor is to divide."""

    name: str
    """The assignor's."""
    members: Sequence[Member]
    topics: Mapping[str, Topic]
    timeout_ms: int

    def step(self) -> bytes:
        """Assign. Returns a msgpack map: `error`, or `assignment` and `shares_partitions`.

        Bounds the time and the memory of this process.
        """
        _limit(self.timeout_ms)
        try:
            assignor = load(self.name)
            found = _packed_result(self.name, assignor.assign(self.members, self.topics))
            return _packed(assignment=found, shares_partitions=bool(assignor.shares_partitions))
        except PluginError as failure:
            return _packed(error=str(failure))
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - plug-ins raise anything
            return _packed(error=str(raised(self.name, failure)))

    def stop(self) -> None:
        """Nothing: whoever wants it to stop kills the process."""


def _limit(timeout_ms: int) -> None:
    """Limit the time and memory of this process. SIGALRM ends it after the time."""
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000 + 1)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = DATA_BYTES_MAX if hard == resource.RLIM_INFINITY else min(hard, DATA_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _packed(**answer: object) -> bytes:
    packed: bytes = msgpack.packb(answer)
    return packed


def _packed_result(name: str, found: object) -> Mapping[str, object]:
    """The result as plain values; raises PluginError if it has another form than it should."""
    if not isinstance(found, dict):
        raise PluginError(f"assignor {name!r} returned {_kind(found)} instead of a dict")
    packed = {}
    for member_id, assignment in found.items():
        if not isinstance(member_id, str) or not isinstance(assignment, MemberAssignment):
            raise PluginError(
                f"assignor {name!r} returned {_kind(member_id)}: {_kind(assignment)} instead of "
                "str: MemberAssignment"
            )
        partitions = {
            _text(name, topic): [_number(name, number) for number in numbers]
            for topic, numbers in assignment.partitions.items()
        }
        if not isinstance(assignment.user_data, bytes):
            raise PluginError(f"assignor {name!r} returned {_kind(assignment.user_data)} user data")
        packed[member_id] = (partitions, assignment.user_data)
    return packed


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise PluginError(f"assignor {name!r} returned {_kind(value)} as the name of a topic")
    return value


def _number(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise PluginError(f"assignor {name!r} returned {_kind(value)} as a partition's number")
    return value


def _kind(value: object) -> str:
    return type(value).__name__
