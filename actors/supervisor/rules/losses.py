"""Losses: brokers whose data directories are gone, and since when.

A broker that does not find its directory records the loss; a broker that opens its directory
removes it. If the same loss is found again, the first time is kept.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """A directory that was expected but missing."""

    broker_id: int
    directory_id: str
    since_ms: int
    """Wall-clock time in ms since the epoch."""
