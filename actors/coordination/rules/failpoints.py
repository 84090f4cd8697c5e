"""Named points between two durable steps, at which a test can kill a coordinator."""

from __future__ import annotations

from collections.abc import Callable


class Failpoints:
    """Actions of tests by point. Without any, reaching a point does nothing."""

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[], None]] = {}

    def set(self, name: str, action: Callable[[], None]) -> None:
        """Run `action` whenever the point is reached."""
        self._actions[name] = action

    def clear(self) -> None:
        """Remove all actions."""
        self._actions.clear()

    def reach(self, name: str) -> None:
        """Run the point's action, if it has one."""
        if self._actions and (action := self._actions.get(name)) is not None:
            action()

    def __bool__(self) -> bool:
        return bool(self._actions)
