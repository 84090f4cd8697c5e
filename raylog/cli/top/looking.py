"""Queries a cluster in rounds, in a separate thread so that the terminal stays responsive."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import TYPE_CHECKING

from raylog.cli.top.reader import Reader, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raylog.cli.top.reader import Tell
    from raylog.client import ClientSettings

_BUSY_MAX = 0.25
"""Maximum share of a core that queries may take: a large cluster is queried less often."""

_PAUSE_MIN_MS = 250.0
"""Pause after a round that took longer than the interval because a broker did not answer."""


_LATE_MS = 2_000.0
"""An answer that is late by more than this is overdue."""


def period_ms(interval_ms: float, cpu_ms: float) -> float:
    """Return the time between the starts of two rounds; `cpu_ms` is the CPU time of one round."""
    return max(interval_ms, cpu_ms / _BUSY_MAX)


class Looking:
    """Queries a cluster in rounds until `stop`. `tell` and `ended` are called in its thread."""

    def __init__(
        self,
        settings: ClientSettings,
        interval_ms: float,
        tell: Tell,
        ended: Callable[[BaseException | None], None],
        metrics: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.interval_ms = interval_ms
        self.cpu_ms = 0.0
        """CPU time of the last round in its thread."""
        self.round_ms = 0.0
        """Duration of the last round."""
        self.is_paused = False
        self._settings = settings
        self._metrics = metrics
        self._tell = tell
        self._ended = ended
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="raylog-top", daemon=True)

    def start(self) -> None:
        """Start the queries."""
        self._thread.start()

    def change(self, *, interval_ms: float | None = None, is_paused: bool | None = None) -> None:
        """Change the interval, pause or resume, and query now unless paused."""
        if interval_ms is not None:
            self.interval_ms = interval_ms
        if is_paused is not None:
            self.is_paused = is_paused
        self._loop.call_soon_threadsafe(self._changed.set)

    def stop(self) -> None:
        """Stop the thread and wait for it, for the time of one request at most."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._loop.call_soon_threadsafe(self._changed.set)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._loop.run_until_complete(self._rounds())
        except Exception as broken:  # noqa: BLE001 - handed to the thread that shows it
            failure = broken
        self._ended(failure)

    @property
    def period_ms(self) -> float:
        """Time between the starts of two rounds."""
        return period_ms(self.interval_ms, self.cpu_ms)

    @property
    def patience_ms(self) -> float:
        """Age at which metadata is overdue; infinite during a pause."""
        if self.is_paused:
            return math.inf
        return max(self.period_ms, self.round_ms) + _LATE_MS

    async def _rounds(self) -> None:
        reader = Reader(self._settings, self._tell, metrics=self._metrics)
        stopping = asyncio.ensure_future(self._end())
        try:
            while not stopping.done():
                self._changed.clear()
                began_ms = now_ms()
                if not self.is_paused:
                    await self._round(reader, stopping)
                await self._wait(began_ms)
        finally:
            stopping.cancel()
            await reader.close()

    async def _end(self) -> None:
        await self._stopping.wait()

    async def _round(self, reader: Reader, stopping: asyncio.Task[None]) -> None:
        """Run one round; cancel it on `stop`."""
        began_s, began_ms = time.thread_time(), now_ms()
        look = asyncio.ensure_future(reader.look())
        await asyncio.wait({look, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not look.done():
            look.cancel()
            await asyncio.wait({look})
            return
        look.result()
        self.cpu_ms = (time.thread_time() - began_s) * 1_000
        self.round_ms = now_ms() - began_ms

    async def _wait(self, began_ms: float) -> None:
        """Wait until the next round is due, or `change` or `stop` is called."""
        left_ms = max(_PAUSE_MIN_MS, began_ms + self.period_ms - now_ms())
        timeout_s = None if self.is_paused else left_ms / 1_000
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
