"""Named places between two durable steps, at which a test can end a coordinator."""

from __future__ import annotations

from collections.abc import Callable


class Failpoints:
    """What happens at which place: nothing, unless a test says so."""

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[], None]] = {}

    def set(self, name: str, action: Callable[[], None]) -> None:
        """Run `action` whenever the place is reached."""
        self._actions[name] = action

    def clear(self) -> None:
        """Nothing happens anywhere."""
        self._actions.clear()

    def reach(self, name: str) -> None:
        """A place is reached."""
        if self._actions and (action := self._actions.get(name)) is not None:
            action()

    def __bool__(self) -> bool:
        return bool(self._actions)
