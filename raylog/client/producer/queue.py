"""The batches of one partition, as kept by the accumulator."""

from __future__ import annotations

from collections import deque

from raylog.client.cluster import TopicPartition
from raylog.client.producer.batch import NO_IDENTITY, Batch, ProducerIdentity
from raylog.wire.records import NO_SEQUENCE

_REMEMBERED_MAX = 5
"""Brokers recognize retries of this many batches: a producer's newest in the partition."""


class PartitionQueue:
    """The batches of one partition, and when they may be sent."""

    def __init__(
        self, key: TopicPartition, identity: ProducerIdentity, *, is_ordered: bool = False
    ) -> None:
        self.key = key
        self.identity = identity
        """The identity its sequence numbers belong to; other partitions may have a newer one."""
        self.used_ms = 0.0
        """When its newest batch was started."""
        self.is_ordered = is_ordered
        """Whether only one batch may be in flight: only sequences keep several retries in order."""
        self.open: Batch | None = None
        """The batch that still accepts records; the last of `batches`."""
        self.batches: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.refused: list[Batch] = []
        self.next_sequence = 0
        self.drained_count = 0
        """Number of batches sent, retries included."""
        self.has_gap = False
        """Whether sequence numbers were lost; then nothing is sent until `renew`."""
        self.is_known = False
        """Whether brokers know the producer: they have acknowledged a batch with its id."""
        self.not_before_ms = 0.0
        """When it may send again; 0: at once."""
        self.taken_bytes = 0
        """Bytes in batches sealed since the partition was last chosen for records."""

    @property
    def is_sealed(self) -> bool:
        """Whether the first batch accepts no more records."""
        return self.batches[0] is not self.open

    def is_idle(self, since_ms: float) -> bool:
        """Whether it holds nothing and no batch was started since a time."""
        return not (self.batches or self.in_flight or self.has_gap or self.used_ms >= since_ms)

    @property
    def may_send(self) -> bool:
        """Whether this partition allows its first batch to be sent."""
        if not self.batches or self.refused or self.not_before_ms or self.has_gap:
            return False
        if not self.in_flight:
            return True
        return not self.is_ordered and not self._endangers_retries

    @property
    def _endangers_retries(self) -> bool:
        """Whether brokers that have the next batch could reject a retry of the oldest in flight.

        They accept any first sequence number from an unknown producer, and forget old batches. A
        single leader answers in order, but may refuse one batch and accept the next. After a leader
        change, the old leader may leave a batch unanswered while the new one accepts later batches.
        """
        if self.identity == NO_IDENTITY:
            return False
        sent_since = self.drained_count - self.in_flight[0].ordinal
        return not self.is_known or sent_since >= _REMEMBERED_MAX

    @property
    def lingers_since_ms(self) -> float | None:
        """When the first batch was started, if it is still open and the partition may send."""
        return self.batches[0].created_ms if self.may_send and not self.is_sealed else None

    def sent(self, batch: Batch) -> None:
        """Record that a batch is in flight."""
        batch.ordinal = self.drained_count
        self.drained_count += 1
        self.in_flight.append(batch)

    def seal(self) -> None:
        """Close the open batch to more records."""
        if self.open is not None:
            self.taken_bytes += self.open.size
            self.open = None

    @property
    def may_renew(self) -> bool:
        """Whether no batch needs the current identity any more."""
        if self.in_flight:
            return False
        return self.has_gap or all(batch.sequence == NO_SEQUENCE for batch in self.batches)

    def renew(self, identity: ProducerIdentity) -> list[Batch]:
        """Start again at sequence 0; return the batches that are given up.

        It is unknown whether those were written, and only the old identity could have told.
        """
        self.is_known &= identity.producer_id == self.identity.producer_id
        self.identity = identity
        self.next_sequence = 0
        self.has_gap = False
        given_up = [batch for batch in self.batches if batch.may_be_written]
        if given_up:
            self.batches = deque(batch for batch in self.batches if not batch.may_be_written)
        for batch in self.batches:
            batch.sequence = NO_SEQUENCE
        return given_up
