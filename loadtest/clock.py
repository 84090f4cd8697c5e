"""The clock of a run: that of its first process, as every other process knows it."""

from __future__ import annotations

import time

_NS_PER_US = 1_000


class Clock:
    """Wall-clock time in µs since 1970, which never goes back and never jumps.

    It is read from the system once and goes on with the monotonic clock, so that a correction of
    the system's time in the middle of a run is not taken for a latency.
    """

    def __init__(self) -> None:
        self._offset_us = 0
        self._base_us = self.own_base_us = (time.time_ns() - time.monotonic_ns()) // _NS_PER_US
        """`own_base_us` is what was added to the monotonic clock at first. Processes of one machine
        that began before and after a correction of the system's time have different ones."""

    @property
    def offset_us(self) -> int:
        """How far this process's own clock is ahead of the first process's; 0 until it is set."""
        return self._offset_us

    @offset_us.setter
    def offset_us(self, offset_us: int) -> None:
        self._base_us += self._offset_us - offset_us
        self._offset_us = offset_us

    def now_us(self) -> int:
        """The time, as the first process's clock tells it."""
        return time.monotonic_ns() // _NS_PER_US + self._base_us
