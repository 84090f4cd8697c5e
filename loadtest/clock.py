"""The clock of a run: the clock of its first process, which every other process follows."""

from __future__ import annotations

import time

_NS_PER_US = 1_000


class Clock:
    """Wall-clock time in µs since 1970 that is monotonic.

    It is read from the system once and then follows the monotonic clock, so that a correction of
    the system time during a run does not count as latency.
    """

    def __init__(self) -> None:
        self._offset_us = 0
        self._base_us = self.own_base_us = (time.time_ns() - time.monotonic_ns()) // _NS_PER_US
        """`own_base_us` is the first offset to the monotonic clock. It differs between processes of
        one machine if the system time was corrected between their starts."""

    @property
    def offset_us(self) -> int:
        """How far this process's clock is ahead of the first process's; 0 until it is set."""
        return self._offset_us

    @offset_us.setter
    def offset_us(self, offset_us: int) -> None:
        self._base_us += self._offset_us - offset_us
        self._offset_us = offset_us

    def now_us(self) -> int:
        """The time on the first process's clock."""
        return time.monotonic_ns() // _NS_PER_US + self._base_us
