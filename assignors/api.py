"""What a partition assignor is, and how assignors are found: entry points of `raylog.assignors`.

An assignor divides the partitions of the subscribed topics among a group's members. The same class
works on both sides: in a client that leads a classic group, and in the coordinator of a KIP-848
group. What raylog brings is registered exactly as a stranger's package registers its own:

    [project.entry-points."raylog.assignors"]
    capacity = "my_package.capacity:CapacityAssignor"

Nothing is imported before it is asked for by name. What fails then is named in a PluginError.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, cast

from raylog.assignors.plugins import PluginDescription as PluginDescription
from raylog.assignors.plugins import PluginError as PluginError
from raylog.assignors.plugins import Plugins

ENTRY_POINT_GROUP = "raylog.assignors"


@dataclass(frozen=True, slots=True)
class Member:
    """One group member, as an assignor sees it."""

    member_id: str
    topics: frozenset[str]
    """What it subscribes to, patterns resolved."""
    owned: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Partitions it has now: its target so far on the server, its own word in a client."""
    user_data: bytes = b""
    """What this assignor's `subscription_user_data` gave in that member's process."""
    instance_id: str | None = None
    """`group.instance.id` of a static member (KIP-345)."""
    rack: str | None = None
    """`client.rack` (KIP-881)."""
    generation: int = -1
    """The generation that `owned` is of; -1 if unknown."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One subscribed topic that exists."""

    name: str
    partitions: int
    """Their number; they are numbered from 0."""
    racks: tuple[frozenset[str], ...] = ()
    """Racks of each partition's replicas; empty if unknown."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What one member gets."""

    partitions: dict[str, list[int]] = field(default_factory=dict)
    """Topic to partitions; topics of which it gets none are left out."""
    user_data: bytes = b""
    """Handed to the member's `on_assignment` (classic groups only: KIP-848 carries none)."""


class Assignor(Protocol):
    """A partition assignor. Inherit from it: the optional parts then have their defaults."""

    name: ClassVar[str]
    """The entry point's name; what `partition.assignment.strategy` and `group.remote.assignor`
    say."""
    shares_partitions: ClassVar[bool] = False
    """Whether one partition may be given to several members (broadcast within a group)."""
    cooperative: ClassVar[bool] = False
    """Whether members keep consuming through a rebalance (KIP-429) instead of giving up all."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """In the client, before it joins: bytes that travel with its subscription."""
        del topics
        return b""

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions; a member that is left out gets nothing.

        Members come sorted by id. `topics` holds what members subscribe to and what exists. Must
        depend on the arguments alone, and is called from any thread or process.
        """
        ...

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """In the client, once it has its assignment of that generation."""
        del assignment, generation


def _misfit(assignor: object) -> str | None:
    for flag in ("shares_partitions", "cooperative"):
        if not isinstance(getattr(assignor, flag, None), bool):
            return f"{flag} must be True or False"
    return None


_PLUGINS = Plugins(
    ENTRY_POINT_GROUP,
    "assignor",
    "raylog.assignors.api.Assignor",
    ("assign", "subscription_user_data", "on_assignment"),
    _misfit,
)


def load(name: str) -> Assignor:
    """A new instance of the assignor registered under `name`.

    Raises PluginError, which names it and what failed.
    """
    return cast(Assignor, _PLUGINS.load(name))


def raised(name: str, failure: Exception) -> PluginError:
    """What to say of an assignor that raised."""
    return PluginError(f"assignor {name!r} raised {type(failure).__name__}: {failure}")


def is_own(name: str) -> bool:
    """Whether `name` is one of the assignors that raylog brings."""
    return _PLUGINS.is_own(name)


def available() -> list[PluginDescription]:
    """All registered assignors, by name; every one is loaded to see whether it can be."""
    return _PLUGINS.available()
