"""Measures the offset of another process's wall clock by asking for its time, as NTP does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROUNDS = 10
"""The number of questions before a run."""
EVERY_S = 3.0
"""Seconds between questions during a run."""
DRIFT_PPM = 50
"""The assumed drift between two quartz clocks, in µs per second."""
_US_PER_S = 1_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question and its answer; times of wall clocks in µs."""

    asked_us: int
    """On our clock."""
    answered_us: int
    """On the other clock."""
    received_us: int
    """On our clock."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far another clock is ahead of ours, in µs."""

    offset_us: int
    uncertainty_us: int
    """The largest possible error of the offset."""


def offset_of(one: Exchange) -> Offset:
    """The offset from one exchange. A quicker answer has a smaller uncertainty."""
    middle_us = (one.asked_us + one.received_us) // 2
    half_us = max(0, one.received_us - one.asked_us + 1) // 2
    return Offset(one.answered_us - middle_us, half_us)


class OtherClock:
    """The known offset of another process's clock.

    An answer replaces the known offset if it is less uncertain. The uncertainty of the known offset
    grows with time, by `DRIFT_PPM`. So the delayed answer of a busy process changes nothing.
    """

    def __init__(self) -> None:
        self._known: Offset | None = None
        self._known_us: int | None = None
        """When it was measured; None if its uncertainty does not grow."""

    def answered(self, one: Exchange) -> None:
        """Use an answer of the process."""
        found, known = offset_of(one), self.at(one.received_us)
        if known is None or found.uncertainty_us <= known.uncertainty_us:
            self._known, self._known_us = found, one.received_us

    def runs_with_ours(self, offset_us: int) -> None:
        """Set the exact, constant offset of a process on our machine."""
        self._known, self._known_us = Offset(offset_us, 0), None

    def at(self, now_us: int) -> Offset | None:
        """The offset at a time; None before the first answer."""
        if self._known is None or self._known_us is None:
            return self._known
        drift_us = max(0, now_us - self._known_us) * DRIFT_PPM // _US_PER_S
        return Offset(self._known.offset_us, self._known.uncertainty_us + drift_us)


def clock_id() -> str | None:
    """An id of this machine's monotonic clock, equal for all processes that share it.

    None if it is unknown.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None
