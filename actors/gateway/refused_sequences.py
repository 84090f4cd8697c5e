"""Batches of idempotent producers that were refused, and what a client had sent after them.

A client has several Produce requests on their way. While leadership moves, or its process is
replaced, the first of them may be refused and the next find the new leader ready: that one is
OUT_OF_ORDER_SEQUENCE_NUMBER to it, which is true and misleads. librdkafka then takes a new epoch
and writes under it once more what had been written. So who is out of order behind a batch that was
refused over the same connection is refused as that was, and comes again behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.ports import TopicId
from raylog.storage.producers import is_behind
from raylog.wire.errors import ErrorCode
from raylog.wire.records import NO_SEQUENCE, BatchHeader

REFUSED_MAX = 10_000
"""Of one connection. A client has one producer, and a broker leads fewer partitions; beyond that
the oldest is forgotten."""
_SENT_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors with which a batch is not in the log, as far as its client can know, and comes again."""


class Sequence(NamedTuple):
    """What tells a batch of an idempotent producer from all others."""

    topic_id: TopicId
    partition: int
    producer_id: int
    epoch: int
    first: int


def sequence_of(topic_id: TopicId, partition: int, header: BatchHeader) -> Sequence | None:
    """The sequence of a batch; None where its producer keeps none."""
    if header.producer_id < 0:
        return None
    return Sequence(
        topic_id, partition, header.producer_id, header.producer_epoch, header.base_sequence
    )


class RefusedSequences:
    """Of one connection: the first refused batch of each producer and partition."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[TopicId, int, int], Sequence] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def before(self, sequence: Sequence) -> int:
        """The first sequence refused of the same producer and epoch; NO_SEQUENCE if none was.

        A replica that does not know the producer must not begin behind it.
        """
        refused = self._refused.get(sequence[:3])
        if refused is None or refused.epoch != sequence.epoch:
            return NO_SEQUENCE
        return refused.first

    def written(self, sequence: Sequence) -> None:
        """A batch is in the log: so is, by now, what was refused before it."""
        refused = self._refused.get(sequence[:3])
        if refused is not None and not _is_behind(refused, sequence):
            del self._refused[sequence[:3]]

    def note(self, sequence: Sequence, code: ErrorCode) -> ErrorCode:
        """Remember a refusal; returns the code that the client is to get."""
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
    """Whether a batch follows a refused one; a new epoch begins anew."""
    return sequence.epoch == refused.epoch and is_behind(sequence.first, refused.first)
