"""Decisions of state machines worth a log line; their shells log and journal them (`journal`)."""

from __future__ import annotations

from typing import NamedTuple

ELECTION, ISR, FENCING, UNCLEAN = "election", "isr", "fencing", "unclean"
CONTROLLER, BROKER, LOAD = "controller", "broker", "load"
TRUNCATION, MEMBER, PROCESS = "truncation", "member", "process"
KINDS = (ELECTION, ISR, FENCING, UNCLEAN, CONTROLLER, BROKER, LOAD, TRUNCATION, MEMBER, PROCESS)


class Decided(NamedTuple):
    """A decision to be logged and journaled."""

    kind: str
    """One of KINDS."""
    text: str
    """One line, with the figures that led to it."""
    subject: str = ""
    """What it is about: TOPIC-PARTITION, a group or a broker."""
