"""One cell of the window: a batch of records of one partition, and its worker."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.lanes import Lane
from raylog.client.parallel.partitions import Partition
from raylog.client.parallel.progress import Entry, Progress


class State(Enum):
    """What a cell does."""

    RUNNING = auto()
    ENDING = auto()
    """Given up, but its worker has not said so."""
    WAITING = auto()
    DELIVERING = auto()
    REDELIVERING = auto()
    """What could not be delivered waits to be sent again."""


PAUSING = (State.WAITING, State.REDELIVERING)
"""No worker and no producer has it."""


class Cell:
    """A batch and its worker."""

    __slots__ = (
        "attempt",
        "cell_id",
        "due_ms",
        "entries",
        "failed_first_ms",
        "is_isolating",
        "is_letter",
        "lanes",
        "outputs",
        "partition",
        "progress",
        "run_size",
        "sent",
        "state",
        "undelivered",
    )

    def __init__(self, cell_id: int, partition: Partition, progress: Progress) -> None:
        self.cell_id = cell_id
        self.partition = partition
        self.progress = progress
        self.entries: deque[Entry] = deque()
        """Not finished, in order; a run takes the first ones."""
        self.lanes: list[Lane] = []
        self.state = State.RUNNING
        self.run_size = 0
        self.attempt = 0
        """Failed runs of the first entry."""
        self.failed_first_ms: int | None = None
        self.is_isolating = False
        """A batch failed: one record a run from now on."""
        self.due_ms = 0.0
        self.sent = 0
        """How many entries what is being delivered belongs to."""
        self.outputs: tuple[ProducerRecord, ...] = ()
        self.is_letter = False
        """What is being delivered is a letter, not what the function returned."""
        self.undelivered = 0
        """Failed deliveries in a row."""
