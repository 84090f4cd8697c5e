"""Remembers refused batches of idempotent producers, and what clients sent after them.

A client has several Produce requests in flight. While leadership moves, or the leader's process is
replaced, the first request may be refused and the next one may reach the new leader. There it gets
OUT_OF_ORDER_SEQUENCE_NUMBER, which is true but misleading: librdkafka then starts a new epoch and
writes again what was already written. So a batch that is out of order after a batch that was
refused on the same connection gets the same kind of error, and is sent again after it.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.common_messages import TopicId
from raylog.storage.producers import is_behind
from raylog.wire.errors import ErrorCode
from raylog.wire.records import NO_SEQUENCE, BatchHeader

REFUSED_MAX = 10_000
"""Per connection. A client has one producer, and a broker leads fewer partitions than this. Beyond
it the oldest entry is forgotten."""
_SENT_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which clients send the same batch again. It may already be in the log."""


class Sequence(NamedTuple):
    """Identifies a batch of an idempotent producer."""

    topic_id: TopicId
    partition: int
    producer_id: int
    epoch: int
    first: int


def sequence_of(topic_id: TopicId, partition: int, header: BatchHeader) -> Sequence | None:
    """Return the sequence of a batch; None if its producer is not idempotent."""
    if header.producer_id < 0:
        return None
    return Sequence(
        topic_id, partition, header.producer_id, header.producer_epoch, header.base_sequence
    )


class RefusedSequences:
    """The first refused batch of each producer and partition of one connection."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[TopicId, int, int], Sequence] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def before(self, sequence: Sequence) -> int:
        """Return the first refused sequence of the same producer and epoch, or NO_SEQUENCE.

        A replica that does not know the producer must not accept a later sequence first.
        """
        refused = self._refused.get(sequence[:3])
        if refused is None or refused.epoch != sequence.epoch:
            return NO_SEQUENCE
        return refused.first

    def written(self, sequence: Sequence) -> None:
        """Record that a batch is in the log, and so are the batches refused before it."""
        refused = self._refused.get(sequence[:3])
        if refused is not None and not _is_behind(refused, sequence):
            del self._refused[sequence[:3]]

    def note(self, sequence: Sequence, code: ErrorCode) -> ErrorCode:
        """Record a refusal; return the error code for the client."""
        refused = self._refused.get(sequence[:3])
        behind = refused is not None and _is_behind(sequence, refused)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and behind:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code in _SENT_AGAIN and not behind:
            if refused is None and len(self._refused) >= REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
            self._refused[sequence[:3]] = sequence
        return code


def _is_behind(sequence: Sequence, refused: Sequence) -> bool:
    """Whether a batch follows a refused one; a new epoch starts afresh."""
    return sequence.epoch == refused.epoch and is_behind(sequence.first, refused.first)
