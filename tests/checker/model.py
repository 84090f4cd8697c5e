"""Random clean histories from a small model of partitions, producers, transactions and consumers.

The model keeps logs like Kafka: control records take offsets, readers of committed records stop at
the first open transaction, compaction and retention leave gaps. None of its histories may be
reported as an anomaly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.checker.operations import (
    Action,
    Assign,
    Batch,
    Begin,
    Change,
    End,
    FinalRead,
    Operation,
    Outcome,
    Partition,
    Poll,
    Rebalance,
    Seek,
    Send,
    Span,
    Start,
    Subscribe,
    Topic,
)

_BATCH_MAX = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens."""

    steps: int = 300
    final_read_chance: float = 0.9
    isolated: bool = False
    """Whether only one transaction may be open at a time, so that writes do not interleave."""


@dataclass(slots=True)
class _Record:
    """One offset of a log."""

    value: str | None
    """None for a control record."""
    key: str | None = None
    transaction: _Transaction | None = None


@dataclass(slots=True)
class _Transaction:
    name: str
    process: str
    partitions: set[Partition] = field(default_factory=set)
    committed: bool | None = None
    """None while it is open."""


@dataclass(slots=True)
class _Log:
    """A partition. Removed records are missing in `records`."""

    partition: Partition
    compacted: bool
    start: int = 0
    end: int = 0
    records: dict[int, _Record] = field(default_factory=dict)

    def append(self, record: _Record) -> int:
        offset = self.end
        self.records[offset] = record
        self.end += 1
        return offset

    def stable_end(self) -> int:
        """The exclusive end for readers of committed records."""
        for offset, record in self.records.items():
            if record.transaction is not None and record.transaction.committed is None:
                return offset
        return self.end

    def visible(self, start: int, count: int, *, read_committed: bool) -> tuple[Batch, int]:
        """Records from an offset on, and the next position."""
        end = self.stable_end() if read_committed else self.end
        offsets: list[int] = []
        values: list[str] = []
        for offset in range(max(start, self.start), end):
            if len(offsets) == count:
                return (self.partition, offsets, values), offset
            record = self.records.get(offset)
            if record is None or record.value is None:
                continue
            if read_committed and record.transaction and not record.transaction.committed:
                continue
            offsets.append(offset)
            values.append(record.value)
        return (self.partition, offsets, values), max(start, end)

    def compact(self) -> None:
        """Drop superseded and aborted records below the first open transaction."""
        newest: dict[str, int] = {}
        below = [offset for offset in self.records if offset < self.stable_end()]
        for offset in below:
            record = self.records[offset]
            if record.transaction is not None and not record.transaction.committed:
                del self.records[offset]
            elif record.key is not None:
                newest[record.key] = offset
        for offset in below:
            kept = self.records.get(offset)
            if kept is not None and kept.key is not None and newest[kept.key] > offset:
                del self.records[offset]


@dataclass(slots=True)
class _Producer:
    process: str
    transactional: bool
    waiting: dict[Partition, deque[Send]] = field(default_factory=dict)
    """Sent and not appended."""
    unanswered: list[Send] = field(default_factory=list)
    """Appended (or dropped) and not completed."""
    transaction: _Transaction | None = None
    reader: _Consumer | None = None
    """The consumer whose records it processes in its transactions."""


@dataclass(slots=True)
class _Consumer:
    process: str
    read_committed: bool
    positions: dict[Partition, int] = field(default_factory=dict)
    in_group: bool = False


class Model:
    """One random cluster with its clients. `run` returns the history."""

    def __init__(self, seed: int, size: Size) -> None:
        self._random = Random(seed)
        self._size = size
        self._now_ns = self._random.randrange(1_000_000)
        self._operations: list[Operation] = []
        self._sent = 0
        self._transactions = 0
        self._logs: dict[Partition, _Log] = {}
        self._committed: dict[Partition, int] = {}
        self._producers: list[_Producer] = []
        self._consumers: list[_Consumer] = []

    def run(self) -> list[Operation]:
        """All operations, in the order of their completion."""
        self._set_up()
        steps: list[tuple[Callable[[], None], int]] = [
            (self._send, 30),
            (self._append, 30),
            (self._answer, 25),
            (self._poll_somebody, 25),
            (self._end_transaction, 6),
            (self._seek, 1),
            (self._assign_again, 1),
            (self._rebalance, 2),
            (self._compact, 2),
            (self._retain, 1),
        ]
        does, weights = zip(*steps, strict=True)
        for do in self._random.choices(does, weights, k=self._size.steps):
            do()
        self._settle()
        if self._random.random() < self._size.final_read_chance:
            self._read_finally()
        return self._operations

    def _tick(self) -> int:
        self._now_ns += self._random.randrange(1, 1_000)
        return self._now_ns

    def _set_up(self) -> None:
        for topic in ("orders", "prices"):
            compacted = topic == "prices" and self._random.random() < 0.5
            if compacted or self._random.random() < 0.3:
                self._operations.append(Topic(topic, compacted))
            for index in range(self._random.randint(1, 3)):
                self._logs[topic, index] = _Log((topic, index), compacted)
        self._producers = [_Producer(f"plain-{n}", transactional=False) for n in range(2)]
        self._producers += [
            _Producer(f"transactional-{n}", transactional=True)
            for n in range(self._random.randint(1, 3))
        ]
        for n in range(self._random.randint(2, 4)):
            # The first two overlap, so that each has what the other omits.
            consumer = _Consumer(f"assigned-{n}", read_committed=n < 2 or self._chance(0.5))
            self._consumers.append(consumer)
            self._assign(consumer, everything=n < 2)
        for n in range(self._random.randint(0, 3)):
            consumer = _Consumer(f"member-{n}", read_committed=True, in_group=True)
            self._consumers.append(consumer)
            self._operations.append(Subscribe(consumer.process, self._tick(), ["orders", "prices"]))
        for producer in self._producers:
            if producer.transactional and self._chance(0.7):
                producer.reader = _Consumer(f"{producer.process}-reader", read_committed=True)
                self._assign(producer.reader, everything=True)
        self._rebalance()

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    # -- writing -------------------------------------------------------------------------------

    def _send(self) -> None:
        producer = self._random.choice(self._producers)
        if producer.transactional and producer.transaction is None and not self._begin(producer):
            return
        log = self._random.choice(list(self._logs.values()))
        self._sent += 1
        key = f"k{self._random.randrange(4)}" if log.compacted else None
        send = Send(
            producer.process,
            log.partition,
            f"v{self._sent}",
            self._tick(),
            0,
            Outcome.UNKNOWN,
            transaction=None if producer.transaction is None else producer.transaction.name,
            key=key,
        )
        producer.waiting.setdefault(log.partition, deque()).append(send)

    def _begin(self, producer: _Producer) -> bool:
        if self._size.isolated and any(one.transaction for one in self._producers):
            return False
        self._transactions += 1
        name = f"t{self._transactions}"
        producer.transaction = _Transaction(name, producer.process)
        self._operations.append(Begin(producer.process, self._tick(), name))
        return True

    def _append(self) -> None:
        producer = self._random.choice(self._producers)
        queues = [queue for queue in producer.waiting.values() if queue]
        if queues:
            self._append_next(producer, self._random.choice(queues))

    def _append_next(self, producer: _Producer, queue: deque[Send]) -> None:
        send = queue.popleft()
        fate = self._random.random()
        if fate < 0.04:
            send.outcome = Outcome.FAILED
        elif fate < 0.08:
            send.outcome = Outcome.UNKNOWN
        else:
            transaction = producer.transaction
            record = _Record(send.value, send.key, transaction)
            offset = self._logs[send.partition].append(record)
            if transaction is not None:
                transaction.partitions.add(send.partition)
            if self._chance(0.9):
                send.outcome = Outcome.OK
                send.offset = None if self._chance(0.02) else offset
        producer.unanswered.append(send)

    def _answer(self) -> None:
        self._answer_one(self._random.choice(self._producers))

    def _answer_one(self, producer: _Producer) -> None:
        if producer.unanswered:
            chosen = self._random.randrange(len(producer.unanswered))
            send = producer.unanswered.pop(chosen)
            send.completed_ns = self._tick()
            self._operations.append(send)

    # -- transactions --------------------------------------------------------------------------

    def _end_transaction(self) -> None:
        open_ones = [one for one in self._producers if one.transaction is not None]
        if open_ones:
            self._end(self._random.choice(open_ones))

    def _end(self, producer: _Producer) -> None:
        """Commit or abort. The outcome may stay unknown, and commits may be refused."""
        self._drain(producer)
        transaction = producer.transaction
        assert transaction is not None
        action = Action.COMMIT if self._chance(0.75) else Action.ABORT
        invoked_ns = self._tick()
        outcome = self._random.choices(list(Outcome), [0.8, 0.05, 0.15])[0]
        effective = outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and self._chance(0.5))
        transaction.committed = effective and action is Action.COMMIT
        for partition in sorted(transaction.partitions):
            self._logs[partition].append(_Record(None))
        if self._chance(0.3):
            self._poll(self._random.choice(self._consumers))
        ended = (producer.process, invoked_ns, self._tick(), transaction.name, action, outcome)
        if outcome is not Outcome.UNKNOWN or self._chance(0.8):
            self._operations.append(End(*ended))  # else its recorder died, too
        producer.transaction = None

    def _drain(self, producer: _Producer) -> None:
        """Complete everything that was sent."""
        for queue in producer.waiting.values():
            while queue:
                self._append_next(producer, queue)
        while producer.unanswered:
            self._answer_one(producer)

    # -- reading -------------------------------------------------------------------------------

    def _poll_somebody(self) -> None:
        producer = self._random.choice(self._producers)
        if producer.transaction is not None and producer.reader is not None and self._chance(0.3):
            self._poll(producer.reader, producer.transaction)
        else:
            self._poll(self._random.choice(self._consumers))

    def _poll(self, consumer: _Consumer, transaction: _Transaction | None = None) -> None:
        invoked_ns = self._tick()
        batches: list[Batch] = []
        for partition in self._random.sample(list(consumer.positions), len(consumer.positions)):
            if self._chance(0.5):
                continue
            log = self._logs[partition]
            position = consumer.positions[partition]
            if position < log.start:
                self._go_to(consumer, partition, log.start)
                position = log.start
            batch, consumer.positions[partition] = log.visible(
                position,
                self._random.randint(1, _BATCH_MAX),
                read_committed=consumer.read_committed,
            )
            if batch[1]:
                batches.append(batch)
        if batches or self._chance(0.1):
            name = None if transaction is None else transaction.name
            times = invoked_ns, self._tick()
            committed = consumer.read_committed
            self._operations.append(Poll(consumer.process, *times, batches, committed, name))
        if consumer.in_group and self._chance(0.5):
            self._committed.update(consumer.positions)

    def _assign(self, consumer: _Consumer, *, everything: bool) -> None:
        logs = list(self._logs.values())
        if not everything:
            logs = self._random.sample(logs, self._random.randint(1, len(logs)))
        consumer.positions = {log.partition: self._random.choice([0, log.end]) for log in logs}
        starts = [
            Start(partition, None if self._chance(0.2) else offset)
            for partition, offset in consumer.positions.items()
        ]
        self._operations.append(Assign(consumer.process, self._tick(), starts))

    def _assign_again(self) -> None:
        self._assign(self._random.choice(self._assigned()), everything=self._chance(0.5))

    def _assigned(self) -> list[_Consumer]:
        return [consumer for consumer in self._consumers if not consumer.in_group]

    def _seek(self) -> None:
        consumer = self._random.choice(self._assigned())
        partition = self._random.choice(list(consumer.positions))
        self._go_to(consumer, partition, self._random.randint(0, self._logs[partition].end))

    def _go_to(self, consumer: _Consumer, partition: Partition, offset: int) -> None:
        consumer.positions[partition] = offset
        reported = None if self._chance(0.2) else offset
        self._operations.append(Seek(consumer.process, self._tick(), partition, reported))

    def _rebalance(self) -> None:
        """Assign all partitions to the group. All members continue at the committed offsets."""
        members = [consumer for consumer in self._consumers if consumer.in_group]
        if not members:
            return
        for member in members:
            change = Change.REVOKED if self._chance(0.8) else Change.LOST
            if change is Change.REVOKED and self._chance(0.8):
                self._committed.update(member.positions)
            self._change(member, change, list(member.positions))
            member.positions = {}
        owners = {partition: self._random.choice(members) for partition in self._logs}
        for member in members:
            mine = [partition for partition, owner in owners.items() if owner is member]
            member.positions = {partition: self._committed.get(partition, 0) for partition in mine}
            self._change(member, Change.ASSIGNED, mine)

    def _change(self, member: _Consumer, change: Change, partitions: list[Partition]) -> None:
        if partitions:
            self._operations.append(Rebalance(member.process, self._tick(), change, partitions))

    # ---- actions of the broker -----------------------------------------------------------------

    def _compact(self) -> None:
        log = self._random.choice(list(self._logs.values()))
        if log.compacted:
            log.compact()

    def _retain(self) -> None:
        """Drop the beginning of a log."""
        log = self._random.choice(list(self._logs.values()))
        start = self._random.randint(log.start, log.start + (log.stable_end() - log.start) // 3)
        for offset in [offset for offset in log.records if offset < start]:
            del log.records[offset]
        log.start = start

    # -- the end ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        for producer in self._producers:
            if producer.transaction is not None:
                self._end(producer)
            self._drain(producer)

    def _read_finally(self) -> None:
        """New readers divide the partitions (or each reads all) and read to the end."""
        read_committed = self._chance(0.7)
        readers = [
            _Consumer(f"final-{n}", read_committed) for n in range(self._random.choice([1, 2]))
        ]
        everybody = self._chance(0.5)
        for n, reader in enumerate(readers):
            logs = [
                log
                for place, log in enumerate(self._logs.values())
                if everybody or place % len(readers) == n
            ]
            self._operations.append(
                Assign(
                    reader.process, self._tick(), [Start(log.partition, log.start) for log in logs]
                )
            )
            reader.positions = {log.partition: log.start for log in logs}
            invoked_ns = self._tick()
            spans = [Span(log.partition, log.start, log.end) for log in logs]
            while any(reader.positions[log.partition] < log.end for log in logs):
                self._poll(reader)
            self._operations.append(FinalRead(reader.process, invoked_ns, self._tick(), spans))


def clean_history(seed: int, size: Size | None = None) -> list[Operation]:
    """A history without anomalies, determined by the seed."""
    return Model(seed, size or Size()).run()
