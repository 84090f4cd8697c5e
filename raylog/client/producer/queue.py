"""One partition's batches in the accumulator."""

from __future__ import annotations

from collections import deque

from raylog.client.cluster import TopicPartition
from raylog.client.producer.batch import NO_IDENTITY, Batch, ProducerIdentity
from raylog.wire.records import NO_SEQUENCE

_REMEMBERED_MAX = 5
"""Brokers recognize repeats of so many batches of a producer, the newest of the partition."""


class PartitionQueue:
    """One partition's batches."""

    def __init__(
        self, key: TopicPartition, identity: ProducerIdentity, *, is_ordered: bool = False
    ) -> None:
        self.key = key
        self.identity = identity
        """What sequence numbers count for here; other partitions may have a newer one."""
        self.used_ms = 0.0
        """When its newest batch was begun."""
        self.is_ordered = is_ordered
        """Whether nothing leaves while something is in flight: only sequences order repeats."""
        self.open: Batch | None = None
        """The batch that takes records; the last of `batches`."""
        self.batches: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.refused: list[Batch] = []
        self.next_sequence = 0
        self.drained_count = 0
        """Batches sent, repeats included."""
        self.has_gap = False
        """Sequence numbers are lost: nothing is sent until `renew`."""
        self.not_before_ms = 0.0
        """0: nothing keeps it from sending."""
        self.taken_bytes = 0
        """Of batches that are not open any more, since the partition was chosen for records."""

    @property
    def is_sealed(self) -> bool:
        """Whether the first batch takes no more records."""
        return self.batches[0] is not self.open

    def is_idle(self, since_ms: float) -> bool:
        """Whether it holds nothing and no batch was begun since a time."""
        return not (self.batches or self.in_flight or self.has_gap or self.used_ms >= since_ms)

    @property
    def may_send(self) -> bool:
        """Whether the first batch may leave as far as the partition is concerned."""
        if not self.batches or self.refused or self.not_before_ms or self.has_gap:
            return False
        if not self.in_flight:
            return True
        return not self.is_ordered and not self._would_be_forgotten

    @property
    def _would_be_forgotten(self) -> bool:
        """Whether brokers might not know the oldest batch in flight again after the next one.

        As long as one broker leads, it answers in order. When the next one has begun, the one
        before may leave a batch unanswered while later ones are acknowledged.
        """
        if self.identity == NO_IDENTITY:
            return False
        return self.drained_count - self.in_flight[0].ordinal >= _REMEMBERED_MAX

    @property
    def lingers_since_ms(self) -> float | None:
        """When the first batch was begun, if that takes more records and may leave one day."""
        return self.batches[0].created_ms if self.may_send and not self.is_sealed else None

    def sent(self, batch: Batch) -> None:
        """A batch leaves."""
        batch.ordinal = self.drained_count
        self.drained_count += 1
        self.in_flight.append(batch)

    def seal(self) -> None:
        """Let the open batch take no more records."""
        if self.open is not None:
            self.taken_bytes += self.open.size
            self.open = None

    @property
    def may_renew(self) -> bool:
        """Whether no batch needs the identity that it was sent under."""
        if self.in_flight:
            return False
        return self.has_gap or all(batch.sequence == NO_SEQUENCE for batch in self.batches)

    def renew(self, identity: ProducerIdentity) -> list[Batch]:
        """Begin again at sequence 0; returns the batches that are given up.

        Whether those are written is unknown, and only the old identity could have told.
        """
        self.identity = identity
        self.next_sequence = 0
        self.has_gap = False
        given_up = [batch for batch in self.batches if batch.may_be_written]
        if given_up:
            self.batches = deque(batch for batch in self.batches if not batch.may_be_written)
        for batch in self.batches:
            batch.sequence = NO_SEQUENCE
        return given_up
