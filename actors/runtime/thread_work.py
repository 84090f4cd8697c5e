"""Work in threads of the own process, for runtimes without helper processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from raylog.actors.runtime.base import Work


class _Runs(Protocol):
    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a thread, as `Runtime.run_blocking` does."""


class WorkInThreads:
    """Work whose steps run by `Runtime.run_blocking`."""

    def __init__(self, runtime: _Runs, work: Work) -> None:
        self._runtime = runtime
        self._work = work

    def step(self) -> Awaitable[Any]:
        """Run one step and return its result."""
        return self._runtime.run_blocking(self._work.step)

    def stop(self) -> None:
        """Stop the work."""
        self._work.stop()

    async def close(self) -> None:
        """Do nothing."""
