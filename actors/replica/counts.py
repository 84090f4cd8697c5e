"""What a Replica process counts by topic."""

from __future__ import annotations


class TopicCounts:
    """The partitions of one topic in one process, or of all topics that share a count."""

    __slots__ = (
        "batches_in",
        "bytes_in",
        "expands",
        "partitions",
        "records_in",
        "replicated_in",
        "replicated_out",
        "shrinks",
    )

    def __init__(self) -> None:
        self.partitions = 0
        """How many are open."""
        self.batches_in = 0
        """Appended as leader; so are the next two."""
        self.bytes_in = 0
        self.records_in = 0
        self.replicated_in = 0
        """Bytes fetched from leaders."""
        self.replicated_out = 0
        """Bytes sent to followers."""
        self.shrinks = 0
        """Changes of the in-sync replicas after which there were fewer, or others."""
        self.expands = 0
        """Those after which there were more."""

    def isr_changed(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Count a committed change of the in-sync replicas of a partition."""
        if set(before) - set(after):
            self.shrinks += 1
        if set(after) - set(before):
            self.expands += 1
