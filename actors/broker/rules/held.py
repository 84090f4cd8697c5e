"""State of each partition replica that a broker holds, and of directories to be removed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """Phase of a partition replica; `machine` has the transitions."""

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
    """Incarnation of the current opening of the log."""
    whole: bool = True
    """False if damage removed records that the log once held."""
    failures: int = 0
    """Number of times that the log could not be opened or its disk failed."""
    reported: bool = False
    sent_epochs: tuple[int, int] | None = None
    """(leader epoch, partition epoch) last sent to its process."""
    led_epoch: int = -1
    """Leader epoch that its process has acknowledged."""
    routed_epoch: int = -1
    """Leader epoch under which gateways have a route to it."""
    routed_leader: bool = False
    """Whether that route is a leader's."""


class Leaving(NamedTuple):
    """A directory that is to be removed or set aside."""

    holder: str
    """The process that still has it open; empty if none has."""
    keep: bool
    """Whether it becomes a stray instead of being removed."""
