"""One link request that writes to several partitions, and its single answer."""

from __future__ import annotations

from typing import Protocol

from raylog.actors.replica.messages import ProduceAnswer
from raylog.actors.runtime.deadlines import Deadlines, Due
from raylog.wire.errors import KafkaError, RequestTimedOut


class Requester(Protocol):
    """Receives the answers to all batches, in their order."""

    def reply(self, header: object) -> None:
        """Send the answers; called once."""


class Writes:
    """The batches of one request, answered together when the last of them is settled.

    When the timeout passes, batches that still wait for replication get REQUEST_TIMED_OUT, although
    they may be replicated later.
    """

    __slots__ = ("_answers", "_due", "_left", "_request")

    def __init__(self, request: Requester, count: int) -> None:
        self._request = request
        self._answers: list[object] = [None] * count
        self._left = count
        self._due: Due | None = None

    def settle(self, number: int, answer: object) -> None:
        """Record one batch's outcome; ignored after the timeout."""
        if self._answers[number] is not None:
            return
        self._answers[number] = answer
        self._left -= 1
        if self._left == 0:
            if self._due is not None:
                self._due.discard(self)
            self._request.reply(self._answers)

    def limit(self, deadlines: Deadlines, timeout_ms: int) -> None:
        """Answer after `timeout_ms` at the latest."""
        if self._left:
            self._due = deadlines.add(self, timeout_ms)

    def timed_out(self) -> None:
        """Settle the remaining batches as timed out."""
        late = RequestTimedOut("the batch is written but not yet replicated to all in sync")
        for number in range(len(self._answers)):
            self.settle(number, _refused(late))


class Write:
    """One batch to be written to a partition. It is answered once, by `reply` or `fail`."""

    __slots__ = ("_number", "_writes", "batch", "refused_sequence")

    def __init__(
        self, writes: Writes, number: int, batch: memoryview, refused_sequence: int
    ) -> None:
        self._writes = writes
        self._number = number
        self.batch = batch
        self.refused_sequence = refused_sequence

    def reply(self, answer: ProduceAnswer) -> None:
        """Answer that the batch is written as its acks require."""
        self._writes.settle(self._number, answer)

    def fail(self, failure: KafkaError) -> None:
        """Answer that the batch is not, or not certainly, written."""
        self._writes.settle(self._number, _refused(failure))


def _refused(failure: KafkaError) -> tuple[int, str]:
    return int(failure.code), str(failure)
