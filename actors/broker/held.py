"""What a broker knows of each partition replica it holds, and of directories on their way out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """Where a partition replica stands; `machine` has the transitions."""

    ASSIGNED = "assigned"
    OPENING = "opening"
    OPEN = "open"
    FAILED = "failed"


@dataclass(slots=True)
class LocalPartition:
    """A partition replica on this broker."""

    topic: str
    slot: str
    phase: Phase = Phase.ASSIGNED
    incarnation: str = ""
    """This opening of the log."""
    whole: bool = True
    """False if damage took records that the log held."""
    failures: int = 0
    """How often it could not be opened, or its disk failed."""
    reported: bool = False
    told: tuple[int, int] | None = None
    """(leader epoch, partition epoch) its process was last told."""
    led_epoch: int = -1
    """Leader epoch its process has taken in."""
    routed_epoch: int = -1
    """Leader epoch under which gateways have a route to it."""
    routed_leader: bool = False
    """Whether they have it as the leader."""


class Leaving(NamedTuple):
    """A directory on its way out."""

    holder: str
    """The process that still has it open; empty if none has."""
    keep: bool
    """Whether it becomes a stray, instead of being removed."""
