"""One simulation: a cluster, its clients, faults, the recovery, and the verdict."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from raylog.actors.common_messages import TopicId
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.simulation import branches
from raylog.simulation.clients import ACKS_ALL, Ledger, Producer, Reader, Stoppable
from raylog.simulation.cluster import Cluster
from raylog.simulation.coverage import Branch, Coverage
from raylog.simulation.faults import LOSSES, WEIGHTS, Faults, draw_weights
from raylog.simulation.kinds import Kind
from raylog.simulation.loop import SimLoop
from raylog.simulation.observing import Observer
from raylog.simulation.observing_disks import DiskObserver
from raylog.simulation.observing_quorum import QuorumObserver
from raylog.simulation.operator import Operator
from raylog.simulation.properties import Checks, Property
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import simulated_role
from raylog.simulation.tuning import has_small_limits, tuned
from raylog.simulation.world import ActorClass, World
from raylog.wire.errors import KafkaError

SERVED_AGAIN_S = 15.0
LOOK_EVERY_S = 0.5
CLIENT_PAUSES_S = (0.25, 0.25, 0.25, 1.5)
"""Upper bounds of a client's pause between two requests."""
FAULT_PAUSES_S = ((0.3, 2.0), (0.3, 2.0), (0.1, 0.8), (1.0, 4.0))
"""Shortest and longest time between two faults."""
SNAPSHOT_BYTES = ("1500", "5000", "20971520")
"""Growth of the metadata log after which a snapshot replaces it."""
SEGMENT_BYTES = ("", "400", "1500", "6000")
LOST = (PeerLost, PeerTimeout, ActorGone, KafkaError)
PROBES = 900
"""The number of the first client that probes whether everything is served again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size and duration of a simulation. None means drawn from the seed."""

    brokers: int | None = None
    fault_s: float | None = None
    replicas: int = 3
    """The most replicas of a partition."""
    kind: Kind = Kind.PLAIN
    small_limits: bool | None = None
    """Whether limits per turn are small (`tuning.LIMITS`)."""


class Simulation:
    """One run."""

    fault_s = 10.0
    """The duration of the faults, unless the plan says it."""
    served_again_s = SERVED_AGAIN_S
    """How long recovery may take after the faults."""
    branches: Sequence[Branch] = branches.ALL
    """The branches that seeds of this kind must reach, taken together."""

    def __init__(self, loop: SimLoop, seed: int, plan: Plan) -> None:
        self.checks = Checks()
        self.coverage = Coverage(self.branches)
        self.world = World(loop, seed, self._role_class(), SimRuntime)
        self.random = Random(f"{seed} scenario")  # noqa: S311 - a simulation must repeat
        self._plan = plan
        self._constants = Random(f"{seed} constants")  # noqa: S311 - the same
        small = plan.small_limits
        self._small_limits = has_small_limits(seed) if small is None else small
        brokers = plan.brokers or self._draw_brokers()
        self._weights = self._draw_weights()
        self.cluster = self._new_cluster(brokers)
        self.observer = Observer(self.cluster, self.checks)
        self.quorum = QuorumObserver(self.cluster, self.checks)
        self.disks = DiskObserver(self.cluster, self.checks)
        self.ledgers: list[Ledger] = []
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        configs = self._topic_configs()
        self.operator = Operator(self.cluster, self.random, plan.replicas, configs)
        self._probes = itertools.count(PROBES)
        self._done = False

    def _role_class(self) -> Callable[[str], ActorClass]:
        """The classes of the roles."""
        return simulated_role

    def _new_cluster(self, brokers: int) -> Cluster:
        """The cluster, not started yet."""
        return Cluster(self.world, brokers, self._settings())

    def _draw_brokers(self) -> int:
        """The number of brokers."""
        return self.random.choice((3, 3, 3, 3, 4, 5))

    def _draw_weights(self) -> dict[str, int]:
        """The weight of each kind of fault."""
        return draw_weights(self.random, WEIGHTS)

    def _faults(self) -> Faults:
        """The source of faults."""
        clients, given_out = len(self._clients()), self.quorum.given_out
        return Faults(self.cluster, self.random, clients, self._weights, given_out)

    def _clients(self) -> Sequence[Stoppable]:
        """The clients that must stop at the end."""
        return [*self.producers, *self.readers]

    def ended_transactions(self) -> tuple[int, int]:
        """The numbers of transactions that clients know to be committed and aborted."""
        return 0, 0

    def _settings(self) -> dict[str, str]:
        """The broker settings that are drawn.

        A follower far behind needs one answer or many. If no machine loses anything, one in-sync
        replica is enough to keep acknowledged records.
        """
        draw = self.random.choice
        loses = any(self._weights[kind] for kind in LOSSES)
        fetch_bytes = draw((400, 1_000, 1 << 20))
        return {
            "min.insync.replicas": "2" if loses else draw(("1", "2")),
            "replica.lag.time.max.ms": draw(("300", "700", "1500", "5000")),
            "leader.imbalance.check.interval.seconds": draw(("1", "300", "300")),
            "replica.fetch.max.bytes": str(fetch_bytes),
            "replica.fetch.response.max.bytes": str(2 * fetch_bytes),
            "controller.quorum.auto.join.enable": "true",
            "metadata.log.max.record.bytes.between.snapshots": draw(SNAPSHOT_BYTES),
        }

    def _topic_configs(self) -> dict[str, str | None]:
        """The topic settings that are drawn. In most seeds segments hold only some batches."""
        segment_bytes = self.random.choice(SEGMENT_BYTES)
        return {"internal.segment.bytes": segment_bytes} if segment_bytes else {}

    async def run(self) -> None:
        """Run the whole simulation. Raises PropertyViolated."""
        with (
            tuned(self._constants, small_limits=self._small_limits),
            self.coverage.watching(),
            self.observer.stepping(),
            self.disks.opening(),
        ):
            await self.cluster.start()
            await self._make_topics()
            self._start_clients(self.random.choice(CLIENT_PAUSES_S))
            self.cluster.runtime.start(self._look_forever(), "looking")
            faults = self._faults()
            pause_s = self.random.choice(FAULT_PAUSES_S)
            await faults.befall(
                self._plan.fault_s or self.fault_s, pause_s, self.checks.raise_violations
            )
            self.operator.is_calm = True
            faults.heal()
            await self._served_again()
            await self._stop_clients()
            await self._judge()
        self.checks.raise_violations()

    # ---- before --------------------------------------------------------------------------

    async def _make_topics(self) -> None:
        for name, partitions, acks in (("all", 2, ACKS_ALL), ("one", 1, 1)):
            topic_id = TopicId(await self.operator.create(name, partitions))
            self.ledgers += [Ledger(name, topic_id, at, acks) for at in range(partitions)]

    def _start_clients(self, pause_s: float) -> None:
        number = 0
        for ledger in self.ledgers:
            for idempotent in (True, False) if ledger.acks == ACKS_ALL else (False,):
                producer = Producer(
                    self.cluster, self.checks, ledger, number, idempotent=idempotent
                )
                self.producers.append(producer)
                number += 1
            self.readers.append(Reader(self.cluster, self.checks, ledger, number))
            number += 1
        clients: list[Producer | Reader] = [*self.producers, *self.readers]
        for client in clients:
            self.cluster.runtime.start(client.run(pause_s), "client")
        self.cluster.runtime.start(self.operator.run(), "operator")

    async def _look_forever(self) -> None:
        while not self._done:
            await self.cluster.runtime.sleep(LOOK_EVERY_S)
            self.observer.look()
            self.quorum.look()

    # ---- after ---------------------------------------------------------------------------

    async def _served_again(self) -> None:
        """Wait until every partition accepts records and has all replicas in sync."""
        loop = self.world.loop
        deadline = loop.time() + self.served_again_s
        waiting = [self._probe(ledger) for ledger in self.ledgers]
        unserved: list[str] = []
        while loop.time() < deadline:
            self.checks.raise_violations()
            waiting = [probe for probe in waiting if not await self._is_served(probe)]
            unserved = [probe.ledger.name for probe in waiting] + self._out_of_sync()
            if not self.cluster.controller_images():
                unserved.append("metadata")
            if not unserved:
                break
            await self.cluster.runtime.sleep(0.1)
        self.checks.hold(Property.SERVED_AGAIN, not unserved, *unserved)
        self.world.tell(f"served again: {not unserved}")
        self.checks.raise_violations()

    def _probe(self, ledger: Ledger) -> Producer:
        return Producer(self.cluster, self.checks, ledger, next(self._probes), idempotent=False)

    async def _is_served(self, probe: Producer) -> bool:
        try:
            return await probe.write_once()
        except LOST:
            return False

    def _out_of_sync(self) -> list[str]:
        """The partitions with replicas that are not in sync."""
        image = self.cluster.newest_image()
        return [
            f"{topic.name}-{index} has {state.isr} of {state.replicas} in sync"
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if set(state.isr) != set(state.replicas) or state.leader < 0 or state.is_reassigned
        ]

    async def _stop_clients(self) -> None:
        clients: list[Stoppable] = [*self._clients(), self.operator]
        for client in clients:
            client.stopping = True
        deadline = self.world.loop.time() + SERVED_AGAIN_S
        while any(not one.stopped for one in clients) and self.world.loop.time() < deadline:
            self.checks.raise_violations()
            await self.cluster.runtime.sleep(0.1)
        stuck = [one.label for one in clients if not one.stopped]
        self.checks.hold(Property.SERVED_AGAIN, not stuck, "clients wait forever", *stuck)
        self._done = True

    # ---- the verdict ---------------------------------------------------------------------

    async def _judge(self) -> None:
        for number, ledger in enumerate(self.ledgers):
            await self._judge_partition(ledger, 950 + number)
        self.observer.look()
        self.quorum.look()
        self.observer.compare_all()
        topics = self.cluster.newest_image().topic_ids
        for name in self.operator.topics:
            self.checks.hold(Property.TOPIC_KEPT, name in topics, name)
        failures = self.world.failures
        self.checks.hold(Property.UNBROKEN, not failures, *failures[:2])

    async def _judge_partition(self, ledger: Ledger, number: int) -> None:
        """Read a partition to its end and compare it with what clients know."""
        epoch = self.cluster.committed_epoch(ledger.topic_id, ledger.partition)
        found = await self._read_all(self._last_reader(ledger, number, epoch))
        hold = self.checks.hold
        places: dict[bytes, list[int]] = {}
        for offset, value in found.items():
            places.setdefault(value, []).append(offset)
        for offset, value in ledger.seen.items():
            same = found.get(offset) == value
            hold(Property.ONE_VALUE_AN_OFFSET, same, ledger.name, offset, value, found.get(offset))
        if ledger.acks == ACKS_ALL:
            self._judge_acknowledged(ledger, found, places)
            self._judge_sequences(ledger, places)
        for value in ledger.refused:
            hold(Property.REFUSED_ABSENT, value not in places, ledger.name, value)

    def _judge_acknowledged(
        self, ledger: Ledger, found: dict[int, bytes], places: dict[bytes, list[int]]
    ) -> None:
        for value, offset in ledger.acknowledged.items():
            kept = value in places if offset < 0 else found.get(offset) == value
            self.checks.hold(Property.ACKNOWLEDGED_KEPT, kept, ledger.name, offset, value)

    def _judge_sequences(self, ledger: Ledger, places: dict[bytes, list[int]]) -> None:
        for producer_id, sent in ledger.sequences.items():
            at = [places.get(value, []) for value in sent]
            once = all(len(offsets) == 1 for offsets in at)
            ordered = once and all(one[0] < other[0] for one, other in pairwise(at))
            wrong = next((v for v, o in zip(sent, at, strict=True) if len(o) != 1), b"")
            self.checks.hold(
                Property.SEQUENCE_WHOLE, ordered, ledger.name, producer_id, wrong, places.get(wrong)
            )

    def _last_reader(self, ledger: Ledger, number: int, epoch: int) -> Reader:
        """The reader of a partition at the end."""
        return Reader(self.cluster, self.checks, ledger, number, leader_epoch=epoch)

    async def _read_all(self, reader: Reader) -> dict[int, bytes]:
        """All records of a partition by offset."""
        ledger = reader.ledger
        before, ledger.seen = ledger.seen, {}
        is_whole = await reader.read_to_end(SERVED_AGAIN_S)
        self.checks.hold(Property.SERVED_AGAIN, is_whole, ledger.name, "is not readable")
        found, ledger.seen = ledger.seen, before
        return found
