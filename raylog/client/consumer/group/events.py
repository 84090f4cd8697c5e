"""Events and effects of the membership machines.

Both machines, `classic.ClassicMember` and `consumer.ConsumerMember`, take these events and return
these effects. The shell (`shell.py`) carries effects out in the order given. Times are in ms on the
clock of `Io.now_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raylog.assignors.api import Member, MemberAssignment
from raylog.client.cluster import TopicPartition

# -- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscription has changed, or the topics that match its pattern have."""

    topics: frozenset[str]
    pattern: str | None = None
    """A pattern for the coordinator to match (KIP-848, v1); `topics` is empty then."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The application has called poll."""

    at_ms: float
    """May be some time ago: polls are reported only when they matter."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed, perhaps up to `next_ms`."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request of `Send` was answered or has failed."""

    request: object
    answer: object
    """The response, or the exception."""


@dataclass(frozen=True, slots=True)
class Released:
    """The application has given up the partitions of a `Release`."""

    release: Release


@dataclass(frozen=True, slots=True)
class Taken:
    """The application has been given the partitions of a `Take`."""

    take: Take


@dataclass(frozen=True, slots=True)
class Divided:
    """The assignor has run for a `Divide`."""

    divide: Divide
    assignments: Mapping[str, MemberAssignment]
    """By member id."""
    partitions: Mapping[str, int]
    """The partition counts that the assignor used, by topic."""
    is_complete: bool = True
    """Whether every partition is assigned; otherwise members must first give some up (KIP-429)."""


@dataclass(frozen=True, slots=True)
class DivideFailed:
    """The assignor of a `Divide` raised, or its topics could not be looked up."""

    divide: Divide
    error: Exception


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """New metadata: partition counts of topics, as far as known, and the names of topic ids."""

    partitions: Mapping[str, int]
    names: Mapping[bytes, str]


@dataclass(frozen=True, slots=True)
class RejoinAsked:
    """A rebalance was requested: by `enforce_rebalance`, or by a commit outside the group."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """The member is to leave; the application has given up its partitions."""

    reason: str
    leave_group: bool | None = None
    """None: a dynamic member leaves, a static one may return within its session (KIP-345)."""


Event = (
    Subscribed
    | Polled
    | Ticked
    | Answered
    | Released
    | Taken
    | Divided
    | DivideFailed
    | TopicsSeen
    | RejoinAsked
    | LeaveAsked
)

# -- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to the coordinator; `Answered` follows."""

    request: object
    expected: type
    timeout_ms: float | None = None
    """None: the default timeout."""


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """Look up the coordinator again before the next `Send`."""


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Make the application give up partitions in its next poll; `Released` follows.

    A lost release replaces all steps that the application has not seen yet.
    """

    partitions: frozenset[TopicPartition]
    lost: bool = False
    """Others may own the partitions already: their offsets cannot be committed."""


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """Give the application these partitions in its next poll; `Taken` follows."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, eq=False)
class Divide:
    """Run the assignor for these members, as the leader; `Divided` or `DivideFailed` follows."""

    protocol: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class LookUpTopics:
    """Fetch metadata; `TopicsSeen` follows. The ids are of topics with unknown names."""

    topic_ids: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise this error from the application's next poll."""

    error: Exception


Effect = Send | ForgetCoordinator | Release | Take | Divide | LookUpTopics | Fail
