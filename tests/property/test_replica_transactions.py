"""Transactions in replicas under kills, elections, late and repeated markers, and lost answers.

The coordinator follows the rules of transaction version 2 (KIP-890): each transaction has its own
epoch, and the next one begins when every marker of the previous one was acknowledged. Its answers
and markers may arrive at any later time, and markers more than once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from raylog.actors.replica.messages import READ_COMMITTED, FetchedPartition, Interest, ProduceAnswer
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import LinkRequest, PeerLost
from raylog.actors.transaction.messages import AddPartitions, Marker
from raylog.wire.control import decode_end_txn_marker
from raylog.wire.errors import ErrorCode
from raylog.wire.records import Record, decode_batch, encode_batch, iter_batches
from tests.property.test_replica import REFUSALS, Replicas
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.replica.scripted_transactions import ScriptedTransactions, ended
from tests.worlds.storage.logs import NOW_MS

SEEDS, STEPS = 30, 300
SETTLED = {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH}


@dataclass
class Producer:
    """One transactional producer, and what its coordinator knows."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    sending: tuple[bytes, asyncio.Future[list[ProduceAnswer | ErrorCode]] | None] | None = None
    """A batch that is not acknowledged yet, and is retried unchanged."""
    acknowledged: set[bytes] = field(default_factory=set)
    """Values of the open transaction."""
    unmarked: set[int] = field(default_factory=set)
    """Epochs whose markers are not acknowledged yet."""


class Coordinator(ScriptedTransactions):
    """Verifies transactions when asked. The answer may come later."""

    def __init__(self, producers: dict[int, Producer]) -> None:
        super().__init__()
        self.producers = producers
        self.judged: list[tuple[LinkRequest, list[list[int]]]] = []

    def link_received(self, request: LinkRequest) -> None:
        asked = [AddPartitions.of(plain) for plain in request.header]
        self.judged.append((request, [[int(self.judge(one))] for one in asked]))
        if not self.holding:
            self.answer()

    def judge(self, asked: AddPartitions) -> ErrorCode:
        producer = self.producers[asked.producer_id]
        if asked.producer_epoch != producer.epoch:
            return ErrorCode.PRODUCER_FENCED
        if producer.unmarked:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def answer(self) -> None:
        judged, self.judged = self.judged, []
        for request, codes in judged:
            request.reply(codes)

    def link_lost(self, peer: int) -> None:
        self.judged = [one for one in self.judged if one[0].peer != peer]


class TransactionalReplicas(Replicas):
    """One partition with three replicas, two transactional producers and others."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = {one: Producer(one) for one in (7, 8)}
        self.coordinator = Coordinator(self.producers)
        self.world.transactions = self.coordinator
        self.outcomes: dict[tuple[int, int], bool] = {}
        """Whether a transaction was committed, by (producer, epoch)."""
        self.committed: set[bytes] = set()
        """Acknowledged values of committed transactions."""
        self.markers: list[Marker] = []
        """All markers ever sent."""
        self.marking: list[tuple[Marker, asyncio.Future[list[list[int]]]]] = []
        self.zombies: list[asyncio.Future[list[ProduceAnswer | ErrorCode]]] = []
        self.stable: dict[tuple[int, int, int], int] = {}
        """The last stable offset seen, by (broker, start of its process, leader epoch)."""

    # ---- producers -----------------------------------------------------------------------

    def write(self, which: int, count: int) -> None:
        """Write the next batch, or retry the last one if it was refused."""
        self.collect()
        producer = self.producers[which]
        if producer.sending is None:
            values = [
                b"%d:%d:%d" % (which, producer.epoch, self.numbers + at) for at in range(count)
            ]
            self.numbers += count
            records = [Record(at, NOW_MS, None, one, []) for at, one in enumerate(values)]
            data = encode_batch(
                records,
                producer_id=which,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequence,
                is_transactional=True,
            )
            producer.sequence += count
            producer.sending = (data, None)
        data, outcome = producer.sending
        if outcome is None and self.state.leader in self.world.nodes:
            producer.sending = (data, self.runner.run(self._send(self.state.leader, data)))

    async def _send(self, broker: int, data: bytes) -> asyncio.Future[Any]:
        return self.world.produce_in_transaction(broker, data)

    def write_as_a_zombie(self, which: int, broker: int, back: int) -> None:
        epoch = self.producers[which].epoch - back
        if epoch < 0 or broker not in self.world.nodes:
            return
        record = Record(0, NOW_MS, None, b"%d:%d:zombie%d" % (which, epoch, self.numbers), [])
        self.numbers += 1
        data = encode_batch(
            [record],
            producer_id=which,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        self.zombies.append(self.runner.run(self._send(broker, data)))

    def collect(self) -> None:
        super().collect()
        for producer in self.producers.values():
            if producer.sending is None:
                continue
            data, outcome = producer.sending
            if outcome is None or not outcome.done():
                continue
            [answer] = _result(outcome)
            if isinstance(answer, ErrorCode):
                assert answer in REFUSALS | {ErrorCode.CONCURRENT_TRANSACTIONS}, answer
                producer.sending = (data, None)
            else:
                producer.acknowledged |= {bytes(one.value or b"") for one in decode_batch(data)}
                producer.sending = None

    # ---- the coordinator -----------------------------------------------------------------

    def end(self, which: int, committed: bool) -> None:
        """Decide a transaction. Its marker may be sent from now on."""
        self.collect()
        producer = self.producers[which]
        if producer.unmarked:
            return
        self.outcomes[which, producer.epoch] = committed
        if committed:
            self.committed |= producer.acknowledged
        producer.acknowledged = set()
        producer.sending = None
        producer.sequence = 0
        producer.epoch += 1
        producer.unmarked.add(producer.epoch)
        self.markers.append(ended(which, producer.epoch, committed=committed))

    def mark(self, back: int, broker: int | None) -> None:
        """Send any marker to the leader or another broker: the latest, or an older one."""
        if self.markers:
            marker = self.markers[max(0, len(self.markers) - 1 - back)]
            self._mark(marker, self.state.leader if broker is None else broker)

    def _mark(self, marker: Marker, broker: int) -> None:
        async def send() -> None:
            self.marking.append((marker, self.world.write_markers(broker, marker)))

        if broker in self.world.nodes:
            self.run(send())

    def take_acknowledgements(self) -> None:
        marking, self.marking = self.marking, []
        for marker, outcome in marking:
            if not outcome.done():
                self.marking.append((marker, outcome))
                continue
            code = _marked(outcome)
            if code in SETTLED:
                self.producers[marker.producer_id].unmarked.discard(marker.producer_epoch)

    def hold_answers(self, holding: bool) -> None:
        """Make the coordinator slow, or fast again."""
        self.coordinator.holding = holding
        if not holding:
            self.run(self._answer())

    async def _answer(self) -> None:
        self.coordinator.answer()

    # ---- what always holds ---------------------------------------------------------------

    def read_committed(self, broker: int, at: float, size: int) -> None:
        if broker in self.world.nodes:
            replica = self.world.replica(broker)
            start, stable = replica.log.log_start_offset, replica.last_stable_offset
            self.read(replica, start + int(at * (stable - start)), size)

    def read(self, replica: Partition, offset: int, size: int) -> tuple[int, set[bytes]]:
        """The records that a consumer gets from one fetch, and its next position.

        Checks each record.
        """
        interest = Interest(TOPIC_ID, 0, offset, size, -1, -1, True)
        fetched = self.runner.run(self._fetch(replica, interest))
        stable = replica.last_stable_offset
        if fetched.error_code or not fetched.length:
            return offset, set()
        assert fetched.aborted is not None
        found = replica.log.read(offset, size, stable, at_least_one=True)
        assert found is not None
        assert found.next_offset <= stable
        aborted = sorted(((first, one) for one, first, *_ in fetched.aborted), reverse=True)
        skipped: set[int] = set()
        delivered = set()
        for header, data in iter_batches(replica.log.reader.load(found)):
            while aborted and aborted[-1][0] < header.next_offset:
                skipped.add(aborted.pop()[1])
            if header.is_control:
                marker = decode_end_txn_marker(decode_batch(data)[0])
                assert marker is not None
                if not marker.is_commit:
                    skipped.discard(header.producer_id)
            elif header.is_transactional and header.producer_id not in skipped:
                values = {bytes(one.value or b"") for one in decode_batch(data)}
                assert self.outcomes[header.producer_id, header.producer_epoch], values
                delivered |= values
        return found.next_offset, delivered

    async def _fetch(self, replica: Partition, interest: Interest) -> FetchedPartition:
        return replica.read(interest, interest.max_bytes, True, READ_COMMITTED)

    def last_stable_offsets_are_below_what_is_undecided(self) -> None:
        for broker, node in self.world.nodes.items():
            replica = self.world.replica(broker)
            stable = replica.last_stable_offset
            assert stable <= replica.high_watermark
            assert stable <= _first_undecided(self.world.raw(broker), replica.high_watermark)
            if replica.machine.is_leader:
                incarnation = (broker, node.number, replica.machine.leader_epoch)
                assert stable >= self.stable.get(incarnation, 0)
                self.stable[incarnation] = stable

    def finish(self) -> None:
        """End every transaction after the faults, and check that committed ones are complete."""
        self.coordinator.holding = False
        self.coordinator.answer()
        self.run(self._heal())
        self._end_all()
        replica = self.world.replica(self.state.leader)
        end = replica.log.log_end_offset
        assert replica.last_stable_offset == replica.high_watermark == end
        offset, delivered = replica.log.log_start_offset, set()
        while offset < end:
            offset, values = self.read(replica, offset, 200)
            delivered |= values
        assert self.committed <= delivered
        for zombie in self.zombies:
            assert zombie.done(), "everybody is answered"
            assert _result(zombie)
        assert len({self.world.raw(broker) for broker in self.world.nodes}) == 1

    def close(self) -> None:
        """End what is still running."""
        for broker in list(self.world.nodes):
            self.run(self.world.kill(broker))
        self.runner.close()

    def _end_all(self) -> None:
        for which in self.producers:
            self._mark_all()
            self.end(which, False)
        self._mark_all()

    def _mark_all(self) -> None:
        for marker in self.markers:
            if marker.producer_epoch in self.producers[marker.producer_id].unmarked:
                self._mark(marker, self.state.leader)
        self.run(self.world.pass_ms(1_000))
        self.take_acknowledgements()
        assert not any(producer.unmarked for producer in self.producers.values())


def _result(outcome: asyncio.Future[Any]) -> Any:
    """The answer of a process; None if its link was lost."""
    try:
        return outcome.result()
    except PeerLost:
        return [ErrorCode.NETWORK_EXCEPTION]


def _marked(outcome: asyncio.Future[list[list[int]]]) -> ErrorCode:
    """The outcome of a marker in its single partition."""
    try:
        [[code]] = outcome.result()
    except PeerLost:
        return ErrorCode.NETWORK_EXCEPTION
    return ErrorCode(code)


def _first_undecided(raw: bytes, high_watermark: int) -> int:
    """The first offset of a transaction whose marker is not below the high watermark."""
    begun: dict[int, int] = {}
    for header, _ in iter_batches(raw):
        if header.is_control and header.next_offset <= high_watermark:
            begun.pop(header.producer_id, None)
        elif header.is_transactional and not header.is_control:
            begun.setdefault(header.producer_id, header.base_offset)
    return min(begun.values(), default=high_watermark)


def _step(world: TransactionalReplicas, rng: Random) -> None:
    """One random step. Writes and ends of transactions are the most frequent."""
    broker, which = rng.choice((1, 2, 3)), rng.choice((7, 8))
    steps: list[tuple[float, Callable[[], None]]] = [
        (6, lambda: world.write(which, rng.randint(1, 3))),
        (9, lambda: world.pass_time(rng.choice((0, 1, 1, 60, 500)))),
        (2.5, lambda: world.end(which, rng.random() < 0.5)),
        (5, lambda: world.mark(rng.choice((0, 0, 0, 1, 1, 3)), rng.choice((None, None, broker)))),
        (3, lambda: world.read_committed(broker, rng.random(), rng.choice((1, 200, 10_000)))),
        (1, lambda: world.write_as_a_zombie(which, broker, rng.randint(1, 2))),
        (1, lambda: world.hold_answers(rng.random() < 0.4)),
        (1, lambda: world.produce(1, None)),
        (0.4, lambda: world.kill(broker, rng.random() < 0.5, rng.choice((None, rng)))),
        (1, lambda: world.start(broker)),
        (0.5, lambda: world.elect(broker)),
        (0.3, lambda: world.elect_and_notify_some(broker, {rng.choice((1, 2, 3))})),
        (1, lambda: world.notify_all()),
        (0.2, lambda: world.lose_answers_of_the_controller(2)),
        (0.3, lambda: world.break_links(broker)),
    ]
    (chosen,) = rng.choices([step for _, step in steps], [weight for weight, _ in steps])
    chosen()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_committed_transactions_are_read_as_a_whole_and_nothing_else(seed: int) -> None:
    rng = Random(seed)
    world = TransactionalReplicas()
    try:
        world.begin()
        for _ in range(STEPS):
            _step(world, rng)
            world.take_acknowledgements()
            world.high_watermarks_never_go_back()
            world.last_stable_offsets_are_below_what_is_undecided()
        world.finish()
    finally:
        world.close()
