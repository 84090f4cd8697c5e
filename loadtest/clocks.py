"""How far another process's wall clock is from ours: it is asked for its time, as NTP does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROUNDS = 10
"""Questions before a run."""
EVERY_S = 3.0
"""How often a clock is asked during a run."""
DRIFT_PPM = 50
"""Two quartz clocks drift apart by no more than this: so many µs in a second."""
_US_PER_S = 1_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question and its answer; µs of wall clocks."""

    asked_us: int
    """By our clock."""
    answered_us: int
    """By the other one."""
    heard_us: int
    """By our clock."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far another clock is ahead of ours, in µs."""

    offset_us: int
    uncertainty_us: int
    """The true offset is not further away than this."""


def offset_of(one: Exchange) -> Offset:
    """The offset by one question: the quicker its answer, the less uncertain."""
    middle_us = (one.asked_us + one.heard_us) // 2
    half_us = max(0, one.heard_us - one.asked_us + 1) // 2
    return Offset(one.answered_us - middle_us, half_us)


class OtherClock:
    """What is known of another process's clock.

    An answer replaces what is known if it is less uncertain; what is known becomes more uncertain
    with time, by `DRIFT_PPM`. So an answer that had to wait for a busy process changes nothing.
    """

    def __init__(self) -> None:
        self._known: Offset | None = None
        self._known_us: int | None = None
        """When that was; None if it does not become more uncertain."""

    def heard(self, one: Exchange) -> None:
        """It has answered."""
        found, known = offset_of(one), self.at(one.heard_us)
        if known is None or found.uncertainty_us <= known.uncertainty_us:
            self._known, self._known_us = found, one.heard_us

    def runs_with_ours(self, offset_us: int) -> None:
        """It is of our machine: by this it is ahead, for ever and exactly."""
        self._known, self._known_us = Offset(offset_us, 0), None

    def at(self, now_us: int) -> Offset | None:
        """The offset as it is known now; None before it has answered."""
        if self._known is None or self._known_us is None:
            return self._known
        drift_us = max(0, now_us - self._known_us) * DRIFT_PPM // _US_PER_S
        return Offset(self._known.offset_us, self._known.uncertainty_us + drift_us)


def clock_id() -> str | None:
    """Names the monotonic clock of this machine, for processes that have the same one.

    None where that cannot be told.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None
