"""What goes into a membership machine and what comes out of it.

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
    """The application said, or a pattern's topics tell, what it wants to read."""

    topics: frozenset[str]
    pattern: str | None = None
    """For the coordinator to match (KIP-848, v1); `topics` is empty then."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The application has called poll."""

    at_ms: float
    """Perhaps some time ago: the machine learns of polls when it matters."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; `next_ms` said until when nothing would happen."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request of `Send` has its answer, or failed."""

    request: object
    answer: object
    """The response, or the exception."""


@dataclass(frozen=True, slots=True)
class Released:
    """The application has given up what a `Release` named."""

    release: Release


@dataclass(frozen=True, slots=True)
class Taken:
    """The application was told of what a `Take` named."""

    take: Take


@dataclass(frozen=True, slots=True)
class Divided:
    """The assignor has run for a `Divide`."""

    divide: Divide
    assignments: Mapping[str, MemberAssignment]
    """By member id."""
    partitions: Mapping[str, int]
    """What it knew: topic to number of partitions."""
    is_complete: bool = True
    """Whether all is given out; else somebody has to give partitions up first (KIP-429)."""


@dataclass(frozen=True, slots=True)
class DivideFailed:
    """The assignor of a `Divide` raised, or its topics could not be looked up."""

    divide: Divide
    error: Exception


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """New metadata: topic to number of partitions, as far as known; and names of topic ids."""

    partitions: Mapping[str, int]
    names: Mapping[bytes, str]


@dataclass(frozen=True, slots=True)
class RejoinAsked:
    """Somebody wants a rebalance: `enforce_rebalance`, or a commit that found us outside."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """The member ends; the application has given up its partitions before."""

    reason: str
    leave_group: bool | None = None
    """None: a dynamic member leaves, a static one may come back within its session (KIP-345)."""


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
    """Ask the coordinator; `Answered` follows."""

    request: object
    expected: type
    timeout_ms: float | None = None
    """None: as other requests."""


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """Look for the coordinator anew before the next `Send`."""


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Let the application give partitions up, in its next poll; `Released` follows.

    A lost release replaces whatever the application was not told yet.
    """

    partitions: frozenset[TopicPartition]
    lost: bool = False
    """Others may have them already: nothing of them can be committed."""


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """Give the application these partitions, in its next poll; `Taken` follows."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, eq=False)
class Divide:
    """We lead: run the assignor for these members; `Divided` or `DivideFailed` follows."""

    protocol: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class LookUpTopics:
    """Ask for metadata; `TopicsSeen` follows. Ids are of topics whose names are unknown."""

    topic_ids: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise this from the application's next poll."""

    error: Exception


Effect = Send | ForgetCoordinator | Release | Take | Divide | LookUpTopics | Fail
