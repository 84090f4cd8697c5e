"""What real clients have done in one simulation, to be compared with the logs in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from raylog.client.cluster import TopicPartition

KIP_848 = "consumer"
"""The group protocol in which the coordinator assigns."""


class Promise(StrEnum):
    """What a group's applications keep to."""

    AT_LEAST_ONCE = "at-least-once"
    """They process, then commit."""
    AT_MOST_ONCE = "at-most-once"
    """They commit, then process."""
    EXACTLY_ONCE = "exactly-once"
    """They copy records and commit offsets in one transaction."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A commit as it left a client."""

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
    """KIP_848, or the classic protocol with the assignor of that name."""
    topic: str
    target: str = ""
    """Where copies go."""
    processed: dict[TopicPartition, dict[int, list[int]]] = field(default_factory=dict)
    """Of each offset, which records of the group's it was: numbers of `count`."""
    count: int = 0
    asked: list[Asked] = field(default_factory=list)

    def process(self, key: TopicPartition, offset: int) -> None:
        """A record has been processed."""
        self.count += 1
        self.processed.setdefault(key, {}).setdefault(offset, []).append(self.count)

    def ask(self, key: TopicPartition, offset: int) -> None:
        """A commit leaves a client."""
        self.asked.append(Asked(key, offset, self.count))


@dataclass(slots=True)
class ClientHistory:
    """What all of them have."""

    written: dict[str, list[bytes]] = field(default_factory=dict)
    """By the producer's life, what it was given, in order."""
    groups: list[GroupHistory] = field(default_factory=list)
