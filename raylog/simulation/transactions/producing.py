"""Applications that write in transactions. Instances of one transactional id fence each other.

Like a real client, an instance retries until it knows the outcome. Some requests also arrive a
second time seconds later, as from a connection that was thought closed, and some only arrive late.
In version 1 transactions share an epoch, so a late request would affect the next transaction. Kafka
has that problem, too, and KIP-890 solves it. So in version 1 an instance takes a new epoch unless
it is sure that no request is in flight.

Some instances are hasty: when a transaction has ended, they begin the next one while its markers
are still being written, and abort it, perhaps several times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from raylog.actors.replica.messages import ProduceAnswer, TransactionalWrite
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.simulation.clients import PRODUCE_TIMEOUT_MS, Client
from raylog.simulation.cluster import Cluster
from raylog.simulation.network import CLIENT
from raylog.simulation.properties import Checks, Property
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.transactions.history import (
    FIRST_VERSION,
    OWN_EPOCHS,
    History,
    Identity,
    Sent,
    StableLedger,
)
from raylog.simulation.transactions.requests import Coordinators, NotSent
from raylog.wire.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from raylog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.records import Record, encode_batch

T = TypeVar("T")
LATE_S = (0.01, 0.3, 5.0)
"""Upper bounds of the delay of a duplicate request; one is drawn."""
PATIENCE_S = 4.0
"""How long to retry a write."""
FOREVER_S = 1e9
INIT_VERSION = 4
END_VERSIONS = {FIRST_VERSION: 4, OWN_EPOCHS: 5}
ADD_VERSION = 3
UNANSWERED = (PeerLost, PeerTimeout, ActorGone)
FENCED = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping)
ABORTABLE = (InvalidTxnState, TransactionAbortable)
_REFUSED = (ConcurrentTransactions, UnstableOffsetCommit)
"""Errors to retry, which certainly had no effect."""
_RETRIABLE = (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


class Abort(Exception):
    """The transaction cannot be committed."""


class BeginAnew(Exception):
    """The instance must start again: it was fenced, died, or is to stop."""


class Habits(NamedTuple):
    """The behaviour of an application and of its network. All but the last are probabilities."""

    repeats: float
    """That a duplicate of a request comes later."""
    strays: float
    """That a request only comes later."""
    aborts: float
    dies: float
    hastens: float
    dawdles: float
    pause_s: float
    """The longest pause between transactions."""


class TransactionalClient:
    """One instance of an application."""

    def __init__(
        self,
        cluster: Cluster,
        checks: Checks,
        history: History,
        identity: Identity,
        ledgers: Sequence[StableLedger],
        number: int,
        habits: Habits,
    ) -> None:
        self.identity = identity
        self.checks = checks
        self.history = history
        self.habits = habits
        self.ways = [Client(cluster, checks, ledger, number) for ledger in ledgers]
        self.runtime = SimRuntime(cluster.world, machine=f"{CLIENT}-{number}")
        self.random = Random(f"{cluster.world.random.random()} {number}")  # noqa: S311 - must repeat
        self.coordinators = Coordinators(cluster, self.runtime, self.random)
        self.holder = (-1, -1)
        """Producer id and epoch."""
        self.stopping = False
        self.stopped = False
        self._number = number
        self._world = cluster.world
        self._sequences: dict[str, int] = {}
        self._added: set[str] = set()
        """The partitions of the open transaction, in version 1."""
        self._is_unsure = False
        """Whether a request with this epoch may still be in flight."""
        self._is_any_left = False
        """Whether an unanswered request may still be in flight."""
        self._may_be_overtaken = False
        """Whether an InitProducerId may still be in flight. It would fence this instance."""

    @property
    def label(self) -> str:
        """The name in messages."""
        return f"{self.identity.transactional_id}.{self._number}"

    async def run(self) -> None:
        """Write transactions until told to stop."""
        while not self.stopping:
            try:
                await self.begin()
                while not self.stopping:
                    await self.transact()
                    while self.random.random() < self.habits.hastens and not self.stopping:
                        await self.hasten()
                    await self.runtime.sleep(self.random.uniform(0, self.habits.pause_s))
            except BeginAnew as why:
                self._world.note("begins anew", self.label, str(why))
                await self._rest(self.random.uniform(0.3, 6.0))
        self.stopped = True

    async def _rest(self, seconds: float) -> None:
        """Sleep, unless told to stop."""
        end_s = self._world.loop.time() + seconds
        while self._world.loop.time() < end_s and not self.stopping:
            await self.runtime.sleep(0.3)

    # ---- requests ------------------------------------------------------------------------

    async def insist(
        self,
        ask: Callable[[], Awaitable[T]],
        *,
        patience_s: float = FOREVER_S,
        repeats: bool = True,
    ) -> T:
        """Retry until there is an answer. Raises Abort when time is up, or BeginAnew."""
        loop = self._world.loop
        end_s = loop.time() + patience_s
        while True:
            try:
                return await (self._once(ask) if repeats else ask())
            except FENCED as fenced:
                raise BeginAnew(type(fenced).__name__) from fenced
            except ABORTABLE as refused:
                raise Abort(type(refused).__name__) from refused
            except _REFUSED:
                await self._wait()
            except (*UNANSWERED, *_RETRIABLE) as failure:
                self._is_unsure = True
                if isinstance(failure, UNANSWERED) and not isinstance(failure, NotSent):
                    self._is_any_left = True
                await self._wait()
            if self.stopping:
                raise BeginAnew("stops")
            if loop.time() > end_s:
                raise Abort("nobody answers")

    async def _once(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Send a request, perhaps with a duplicate later, or only later."""
        drawn = self.random.random() - self.habits.strays
        if drawn >= self.habits.repeats:
            return await ask()
        self._is_unsure = True
        late_s = self.random.choice(LATE_S) * self.random.random()
        self.runtime.start(self._later(late_s, ask), "late")
        if drawn >= 0:
            return await ask()
        raise PeerLost("the request is on its way")

    async def _later(self, seconds: float, ask: Callable[[], Awaitable[Any]]) -> None:
        await self.runtime.sleep(seconds)
        try:
            await ask()
        except (*UNANSWERED, KafkaError) as failure:
            self._world.note("late", self.label, type(failure).__name__)

    async def _wait(self) -> None:
        await self.runtime.sleep(self.random.uniform(0.02, 0.2))

    # ---- transactions --------------------------------------------------------------------

    async def begin(self, patience_s: float = FOREVER_S) -> None:
        """Take over the transactional id (InitProducerId)."""
        await self._init(-1, -1, patience_s)

    async def _init(self, producer_id: int, epoch: int, patience_s: float = FOREVER_S) -> None:
        identity = self.identity
        request = InitProducerIdRequest(
            transactional_id=identity.transactional_id,
            transaction_timeout_ms=identity.timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.history.instances.setdefault(identity.transactional_id, set()).add(self.label)
        self._is_any_left = False
        answer = await self.insist(
            lambda: self.coordinators.ask(identity.transactional_id, request, INIT_VERSION),
            patience_s=patience_s,
            repeats=False,
        )
        self._may_be_overtaken = self._may_be_overtaken or self._is_any_left
        self.holder = (answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        self._is_unsure = False

    async def transact(self) -> None:
        """Do the work of one round."""
        await self.write_transaction()

    async def hasten(self) -> None:
        """Abort a transaction at once, before anything is written. In version 1 it is open then."""
        sent = self.history.begin(self.label)
        try:
            if self.identity.version < OWN_EPOCHS:
                way = self.random.choice(self.ways)
                await self._add(way.ledger.topic, way.ledger.partition)
            await self._end(sent, committed=False)
        except Abort as refused:
            raise BeginAnew(f"haste: {refused}") from refused
        except BeginAnew as why:
            fenced = isinstance(why.__cause__, FENCED) and self._is_alone
            self.checks.hold(Property.HASTE_GOES_UNPUNISHED, not fenced, self.label, why)
            raise
        self.checks.hold(Property.HASTE_GOES_UNPUNISHED, True)

    @property
    def _is_alone(self) -> bool:
        """Whether nothing else can have raised the epoch. No timeout can, since nothing is open."""
        if self.identity.version < OWN_EPOCHS:
            return False
        others = self.history.instances[self.identity.transactional_id] - {self.label}
        return not others and not self._may_be_overtaken

    async def write_transaction(self) -> Sent:
        """Run one transaction from begin to end."""
        sent = self.history.begin(self.label)
        try:
            await self.work(sent)
            committed = self.random.random() >= self.habits.aborts
        except Abort:
            committed = False
        if self.random.random() < self.habits.dies:
            raise BeginAnew("dies")
        try:
            await self._end(sent, committed=committed)
        except Abort as refused:
            raise BeginAnew(f"cannot end: {refused}") from refused
        return sent

    async def work(self, sent: Sent) -> None:
        """Write to some partitions."""
        for number in range(self.random.choice((1, 2, 2, 3))):
            way = self.random.choice(self.ways)
            count = self.random.choice((1, 1, 2))
            values = [b"%s/%d/%d" % (sent.label.encode(), number, at) for at in range(count)]
            await self.write(sent, way, values)
            if self.random.random() < self.habits.dawdles:
                # Sometimes longer than the transaction timeout, so that late requests meet the
                # abort.
                await self._rest(self.random.uniform(0, self.identity.timeout_ms / 700))

    async def write(self, sent: Sent, way: Client, values: list[bytes]) -> None:
        """Write records of the transaction to one partition."""
        ledger = way.ledger
        if self.identity.version < OWN_EPOCHS and ledger.name not in self._added:
            await self._add(ledger.topic, ledger.partition)
            self._added.add(ledger.name)
        sequence = self._sequences.get(ledger.name, 0)
        sent.values.setdefault(ledger.name, []).extend(values)
        batch = self._batch(values, sequence)
        transaction = TransactionalWrite(
            self.identity.transactional_id,
            adds=self.identity.version >= OWN_EPOCHS,
            knows_abortable=True,
        )
        args = (batch, PRODUCE_TIMEOUT_MS, transaction)
        try:
            answer: ProduceAnswer = await self.insist(
                lambda: way.ask("produce_in_transaction", *args), patience_s=PATIENCE_S
            )
        except OutOfOrderSequenceNumber as refused:
            self.checks.hold(Property.SEQUENCE_ACCEPTED, False, self.label, refused)
            raise Abort("out of order") from refused
        self._sequences[ledger.name] = sequence + len(values)
        for at, value in enumerate(values):
            ledger.acknowledged[value] = answer.base_offset + at

    def _batch(self, values: list[bytes], sequence: int) -> bytes:
        now_ms = self.runtime.now_ms()
        producer_id, epoch = self.holder
        return encode_batch(
            [Record(at, now_ms, None, value, []) for at, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    async def _add(self, topic: str, partition: int) -> None:
        """Add a partition to the transaction, as version 1 requires before its records."""
        producer_id, epoch = self.holder
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.identity.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        await self.insist(
            lambda: self.coordinators.ask(self.identity.transactional_id, request, ADD_VERSION),
            patience_s=PATIENCE_S,
        )

    async def _end(self, sent: Sent, *, committed: bool) -> None:
        """Send EndTxn until its answer is known."""
        identity, (producer_id, epoch) = self.identity, self.holder
        request = EndTxnRequest(
            transactional_id=identity.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        version = END_VERSIONS[identity.version]
        sent.asked_to_commit = committed

        def ask() -> Awaitable[EndTxnResponse]:
            return self.coordinators.ask(identity.transactional_id, request, version)

        if self.random.random() < self.habits.dies:
            self.runtime.start(self._later(0.0, ask), "last words")
            raise BeginAnew("dies while it ends")
        answer = await self.insist(ask)
        sent.outcome = committed
        self._added.clear()
        if identity.version >= OWN_EPOCHS:
            self.holder = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
            self._is_unsure = False
        elif self._is_unsure:
            await self._init(*self.holder)
