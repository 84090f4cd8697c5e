"""The interface of partition assignors, which are found as entry points of `raylog.assignors`.

An assignor divides the partitions of the subscribed topics among a group's members. The same class
works on both sides: in a client that leads a classic group, and in the coordinator of a KIP-848
group. Raylog's own assignors are registered in the same way as those of other packages:

    [project.entry-points."raylog.assignors"]
    capacity = "my_package.capacity:CapacityAssignor"

An assignor is imported when it is first requested by name. Failures raise PluginError.
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
    """A group member as an assignor sees it."""

    member_id: str
    topics: frozenset[str]
    """The topics that it subscribes to, with patterns resolved."""
    owned: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Its current partitions: on the server its target, in a client what it reports."""
    user_data: bytes = b""
    """The result of this assignor's `subscription_user_data` in the member's process."""
    instance_id: str | None = None
    """The `group.instance.id` of a static member (KIP-345)."""
    rack: str | None = None
    """The member's `client.rack` (KIP-881)."""
    generation: int = -1
    """The generation of `owned`; -1 if unknown."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A subscribed topic that exists."""

    name: str
    partitions: int
    """The number of partitions, which are numbered from 0."""
    racks: tuple[frozenset[str], ...] = ()
    """The racks of each partition's replicas; empty if unknown."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of one member."""

    partitions: dict[str, list[int]] = field(default_factory=dict)
    """Partitions by topic, without topics that have none."""
    user_data: bytes = b""
    """Passed to the member's `on_assignment`, in classic groups only (KIP-848 has no user data)."""


class Assignor(Protocol):
    """A partition assignor. Inherit from this class to get defaults for the optional parts."""

    name: ClassVar[str]
    """The name of the entry point, for `partition.assignment.strategy` and
    `group.remote.assignor`."""
    shares_partitions: ClassVar[bool] = False
    """Whether several members may get the same partition (broadcast within a group)."""
    cooperative: ClassVar[bool] = False
    """Whether members keep consuming during a rebalance (KIP-429) instead of revoking
    everything."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """Return bytes to send with the subscription. Called in the client before it joins."""
        return b""

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Divide the partitions. A member without an entry gets none.

        Members are sorted by id. `topics` has the topics that are subscribed to and exist. The
        result must depend on the arguments alone. Called from any thread or process.
        """
        ...

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """Handle the member's assignment in a generation. Called in the client."""
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
    """Create an instance of the assignor registered under `name`.

    Raises PluginError, which names the assignor and the failure.
    """
    return cast(Assignor, _PLUGINS.load(name))


def raised(name: str, failure: BaseException) -> PluginError:
    """What to say of an assignor that raised."""
    return PluginError(f"assignor {name!r} raised {type(failure).__name__}: {failure}")


def is_own(name: str) -> bool:
    """Whether `name` is one of Raylog's own assignors."""
    return _PLUGINS.is_own(name)


def available() -> list[PluginDescription]:
    """All registered assignors, by name. Each is loaded to see whether that works."""
    return _PLUGINS.available()
