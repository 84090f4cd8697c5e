"""Clients, leaders and a transaction coordinator, played at random from one seed.

Several producers share one transactional id, and most of them are zombies. Requests and markers are
lost, repeated and late. The coordinator crashes; its log then has what was durable and some of what
was not. Leaders follow Kafka's rules for epochs and markers. Every batch belongs to one
transaction, whose outcome must be the same at each partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from raylog.actors.coordination.rules import records
from raylog.actors.coordination.rules.step import ClientCall, LogRecord
from raylog.actors.metadata.features import TRANSACTION_VERSION
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import FeatureChanged
from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.actors.transaction.rules.ids import ProducerIdPool
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.shard import TransactionShard
from raylog.actors.transaction.rules.state import LAST_EPOCH
from raylog.actors.transaction.rules.step import SendMarkers, TransactionStep
from raylog.wire.errors import CoordinatorNotAvailable, ErrorCode
from raylog.wire.internal.blobs import TRANSACTIONS_TOPIC
from raylog.wire.internal.transactions import TransactionLogKey, TransactionLogValue
from tests.worlds.coordination.steps import START_MS, commit, revert
from tests.worlds.metadata import topic_records
from tests.worlds.transaction.shard import FIRST, INIT_VERSION, SECOND, TOPIC, end, init

PARTITIONS = 3
CLIENTS = 3
TIMEOUT_MS = 60_000
REFUSAL_RATE = 0.15
RETRIED = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass(slots=True)
class _Sent:
    """Markers sent to one partition; the answer only counts for the coordinator that sent them."""

    markers: SendMarkers
    coordinator_epoch: int
    partition: int
    life: int


@dataclass(slots=True)
class Leader:
    """The leader of one partition."""

    epochs: dict[int, int] = field(default_factory=dict)
    """Producer id to the highest epoch seen."""
    coordinators: dict[int, int] = field(default_factory=dict)
    open: dict[int, set[int]] = field(default_factory=dict)
    """Producer id to transactions with unmarked batches; more than one is torn."""
    outcomes: dict[int, bool] = field(default_factory=dict)
    """The outcome of each transaction with batches in this partition."""

    def write(self, producer_id: int, epoch: int, transaction: int) -> bool:
        """Append a batch of a transaction; return False if its epoch is fenced."""
        if epoch < self.epochs.get(producer_id, -1):
            return False
        self.epochs[producer_id] = epoch
        waiting = self.open.setdefault(producer_id, set())
        waiting.add(transaction)
        assert transaction not in self.outcomes, "written to after its end"
        return True

    def mark(self, sent: _Sent) -> ErrorCode:
        """Write a marker; return its error code."""
        markers = sent.markers
        producer_id = markers.producer_id
        if sent.coordinator_epoch < self.coordinators.get(producer_id, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        known = self.epochs.get(producer_id, -1)
        same = markers.producer_epoch == known
        own_epochs = markers.transaction_version >= 2
        if markers.producer_epoch < known or (own_epochs and same and self.open.get(producer_id)):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id] = markers.producer_epoch
        self.coordinators[producer_id] = sent.coordinator_epoch
        for transaction in self.open.pop(producer_id, ()):
            self.outcomes[transaction] = markers.committed
        return ErrorCode.NONE


@dataclass(slots=True)
class Client:
    """A producer; it may be a zombie without knowing it."""

    producer_id: int = -1
    epoch: int = -1
    transaction: int = 0
    """The number of the open transaction; 0 if none is open."""
    ending: bool | None = None
    """The outcome it asked for, once it has asked."""


@dataclass(slots=True)
class _Life:
    """One process of the coordinator."""

    shard: TransactionShard
    number: int
    coordinator_epoch: int = -1
    left: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """Producer id and epoch of markers to the partitions that have not acknowledged them."""
    sent: dict[tuple[int, int], SendMarkers] = field(default_factory=dict)


class RandomRun:
    """The whole run: `play` makes random moves, `settle` completes everything in progress."""

    def __init__(self, seed: int, version: int = SECOND) -> None:
        self.random = Random(seed)
        self.flushes = self.random.choice([0.95, 0.75, 0.4])
        self.crash_rate = self.random.choice([0.005, 0.02])
        self.version = version
        self.now_ms = START_MS
        self.image = MetadataImage()
        self.image.apply_all(topic_records(TOPIC, PARTITIONS))
        self.image.apply(FeatureChanged(TRANSACTION_VERSION, 2 if version == SECOND else 1, 0))
        self.producer_ids = ProducerIdPool()
        self.producer_ids.add(1, 100_000)
        self.log: list[LogRecord] = []
        self.volatile: list[TransactionStep] = []
        """Appended but not durable: their answers and markers wait."""
        self.leaders = [Leader() for _ in range(PARTITIONS)]
        self.clients = [Client() for _ in range(CLIENTS)]
        self.outcomes: dict[int, bool] = {}
        """The outcome that a client was told, by transaction."""
        self.late: list[tuple[Any, int]] = []
        """Requests that may be repeated later."""
        self.network: list[_Sent] = []
        self.stale: list[_Sent] = []
        """Late markers whose answer nobody waits for."""
        self.insisted: list[tuple[TransactionStep, Any]] = []
        """Events that nobody else repeats, with the steps that they became."""
        self.transactions = 0
        self.crashes = 0
        self.refusals = 0
        self.given: list[tuple[int, int]] = []
        """Ids and epochs given to producers, in order."""
        self._answers: dict[int, Any] = {}
        self._tokens = 0
        self.life = _Life(TransactionShard(TransactionSettings(), self.producer_ids), 0)
        if self.random.random() < 0.3:
            self._begin_near_the_last_epoch()

    def _begin_near_the_last_epoch(self) -> None:
        """Begin with an id whose epochs are nearly used up."""
        epoch = LAST_EPOCH - self.random.randrange(4)
        value = TransactionLogValue(
            producer_id=0, producer_epoch=epoch, transaction_timeout_ms=TIMEOUT_MS
        )
        value.transaction_start_timestamp_ms = -1
        self.log.append(LogRecord(TransactionLogKey(transactional_id="x"), value, 1))
        self.crash()

    # ---- the coordinator -----------------------------------------------------------------

    def _run(self, event: Any, *, insists: bool = False) -> None:
        life = self.life
        step = TransactionStep(
            self.now_ms, float(self.now_ms), self.image, self.random, life.shard.replay
        )
        event(step)
        self.volatile.append(step)
        if insists:
            self.insisted.append((step, event))
        if self.random.random() < self.flushes:
            self.flush()

    def flush(self) -> None:
        """Make everything that was appended durable."""
        self._flush(len(self.volatile))

    def _flush(self, number: int) -> None:
        """Make the first `number` appended steps durable."""
        steps, self.volatile = self.volatile[:number], self.volatile[number:]
        for step in steps:
            self._keep(step)
            commit(step)
            for answer in step.answers:
                self._answers[answer.token] = answer.response
            if step.coordinator_epoch is not None:
                assert step.coordinator_epoch > self.life.coordinator_epoch
                self.life.coordinator_epoch = step.coordinator_epoch
            for markers in step.markers:
                self._send(markers)

    def _keep(self, step: TransactionStep) -> None:
        for record in step.records:
            found = records.decode(TRANSACTIONS_TOPIC, *records.encode(record))
            assert found is not None
            self.log.append(found)

    def refuse(self) -> None:
        """Refuse some of what was appended; events that must not be lost are repeated."""
        self._flush(self.random.randint(0, len(self.volatile)))
        gone, self.volatile = self.volatile, []
        revert(gone)
        records = [record for step in gone for record in step.records]
        failure = CoordinatorNotAvailable("refused")
        self._run(lambda step: self.life.shard.reverted(step, records, failure))
        insisted, self.insisted = self.insisted, []
        for step, event in insisted:
            if any(step is one for one in gone):
                self._run(event, insists=True)
        self.refusals += bool(records)

    def ask(self, request: Any, version: int) -> Any:
        """Return the response; None if there is none yet, or never will be."""
        self._tokens += 1
        token = self._tokens
        asked = ClientCall(token, request, version, "c", "/127.0.0.1")
        self._run(lambda step: self.life.shard.handle(step, asked))
        return self._answers.pop(token, None)

    def crash(self) -> None:
        """Lose everything but the log, which may hold some of the steps that were not durable."""
        survived = self.random.randint(0, len(self.volatile))
        for step in self.volatile[:survived]:
            self._keep(step)
        self.volatile.clear()
        self.insisted.clear()
        self.crashes += 1
        shard = TransactionShard(TransactionSettings(), self.producer_ids)
        for record in self.log:
            shard.replay(record).commit()
        self.life = _Life(shard, self.crashes)
        self._run(shard.loaded, insists=True)
        self.flush()

    def _send(self, markers: SendMarkers) -> None:
        life = self.life
        name = (markers.producer_id, markers.producer_epoch)
        partitions = set(markers.partitions.get(TOPIC, ()))
        life.left[name], life.sent[name] = set(partitions), markers
        for partition in sorted(partitions):
            self._send_to(name, partition)
        self._complete(name)

    def _send_to(self, name: tuple[int, int], partition: int) -> None:
        life = self.life
        sent = _Sent(life.sent[name], life.coordinator_epoch, partition, life.number)
        self.network.append(sent)

    def _complete(self, name: tuple[int, int]) -> None:
        if not self.life.left[name]:
            markers = self.life.sent[name]
            self._run(lambda step: self.life.shard.markers_written(step, markers), insists=True)

    def deliver(self) -> None:
        """Deliver a marker to its partition, or break its link before or after that.

        Markers on a broken link may arrive later; in version 2 any marker may arrive twice.
        """
        if not self.network:
            return
        sent = self.network.pop(self.random.randrange(len(self.network)))
        chance = self.random.random()
        if chance < 0.15:
            self.stale.append(sent)
            self._break_link(sent)
            return
        if chance > 0.85 and self.version == SECOND:
            self.stale.append(sent)
        code = self.leaders[sent.partition].mark(sent)
        name = (sent.markers.producer_id, sent.markers.producer_epoch)
        life = self.life
        if sent.life != life.number or sent.partition not in life.left.get(name, ()):
            return
        if chance < 0.25 or code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._break_link(sent)
        else:
            life.left[name].discard(sent.partition)
            self._complete(name)

    def _break_link(self, sent: _Sent) -> None:
        """Report a marker as uncertain, and send it again under a higher coordinator epoch."""
        name = (sent.markers.producer_id, sent.markers.producer_epoch)
        life = self.life
        if sent.life == life.number and sent.partition in life.left.get(name, ()):
            epoch = sent.coordinator_epoch
            self._run(lambda step: life.shard.markers_uncertain(step, epoch), insists=True)
            self.flush()
            self._send_to(name, sent.partition)

    def deliver_stale(self) -> None:
        """Deliver a marker whose answer nobody waits for."""
        if self.stale:
            sent = self.stale.pop(self.random.randrange(len(self.stale)))
            self.leaders[sent.partition].mark(sent)

    # ---- producers -----------------------------------------------------------------------

    def start(self, client: Client) -> None:
        """Send InitProducerId."""
        request = init(timeout_ms=TIMEOUT_MS)
        answer = self.ask(request, INIT_VERSION)
        if answer is None or answer.error_code:
            return
        holder = (answer.producer_id, answer.producer_epoch)
        assert holder not in self.given
        self.given.append(holder)
        client.producer_id, client.epoch = holder
        client.transaction, client.ending = 0, None

    def write(self, client: Client) -> None:
        """Add a partition to the transaction at the coordinator, then write a batch to it."""
        if client.epoch < 0 or client.ending is not None:
            return
        partition = self.random.randrange(PARTITIONS)
        topics = [TopicPartitions(TOPIC, [partition])]
        verify = self.version < SECOND and self.random.random() < 0.2
        asked = AddPartitions("x", client.producer_id, client.epoch, verify, topics)
        answer = self.ask(asked, 0)
        if not verify and self.version == SECOND and self.random.random() < 0.3:
            self.late.append((asked, 0))
        if answer is None or answer[0] or (verify and not client.transaction):
            return
        if not client.transaction:
            self.transactions += 1
            client.transaction = self.transactions
        self.leaders[partition].write(client.producer_id, client.epoch, client.transaction)

    def end(self, client: Client) -> None:
        """Send EndTxn, with the same outcome until it is answered."""
        if not client.transaction:
            return
        if client.ending is None:
            client.ending = self.random.random() < 0.6
        request = end(client.producer_id, client.epoch, committed=client.ending)
        if self.version == SECOND and self.random.random() < 0.4:
            self.late.append((request, SECOND))
        answer = self.ask(request, self.version)
        if answer is None or answer.error_code in RETRIED:
            return
        if answer.error_code:
            client.epoch = -1  # fenced or timed out: the client starts over
        else:
            self.outcomes[client.transaction] = client.ending
            if self.version == SECOND:
                client.producer_id, client.epoch = answer.producer_id, answer.producer_epoch
        client.transaction, client.ending = 0, None

    def come_late(self) -> None:
        """Repeat an old request; nobody waits for its answer."""
        if self.late:
            self.ask(*self.random.choice(self.late))

    def grow_old(self) -> None:
        """Let time pass, and abort transactions that have timed out."""
        self.now_ms += self.random.choice([1_000, 20_000, TIMEOUT_MS])
        ids = self.life.shard.transactional_ids()
        self._run(lambda step: self.life.shard.abort_timed_out(step, ids))

    # ---- the play ------------------------------------------------------------------------

    def play(self, moves: int) -> None:
        """Make random moves; check the invariants after each."""
        for _ in range(moves):
            client = self.clients[0]
            if self.random.random() < 0.15 and client.epoch >= 0:
                client = self.random.choice(self.clients)
            chance = self.random.random()
            if chance < 0.01 or (client.epoch < 0 and chance < 0.5):
                self.start(client)
            elif chance < 0.35:
                self.write(client)
            elif chance < 0.55:
                self.end(client)
            else:
                self._go_on(chance)
            if self.random.random() < self.crash_rate:
                self.crash()
            if self.random.random() < REFUSAL_RATE:
                self.refuse()
            self.judge()

    def _go_on(self, chance: float) -> None:
        """Make a move that is no client's: deliver, repeat, let time pass or flush."""
        if chance < 0.8:
            self.deliver()
        elif chance < 0.86:
            self.deliver_stale()
        elif chance < 0.91:
            self.come_late()
        elif chance < 0.93:
            self.grow_old()
        else:
            self.flush()

    def settle(self) -> None:
        """Complete everything: time out open transactions, write all markers."""
        for _ in range(3):
            self.flush()
            self._drain()
            self.now_ms += 2 * TIMEOUT_MS
            self.grow_old()
        self.flush()
        self._drain()
        self.judge()
        assert not any(waiting for leader in self.leaders for waiting in leader.open.values())

    def _drain(self) -> None:
        while self.network:
            self.deliver()
            self.flush()
        while self.stale:
            self.deliver_stale()

    def judge(self) -> None:
        """Check that no transaction is torn, and each has the outcome that its client was told."""
        outcomes: dict[int, bool] = dict(self.outcomes)
        for leader in self.leaders:
            for transaction, committed in leader.outcomes.items():
                assert outcomes.setdefault(transaction, committed) == committed, transaction
            for waiting in leader.open.values():
                assert len(waiting) <= 1, "two transactions in one"

    def check_log(self) -> None:
        """Check that the epochs of each producer id, and those of coordinators, never go back."""
        epochs: dict[int, int] = {}
        coordinator = -1
        for record in self.log:
            value: Any = record.value
            if isinstance(value, TransactionLogValue):
                assert value.producer_epoch >= epochs.get(value.producer_id, -1)
                epochs[value.producer_id] = value.producer_epoch
            elif value is not None:
                assert value.coordinator_epoch > coordinator
                coordinator = value.coordinator_epoch
        by_id: dict[int, int] = {}
        for producer_id, epoch in self.given:
            assert epoch > by_id.get(producer_id, -1)
            by_id[producer_id] = epoch


def play(seed: int, version: int = SECOND, moves: int = 120) -> RandomRun:
    """Make one random run and check it."""
    assert version in (FIRST, SECOND)
    run = RandomRun(seed, version)
    run.play(moves)
    run.settle()
    run.check_log()
    return run
