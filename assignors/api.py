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
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Protocol, cast

ENTRY_POINT_GROUP = "raylog.assignors"
_OWN_DISTRIBUTION = "raylog"


class PluginError(Exception):
    """A plug-in that cannot be used; the message names it, its origin and what failed."""


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


@dataclass(frozen=True, slots=True)
class PluginDescription:
    """One registered plug-in."""

    name: str
    target: str
    """What the entry point names: `module:Class`."""
    distribution: str
    """The installed package it comes from; "?" if that cannot be told."""
    version: str
    error: str | None
    """Why it cannot be used; None when it loads."""

    @property
    def state(self) -> str:
        """`ready` or `failed`."""
        return "ready" if self.error is None else "failed"


def load(name: str) -> Assignor:
    """A new instance of the assignor registered under `name`. Raises PluginError."""
    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == name]
    if not found:
        raise PluginError(f"no assignor {name!r} is installed; there are: {_known()}")
    return _instance(_chosen(found))


def is_own(name: str) -> bool:
    """Whether `name` is one of the assignors that raylog brings."""
    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    return any(_distribution(entry)[0] == _OWN_DISTRIBUTION for entry in found)


def available() -> list[PluginDescription]:
    """All registered assignors, by name; every one is loaded to see whether it can be."""
    entries = entry_points(group=ENTRY_POINT_GROUP)
    described = []
    for entry in sorted(entries, key=lambda entry: (entry.name, *_distribution(entry))):
        rivals = [other for other in entries if other.name == entry.name]
        described.append(_describe(entry, rivals))
    return described


def _describe(entry: EntryPoint, rivals: list[EntryPoint]) -> PluginDescription:
    """Load one plug-in and say how that went."""
    error = None
    try:
        if _chosen(rivals) != entry:
            error = f"{_OWN_DISTRIBUTION}'s own assignor of that name is used instead"
        else:
            _instance(entry)
    except PluginError as failure:
        error = str(failure)
    distribution, version = _distribution(entry)
    return PluginDescription(entry.name, entry.value, distribution, version, error)


def _chosen(found: list[EntryPoint]) -> EntryPoint:
    """The one of several plug-ins of one name: raylog's own, which nobody can replace."""
    own = [entry for entry in found if _distribution(entry)[0] == _OWN_DISTRIBUTION]
    candidates = own or found
    if len({entry.value for entry in candidates}) > 1:
        origins = ", ".join(sorted(_origin(entry) for entry in candidates))
        raise PluginError(f"several packages register an assignor {found[0].name!r}: {origins}")
    return candidates[0]


def _instance(entry: EntryPoint) -> Assignor:
    """Import, make and check one plug-in; whatever it raises becomes a PluginError."""
    try:
        assignor = entry.load()()
    except Exception as failure:  # a stranger's code may raise anything
        raise PluginError(
            f"assignor {_origin(entry)} does not load: {type(failure).__name__}: {failure}"
        ) from failure
    _check(entry, assignor)
    return cast(Assignor, assignor)


def _check(entry: EntryPoint, assignor: object) -> None:
    """Refuse what is no assignor."""
    for method in ("assign", "subscription_user_data", "on_assignment"):
        if not callable(getattr(assignor, method, None)):
            raise PluginError(
                f"assignor {_origin(entry)} has no method {method}: inherit from "
                "raylog.assignors.api.Assignor"
            )
    for flag in ("shares_partitions", "cooperative"):
        if not isinstance(getattr(assignor, flag, None), bool):
            raise PluginError(f"assignor {_origin(entry)}: {flag} must be True or False")
    name = getattr(assignor, "name", None)
    if name != entry.name:
        raise PluginError(
            f"assignor {_origin(entry)} calls itself {name!r}, its entry point {entry.name!r}"
        )


def _origin(entry: EntryPoint) -> str:
    """A plug-in and where it comes from, for error messages."""
    distribution, version = _distribution(entry)
    return f"{entry.name!r} ({entry.value}, from {distribution} {version})"


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    """Name and version of the package that registers it."""
    if entry.dist is None:
        return "?", "?"
    return entry.dist.name, entry.dist.version


def _known() -> str:
    """The names that are registered, for error messages."""
    names = sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})
    return ", ".join(names) or "none"
