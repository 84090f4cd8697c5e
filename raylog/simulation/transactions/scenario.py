"""Simulations in which clients write in transactions and copy from one topic to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raylog.actors.common_messages import TopicId
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.rules.internal_topics import internal_topic
from raylog.actors.metadata.features import TRANSACTION_VERSION
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTION, TRANSACTIONS_TOPIC
from raylog.actors.replica.partition import Partition
from raylog.actors.transaction.hosting import TransactionHost
from raylog.actors.transaction.rules.state import RESTING
from raylog.simulation.clients import ACKS_ALL, Ledger, Producer, Reader, Stoppable
from raylog.simulation.coverage import Branch
from raylog.simulation.faults import Faults, draw_weights
from raylog.simulation.loop import SimLoop
from raylog.simulation.properties import Property
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.scenario import LOST, SERVED_AGAIN_S, Plan, Simulation
from raylog.simulation.transactions import branches
from raylog.simulation.transactions.copying import (
    FETCH_VERSION,
    Copier,
    fetched_offset,
    group_of,
    offset_fetch,
)
from raylog.simulation.transactions.faults import TRANSACTION_WEIGHTS, TransactionalFaults
from raylog.simulation.transactions.history import (
    FIRST_VERSION,
    OWN_EPOCHS,
    History,
    Identity,
    StableLedger,
)
from raylog.simulation.transactions.judging import Verdict
from raylog.simulation.transactions.producing import (
    Abort,
    BeginAnew,
    Habits,
    TransactionalClient,
)
from raylog.simulation.transactions.reading import CommittedReader, LogReader
from raylog.simulation.transactions.requests import Coordinators

INTERNAL_PARTITIONS = 2
TIMEOUTS_MS = (500, 1_500, 4_000)
LEVELS = (0, FIRST_VERSION, *[OWN_EPOCHS] * 6)
"""Levels of the feature transaction.version; one is drawn."""
FOREIGN_ID = 1_000_000
"""No producer id of the cluster is this large."""
SOURCE, SINK = "source", "sink"
COPIED = f"{SOURCE}-0"


class TransactionalSimulation(Simulation):
    """One run."""

    fault_s = 7.0
    branches: Sequence[Branch] = branches.ALL
    written: Sequence[tuple[str, int]] = ((SOURCE, 1), (SINK, 2))
    """The topics that clients write, with their numbers of partitions."""

    def __init__(self, loop: SimLoop, seed: int, plan: Plan) -> None:
        super().__init__(loop, seed, plan)
        self.history = History()
        self._level = self.random.choice(LEVELS)
        self.writers: list[TransactionalClient] = []
        self.stable: list[StableLedger] = []
        """The ledgers of the partitions that clients write."""
        self._offsets: list[StableLedger] = []
        """The ledgers of the partitions of `__consumer_offsets`."""
        self.world.network.lingering = self.random.choice((0.0, 0.5))

    def _draw_weights(self) -> dict[str, int]:
        return draw_weights(self.random, TRANSACTION_WEIGHTS)

    def _faults(self) -> Faults:
        clients, given_out = len(self._clients()), self.quorum.given_out
        return TransactionalFaults(self.cluster, self.random, clients, self._weights, given_out)

    def _clients(self) -> Sequence[Stoppable]:
        return [*super()._clients(), *self.writers]

    def ended_transactions(self) -> tuple[int, int]:
        """The numbers of transactions that clients know to be committed and aborted."""
        return self.history.count(committed=True), self.history.count(committed=False)

    def _settings(self) -> dict[str, str]:
        partitions = str(INTERNAL_PARTITIONS)
        every_ms = self.random.choice(("200", "1000", "3000"))
        return {
            **super()._settings(),
            "offsets.topic.num.partitions": partitions,
            "transaction.state.log.num.partitions": partitions,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": every_ms,
        }

    # ---- before --------------------------------------------------------------------------

    async def _make_topics(self) -> None:
        if self._level < OWN_EPOCHS:
            await self.cluster.set_feature(TRANSACTION_VERSION, self._level)
        settings = BrokerSettings(self.cluster.settings)
        for name in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
            topic = internal_topic(name, settings, len(self.cluster.machines))
            topic_id = TopicId(await self.operator.make(topic))
            if name == OFFSETS_TOPIC:
                self._offsets = _ledgers(name, topic_id, INTERNAL_PARTITIONS)
        for name, partitions in self.written:
            topic_id = TopicId(await self.operator.create(name, partitions))
            self.stable += _ledgers(name, topic_id, partitions)
        self.ledgers.extend(self.stable)

    def _start_clients(self, pause_s: float) -> None:
        numbers = iter(range(1_000))
        source, *_ = self.stable
        self.producers = [
            Producer(
                self.cluster,
                self.checks,
                source,
                next(numbers),
                idempotent=True,
                first_id=FOREIGN_ID,
            )
        ]
        self.readers = [
            CommittedReader(self.cluster, self.checks, ledger, next(numbers))
            for ledger in self.stable
        ]
        alone: list[Producer | Reader] = [*self.producers, *self.readers]
        for client in alone:
            self.cluster.runtime.start(client.run(pause_s), "client")
        for identity, kind in self._applications():
            for _ in range(self.random.choice((1, 2))):
                writer = kind(
                    self.cluster,
                    self.checks,
                    self.history,
                    identity,
                    self.stable,
                    next(numbers),
                    self._habits(pause_s),
                )
                self.writers.append(writer)
                self.cluster.runtime.start(writer.run(), "application")
        self.cluster.runtime.start(self.operator.run(), "operator")

    def _applications(self) -> list[tuple[Identity, type[TransactionalClient]]]:
        """One application that writes everywhere, one that copies, and one more of either."""
        versions = [FIRST_VERSION, self._level, self._level]
        kinds = [TransactionalClient, Copier, self.random.choice((TransactionalClient, Copier))]
        return [
            (
                Identity(
                    f"{kind.__name__}-{number}",
                    max(FIRST_VERSION, self.random.choice(versions)),
                    self.random.choice(TIMEOUTS_MS),
                ),
                kind,
            )
            for number, kind in enumerate(kinds)
        ]

    def _habits(self, pause_s: float) -> Habits:
        draw = self.random.choice
        return Habits(
            repeats=draw((0.0, 0.05, 0.3)),
            strays=draw((0.0, 0.02, 0.1)),
            aborts=draw((0.1, 0.4)),
            dies=draw((0.0, 0.02, 0.1)),
            hastens=draw((0.0, 0.3, 0.7)),
            dawdles=draw((0.02, 0.02, 0.4)),
            pause_s=pause_s,
        )

    # ---- after ---------------------------------------------------------------------------

    async def _judge(self) -> None:
        await self._transactions_end()
        await super()._judge()
        for number, ledger in enumerate(self._offsets):
            epoch = self.cluster.committed_epoch(ledger.topic_id, ledger.partition)
            await self._read_all(self._last_reader(ledger, 980 + number, epoch))
        verdict = Verdict(self.checks, [*self.stable, *self._offsets])
        verdict.judge_logs()
        verdict.judge_transactions(self.history)
        for partition in self._in_sync():
            verdict.judge_replica(partition)
        for transactional_id in dict.fromkeys(
            one.identity.transactional_id for one in self.writers if isinstance(one, Copier)
        ):
            group = group_of(transactional_id)
            verdict.judge_group(group, COPIED, await self._offset_of(group))
        self.world.tell(
            f"{self.history.count(committed=True)} transactions committed, "
            f"{self.history.count(committed=False)} aborted"
        )

    async def _transactions_end(self) -> None:
        """Wait until open transactions have timed out and readers reach the end.

        Timeouts use the wall clock. Where clocks were wrong, new instances end what is open.
        """
        if any(machine.clock_offset_ms for machine in self.cluster.machines):
            await self._take_all_over()
        longest_s = self._longest_timeout_ms / 1_000 + SERVED_AGAIN_S
        loop = self.world.loop
        deadline = loop.time() + longest_s
        while (left := self._undecided()) and loop.time() < deadline:
            self.checks.raise_violations()
            await self.cluster.runtime.sleep(0.1)
        self.checks.hold(Property.TRANSACTIONS_END, not left, *left)
        self.world.tell(f"transactions have ended: {not left}")
        self.checks.raise_violations()

    @property
    def _longest_timeout_ms(self) -> int:
        """The longest time that a transaction may be open."""
        return max(one.identity.timeout_ms for one in self.writers)

    async def _take_all_over(self) -> None:
        """Start every application once more, so that it fences its predecessors."""
        for number, identity in enumerate(dict.fromkeys(one.identity for one in self.writers)):
            last = TransactionalClient(
                self.cluster,
                self.checks,
                self.history,
                identity,
                self.stable,
                930 + number,
                Habits(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            )
            try:
                await last.begin(SERVED_AGAIN_S)
            except (Abort, BeginAnew) as why:
                self.checks.hold(Property.TRANSACTIONS_END, False, identity, why)

    def _undecided(self) -> list[str]:
        """Open transactions and those that are being ended, as far as anyone can see them."""
        found = [f"{host} {text}" for host in self._hosts() for text in _unfinished(host)]
        led = {partition.name: partition for partition in self._leaders()}
        for ledger in (*self.stable, *self._offsets):
            partition = led.get(ledger.name)
            if partition is None:
                found.append(f"{ledger.name} has no leader")
            elif partition.last_stable_offset < partition.log.log_end_offset:
                found.append(f"{ledger.name} is stable to {partition.last_stable_offset} only")
        hosted = sum(host.is_active for host in self._hosts())
        if hosted < INTERNAL_PARTITIONS:
            found.append(f"{hosted} shards are loaded")
        return found

    def _hosts(self) -> Iterator[TransactionHost]:
        for resident in self.cluster.of_role(TRANSACTION):
            yield from resident.actor._shards

    def _in_sync(self) -> Iterator[Partition]:
        """The in-sync replicas by the newest metadata, if their incarnation matches."""
        image = self.cluster.newest_image()
        for broker_id, replica in self.cluster.replicas():
            for key, partition in replica._partitions.items():
                state = image.partition(*key)
                if state is None or broker_id not in state.isr:
                    continue
                if partition.machine.incarnation == state.incarnations.get(broker_id, ""):
                    yield partition

    def _leaders(self) -> Iterator[Partition]:
        image = self.cluster.newest_image()
        for partition in self._in_sync():
            state = image.partition(*partition.key)
            machine = partition.machine
            if state is not None and machine.is_leader and machine.broker_id == state.leader:
                yield partition

    async def _offset_of(self, group: str) -> int:
        """A group's offset, by OffsetFetch."""
        runtime = SimRuntime(self.world, machine="client-990")
        coordinators = Coordinators(self.cluster, runtime, self.random)
        request = offset_fetch(group, self.stable[0])
        deadline = self.world.loop.time() + SERVED_AGAIN_S
        while True:
            try:
                answer = await coordinators.ask(group, request, FETCH_VERSION)
            except LOST as failure:
                late = self.world.loop.time() > deadline
                self.checks.hold(Property.SERVED_AGAIN, not late, group, failure)
                self.checks.raise_violations()
                await runtime.sleep(0.1)
            else:
                return fetched_offset(answer)

    def _last_reader(self, ledger: Ledger, number: int, epoch: int) -> Reader:
        assert isinstance(ledger, StableLedger), "there are no others"
        return LogReader(self.cluster, self.checks, ledger, number, epoch)


def _ledgers(name: str, topic_id: TopicId, partitions: int) -> list[StableLedger]:
    return [StableLedger(name, topic_id, at, ACKS_ALL) for at in range(partitions)]


def _unfinished(host: TransactionHost) -> Iterator[str]:
    if host.is_active:
        for one in host.shard.ids.transactions.values():
            if one.state not in RESTING:
                yield f"{one.transactional_id} is {one.state.label}"
