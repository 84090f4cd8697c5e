"""A cell of the window: a batch of records of one partition, and its worker."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.lanes import Lane
from raylog.client.parallel.partitions import Partition
from raylog.client.parallel.progress import Entry, Progress


class State(Enum):
    """The state of a cell."""

    RUNNING = auto()
    ENDING = auto()
    """Given up, but its worker has not answered yet."""
    WAITING = auto()
    DELIVERING = auto()
    REDELIVERING = auto()
    """A failed delivery waits to be repeated."""


PAUSING = (State.WAITING, State.REDELIVERING)
"""States in which no worker and no producer holds the cell."""


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
        """Unfinished entries, in order; a run takes the first ones."""
        self.lanes: list[Lane] = []
        self.state = State.RUNNING
        self.run_size = 0
        self.attempt = 0
        """Failed runs of the first entry."""
        self.failed_first_ms: int | None = None
        self.is_isolating = False
        """A batch failed: run one record at a time from now on."""
        self.due_ms = 0.0
        self.sent = 0
        """How many entries the delivery in progress is for."""
        self.outputs: tuple[ProducerRecord, ...] = ()
        self.is_letter = False
        """Whether a letter is being delivered rather than the function's results."""
        self.undelivered = 0
        """Consecutive failed deliveries."""
