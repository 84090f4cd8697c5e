"""Groups in few words, and Apache Kafka's own assignors to compare with."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from bench.jars import KafkaJars
from raylog.assignors.api import Member, MemberAssignment, Topic

Owned = dict[str, list[int]]


def topics(**partitions: int) -> dict[str, Topic]:
    """Return topics by name."""
    return {name: Topic(name, count) for name, count in partitions.items()}


def members(count: int, subscribed: Mapping[str, Topic]) -> list[Member]:
    """Return the members C0, C1, …, which subscribe to everything."""
    names = frozenset(subscribed)
    return [Member(f"C{index}", names) for index in range(count)]


def short(assignment: Mapping[str, MemberAssignment]) -> dict[str, str]:
    """Return an assignment in short form: "t0p0 t0p1"."""
    return {
        member_id: " ".join(
            f"{topic}p{number}" for topic, numbers in each.partitions.items() for number in numbers
        )
        for member_id, each in assignment.items()
    }


def having(
    now: Sequence[Member], assignment: Mapping[str, MemberAssignment], generation: int = 1
) -> list[Member]:
    """Return the members as owners of what the assignment gave them."""
    return [
        Member(
            member.member_id,
            member.topics,
            {
                topic: tuple(numbers)
                for topic, numbers in assignment[member.member_id].partitions.items()
            }
            if member.member_id in assignment
            else {},
            rack=member.rack,
            instance_id=member.instance_id,
            generation=generation if member.member_id in assignment else -1,
        )
        for member in now
    ]


class AssignorOracle:
    """A Java process that runs Apache Kafka's assignors."""

    def __init__(self, java: KafkaJars) -> None:
        self._process = subprocess.Popen(
            java.brief("AssignorOracle"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=10)

    def assign(
        self, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, Owned]:
        """Return the assignment of Kafka's assignor `name`; `server-range` is KIP-848's."""
        lines = [_topic_line(topic) for topic in topics.values()]
        lines += [_member_line(member) for member in members]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n".join([*lines, f"assign\t{name}", ""]))
        stdin.flush()
        found: dict[str, Owned] = {}
        while (line := stdout.readline().rstrip("\n")) != "end":
            assert line, "the oracle has ended"
            member_id, words = line.split("\t")
            found[member_id] = _owned(words)
        return found


def _topic_line(topic: Topic) -> str:
    racks = "|".join(",".join(sorted(racks)) for racks in topic.racks) or "-"
    return f"topic\t{topic.name}\t{topic.partitions}\t{racks}"


def _member_line(member: Member) -> str:
    owned = ";".join(
        f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in member.owned.items()
    )
    words = [
        member.member_id,
        member.instance_id or "-",
        member.rack or "-",
        str(member.generation),
        ",".join(sorted(member.topics)) or "-",
        owned or "-",
        member.user_data.hex() or "-",
    ]
    return "\t".join(["member", *words])


def _owned(words: str) -> Owned:
    if words == "-":
        return {}
    parts = (word.split(":") for word in words.split(";"))
    return {topic: [int(number) for number in numbers.split(",")] for topic, numbers in parts}
