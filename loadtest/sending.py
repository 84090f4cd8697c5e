"""A sender turns due requests into records, and their outcomes into latencies and a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from raylog.client import Delivery, Producer
from raylog.client.producer.reports import describe
from raylog.loadtest.choosing import Choice, Group, typical_size
from raylog.loadtest.ledger import UNKNOWN_OFFSET, Fate
from raylog.loadtest.local import Local
from raylog.loadtest.operations import PRODUCE
from raylog.loadtest.records import encode_many
from raylog.loadtest.scenario import ProducerUsers, TransactionalUsers

UNFINISHED = "not answered before its sender stopped"


class Place(NamedTuple):
    """Where a sender's records are."""

    partition: int
    first_sequence: int
    record_count: int
    base_offset: int


class Sent:
    """The rows of one `send_rows` call, as its `on_delivery`."""

    __slots__ = ("bytes", "ended", "ends", "first_sequence", "intended_us", "partition")

    def __init__(
        self,
        partition: int,
        first_sequence: int,
        intended_us: list[int],
        size: int,
        ended: Callable[[Sent, int, Delivery], None],
    ) -> None:
        self.partition = partition
        self.first_sequence = first_sequence
        self.intended_us = intended_us
        self.bytes = size
        self.ended = ended
        self.ends: list[tuple[int, int]] = []
        """First row and count of completed rows."""

    def __call__(self, first_row: int, delivery: Delivery) -> None:
        """Handle the completion of some rows."""
        self.ends.append((first_row, delivery.record_count))
        self.ended(self, first_row, delivery)

    @property
    def has_ended(self) -> bool:
        """Whether all rows are completed."""
        return sum(count for _, count in self.ends) == len(self.intended_us)

    def unfinished(self) -> Iterator[tuple[int, int]]:
        """First row and count of the rows that are not completed."""
        row = 0
        for first_row, count in (*sorted(self.ends), (len(self.intended_us), 0)):
            if first_row > row:
                yield row, first_row - row
            row = first_row + count


class Sender:
    """Sends a user's records and records the outcome of each."""

    def __init__(
        self,
        local: Local,
        entry: ProducerUsers | TransactionalUsers,
        producer: Producer[bytes, bytes],
        *,
        batch_bytes: int,
        is_answered: bool = True,
    ) -> None:
        """`is_answered` is False with acks=0, where an acknowledgement means nothing."""
        self.number = local.new_sender()
        self._local = local
        self._topic = local.topic(entry.topic)
        self._producer = producer
        self._is_answered = is_answered
        self._transaction: list[Place] | None = None
        """The acknowledged records of the open transaction; None outside of one."""
        self._typical_size = typical_size(entry.size)
        self._choice = Choice(
            entry.size,
            entry.keys,
            producer.partitions_for(self._topic),
            batch_bytes,
            seed=self.number,
        )
        self._next_sequence: dict[int, int] = {}
        self._open: dict[Sent, None] = {}
        """Calls with rows that are not completed."""

    def send(self, intended_us: list[int]) -> None:
        """Send what is due. Blocks while the producer's buffer is full."""
        groups = list(self._choice.groups(intended_us, self._typical_size))
        for number, group in enumerate(groups):
            try:
                self._send_group(group)
            except BaseException as error:
                text = describe(error) if isinstance(error, Exception) else UNFINISHED
                for left in islice(groups, number + 1, None):
                    self._local.recorder.failed_many(PRODUCE, text, left.intended_us)
                raise

    def _send_group(self, group: Group) -> None:
        local, count = self._local, len(group.intended_us)
        first = self._next_sequence.get(group.partition, 0)
        sizes = self._choice.sizes(count)
        values = encode_many(local.run_number, self.number, first, group.intended_us, sizes)
        size = sizes * count if isinstance(sizes, int) else sum(sizes)
        sent = Sent(group.partition, first, group.intended_us, size, self._ended)
        self._open[sent] = None
        self._next_sequence[group.partition] = first + count
        rows = values if group.keys is None else list(zip(group.keys, values, strict=True))
        self._producer.send_rows(self._topic, rows, partition=group.partition, on_delivery=sent)

    def _ended(self, sent: Sent, first_row: int, delivery: Delivery) -> None:
        """Handle rows that were acknowledged or failed."""
        if sent.has_ended:
            self._open.pop(sent, None)
        local, count = self._local, delivery.record_count
        place = Place(sent.partition, sent.first_sequence + first_row, count, delivery.base_offset)
        times = sent.intended_us[first_row : first_row + count]
        if delivery.failure is not None:
            local.recorder.failed_many(PRODUCE, describe(delivery.failure), times)
            self._note(place, Fate.UNANSWERED)
            return
        size = sent.bytes * count // len(sent.intended_us)
        local.recorder.done_many(PRODUCE, times, local.clock.now_us(), size)
        self._note(place, Fate.ACKNOWLEDGED if self._is_answered else Fate.UNANSWERED)

    def _note(self, place: Place, fate: Fate) -> None:
        if self._transaction is not None:
            self._transaction.append(place)
            return
        partition, first, count, offset = place
        self._local.ledger.add(self._topic, partition, self.number, first, count, fate, offset)

    def begin_transaction(self) -> None:
        """Begin a transaction. It decides the fate of its records."""
        self._transaction = []

    def end_transaction(self, fate: Fate) -> None:
        """End the transaction, and with it the fate of all its records."""
        places, self._transaction = self._transaction or [], None
        for place in places:
            self._note(place, fate)

    def give_up(self, fate: Fate = Fate.UNANSWERED) -> None:
        """Give records that are not completed a final fate: unanswered, or `fate`.

        An open transaction gets it, too.
        """
        unfinished, self._open = self._open, {}
        for sent in unfinished:
            for row, count in sent.unfinished():
                times = sent.intended_us[row : row + count]
                self._local.recorder.failed_many(PRODUCE, UNFINISHED, times)
                place = Place(sent.partition, sent.first_sequence + row, count, UNKNOWN_OFFSET)
                self._note(place, Fate.UNANSWERED)
        self.end_transaction(fate)
