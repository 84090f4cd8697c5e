"""Work done beside the event loop, in threads of its own process: where there is no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from raylog.actors.runtime.base import Work


class _Runs(Protocol):
    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        """As `Runtime.run_blocking`."""


class Beside:
    """Work whose steps run as `Runtime.run_blocking` does it."""

    def __init__(self, runtime: _Runs, work: Work) -> None:
        self._runtime = runtime
        self._work = work

    def step(self) -> Awaitable[Any]:
        """What one step returned."""
        return self._runtime.run_blocking(self._work.step)

    def stop(self) -> None:
        """Tell it."""
        self._work.stop()

    async def close(self) -> None:
        """Leave it."""
