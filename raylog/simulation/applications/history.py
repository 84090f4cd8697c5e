"""What the real clients of one simulation have done, to be compared with the logs at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from raylog.client.cluster import TopicPartition

KIP_848 = "consumer"
"""The group protocol in which the coordinator assigns partitions."""


class Promise(StrEnum):
    """The delivery guarantee of a group's applications."""

    AT_LEAST_ONCE = "at-least-once"
    """They process, then commit."""
    AT_MOST_ONCE = "at-most-once"
    """They commit, then process."""
    EXACTLY_ONCE = "exactly-once"
    """They copy records and commit offsets in one transaction."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A commit that a client has sent."""

    key: TopicPartition
    offset: int
    at: int
    """How many records the group had processed by then."""


@dataclass(slots=True)
class GroupHistory:
    """What one group's applications have processed and committed."""

    group_id: str
    promise: Promise
    protocol: str
    """KIP_848, or the name of the assignor with which the group uses the classic protocol."""
    topic: str
    target: str = ""
    """The topic that copies go to."""
    processed: dict[TopicPartition, dict[int, list[int]]] = field(default_factory=dict)
    """By offset, the values of `count` at which the record was processed."""
    count: int = 0
    asked: list[Asked] = field(default_factory=list)

    def process(self, key: TopicPartition, offset: int) -> None:
        """Note that a record was processed."""
        self.count += 1
        self.processed.setdefault(key, {}).setdefault(offset, []).append(self.count)

    def ask(self, key: TopicPartition, offset: int) -> None:
        """Note that a client sends a commit."""
        self.asked.append(Asked(key, offset, self.count))


@dataclass(slots=True)
class ClientHistory:
    """The histories of all clients."""

    written: dict[str, list[bytes]] = field(default_factory=dict)
    """By life of a producer, the values that it was given, in order."""
    groups: list[GroupHistory] = field(default_factory=list)
