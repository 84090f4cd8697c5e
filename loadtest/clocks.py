"""How far another process's wall clock is from ours: it is asked for its time, as NTP does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 10
"""Questions of one measurement; the one with the quickest answer counts."""
EVERY_S = 30.0
"""How often a clock is measured again: quartz clocks drift by some µs a second."""
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


SAME_CLOCK = Offset(0, 0)


def offset_of(exchanges: Iterable[Exchange]) -> Offset:
    """The offset by the quickest of several exchanges: its answer was under way for least long."""
    best = min(exchanges, key=lambda one: one.heard_us - one.asked_us)
    middle_us = (best.asked_us + best.heard_us) // 2
    half_us = max(0, best.heard_us - best.asked_us + 1) // 2
    return Offset(best.answered_us - middle_us, half_us)


def clock_id() -> str | None:
    """Names the clock of this machine: processes with the same one need not be measured.

    None where that cannot be told.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None
