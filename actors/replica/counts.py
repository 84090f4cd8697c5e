"""Counters of a Replica process, by topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class TopicCounts:
    """Counters of the partitions of one topic in one process, or of all topics that share them."""

    partitions: int = 0
    """Number of open partitions."""
    batches_in: int = 0
    """Appended as leader, like the next two."""
    bytes_in: int = 0
    records_in: int = 0
    replicated_in: int = 0
    """Bytes fetched from leaders."""
    replicated_out: int = 0
    """Bytes sent to followers."""
    shrinks: int = 0
    """ISR changes that removed a replica."""
    expands: int = 0
    """ISR changes that added replicas."""

    def isr_changed(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Count a committed ISR change of a partition."""
        if set(before) - set(after):
            self.shrinks += 1
        if set(after) - set(before):
            self.expands += 1
