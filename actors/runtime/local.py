"""What runtimes share whose actors live in one process, real or simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from raylog.actors.runtime.base import ActorGone, ActorRef


class _HasRef(Protocol):
    ref: ActorRef


ResidentT = TypeVar("ResidentT", bound=_HasRef)


def resident_of(residents: Mapping[str, ResidentT], peer: ActorRef | str) -> ResidentT:
    """Return the live actor of a ref, name or link address. Raises ActorGone."""
    if isinstance(peer, ActorRef):
        found = residents.get(peer.name)
        if found is not None and found.ref.instance == peer.instance:
            return found
    else:
        found = residents.get(peer) or next(
            (one for one in residents.values() if one.ref.address == peer), None
        )
        if found is not None:
            return found
    raise ActorGone(f"no actor {peer if isinstance(peer, str) else peer.name} lives here")


class OneShot:
    """A callback that runs at most once and can be cancelled."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def fire(self) -> None:
        """Run the callback, unless it has run or is cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def cancel(self) -> None:
        """Do not run the callback."""
        self._callback = None

    @property
    def is_set(self) -> bool:
        """Whether the callback may still run."""
        return self._callback is not None
