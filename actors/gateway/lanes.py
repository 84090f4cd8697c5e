"""Runs work that takes too long for the event loop, in order for each partition.

Work leaves a lane in the order in which it entered, so that batches of a partition are sent in the
order in which they arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from raylog.actors.common_messages import PartitionKey
from raylog.actors.runtime.base import Runtime

WIDTH = 8
"""Number of lanes that run at the same time."""


class _Job(NamedTuple):
    work: Callable[[], Awaitable[Any]]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]


class Lanes:
    """One lane for each partition that has work."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lanes: dict[PartitionKey, deque[_Job]] = {}
        self._ready: deque[PartitionKey] = deque()
        """Lanes whose first job can start, in order."""
        self._moving = 0

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._lanes

    def enter(
        self,
        key: PartitionKey,
        work: Callable[[], Awaitable[Any]],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Run `work` after all work that entered earlier; then call `done` or `failed`.

        Nothing else runs between the end of the work and `done`.
        """
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = deque()
            self._ready.append(key)
        lane.append(_Job(work, done, failed))
        self._move()

    def _move(self) -> None:
        while self._ready and self._moving < WIDTH:
            self._moving += 1
            self._runtime.start(self._first(self._ready.popleft()), "lane")

    async def _first(self, key: PartitionKey) -> None:
        lane = self._lanes[key]
        job = lane[0]
        try:
            result = await job.work()
        except AssertionError:
            raise
        except Exception as failure:  # noqa: BLE001 - the request's answer says what failed
            self._leave(key, lane)
            job.failed(failure)
        else:
            self._leave(key, lane)
            job.done(result)
        self._move()

    def _leave(self, key: PartitionKey, lane: deque[_Job]) -> None:
        self._moving -= 1
        lane.popleft()
        if lane:
            self._ready.append(key)
        else:
            del self._lanes[key]
