"""A process that runs one assignor once: `python -P -m raylog.assignors.worker`.

It reads a msgpack map from standard input and writes one to standard output: either `error` or
`assignment` and `shares_partitions`. What the plug-in prints goes to standard error. The process
ends itself when the time limit is over, should whoever started it be gone by then.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from raylog.assignors.api import Member, MemberAssignment, PluginError, Topic, load, raised

DATA_BYTES_MAX = 2 << 30
"""Memory that a plug-in may take."""


def request_of(
    name: str,
    members: Sequence[Member],
    topics: Mapping[str, Topic],
    *,
    path: Sequence[str],
    timeout_ms: int,
) -> bytes:
    """What the process is to do. `path` is where it shall find plug-ins."""
    request: bytes = msgpack.packb(
        {
            "name": name,
            "members": [_packed_member(member) for member in members],
            "topics": [
                (topic.name, topic.partitions, [sorted(racks) for racks in topic.racks])
                for topic in topics.values()
            ],
            "path": list(path),
            "timeout_ms": timeout_ms,
        }
    )
    return request


def main() -> None:
    """Read, assign, write."""
    gc.disable()  # little becomes garbage before the process ends
    answer_to = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a plug-in prints is no answer
    request = msgpack.unpackb(sys.stdin.buffer.read())
    _limit(request["timeout_ms"])
    sys.path[:] = request["path"]
    with answer_to:
        answer_to.write(_answer(request))


def _limit(timeout_ms: int) -> None:
    """Bound the time and the memory of this process; past the time, SIGALRM ends it."""
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000 + 1)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = DATA_BYTES_MAX if hard == resource.RLIM_INFINITY else min(hard, DATA_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _answer(request: dict[str, Any]) -> bytes:
    """Run the assignor; whatever goes wrong becomes an error."""
    try:
        answer = _assignment(request)
        packed: bytes = msgpack.packb(answer)
    except PluginError as failure:
        return _error(str(failure))
    except Exception as failure:  # noqa: BLE001 - a stranger's code may raise anything
        return _error(str(raised(request["name"], failure)))
    return packed


def _error(text: str) -> bytes:
    packed: bytes = msgpack.packb({"error": text})
    return packed


def _assignment(request: dict[str, Any]) -> dict[str, Any]:
    """Load the assignor and call it."""
    name = request["name"]
    members = [_member(packed) for packed in request["members"]]
    topics = {
        topic: Topic(topic, partitions, tuple(frozenset(each) for each in racks))
        for topic, partitions, racks in request["topics"]
    }
    assignor = load(name)
    return {
        "assignment": _packed_result(name, assignor.assign(members, topics)),
        "shares_partitions": assignor.shares_partitions,
    }


def _packed_member(member: Member) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "topics": sorted(member.topics),
        "owned": member.owned,
        "user_data": member.user_data,
        "instance_id": member.instance_id,
        "rack": member.rack,
        "generation": member.generation,
    }


def _member(packed: dict[str, Any]) -> Member:
    return Member(
        member_id=packed["id"],
        topics=frozenset(packed["topics"]),
        owned={topic: tuple(partitions) for topic, partitions in packed["owned"].items()},
        user_data=packed["user_data"],
        instance_id=packed["instance_id"],
        rack=packed["rack"],
        generation=packed["generation"],
    )


def _packed_result(name: str, found: object) -> dict[str, Any]:
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


if __name__ == "__main__":
    main()
