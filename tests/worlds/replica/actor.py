"""Replica actors of several brokers, with real logs on disks in memory, under a fake clock.

Brokers and controller are fakes: `ReplicaWorld` holds the committed metadata of one topic, lets
leaders change the ISR by the controller's rules, and moves leadership on request.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from raylog.actors.common_messages import (
    OpenPartition,
    PartitionKey,
    PartitionLeadership,
    TopicConfig,
)
from raylog.actors.config import BrokerConfigs, resolve_topic
from raylog.actors.controller.messages import IsrChange, IsrOutcome
from raylog.actors.names import broker_name
from raylog.actors.replica.actor import ReplicaActor
from raylog.actors.replica.messages import (
    FETCH,
    PRODUCE,
    PRODUCE_IN_TRANSACTION,
    READ_COMMITTED,
    FetchAsk,
    FetchedPartition,
    Interest,
    ProduceAnswer,
    ProducePart,
    TransactionalWrite,
    produced,
)
from raylog.actors.replica.partition import Partition, open_partition
from raylog.actors.replica.rules.config import ReplicationSettings
from raylog.actors.runtime.base import PeerLost
from raylog.actors.runtime.links import InprocLink
from raylog.actors.transaction.messages import WRITE_MARKERS, Marker
from raylog.storage.partition_file import TopicNote
from raylog.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from raylog.wire.records import NO_SEQUENCE, iter_batches
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.replica.scripted_transactions import ScriptedTransactions
from tests.worlds.runtime import FakeRuntime, FakeTimer, settle
from tests.worlds.storage.disk import FaultyDisk
from tests.worlds.storage.logs import batch

CLUSTER = "test-cluster"
ACKS_ALL = -1
SETTINGS = ReplicationSettings(lag_ms_max=2_000, backoff_ms=100)


class Clock(FakeRuntime):
    """The world's clock, which counts the timers that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.timers_run = 0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
        def run() -> None:
            self.timers_run += 1
            callback()

        return super().call_later(delay_ms, run)


class NodeRuntime(FakeRuntime):
    """The runtime of one process, which has its own disk and uses the world's clock and peers."""

    def __init__(self, world: ReplicaWorld, disk: FaultyDisk) -> None:
        super().__init__()
        self.disk = disk
        self.alive = True
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []

    def now_ms(self) -> int:
        return self._world.clock.now_ms()

    def monotonic_ms(self) -> float:
        return self._world.clock.monotonic_ms()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
        return self._world.clock.call_later(delay_ms, lambda: callback() if self.alive else None)

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = super().start(coroutine, name)
        self._tasks.append(task)
        return task

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        return await self._world.call(peer, method, *args)

    async def connect(self, address: str) -> InprocLink:  # type: ignore[override]  # a real one
        return self._world.connect(address, self)

    def end(self) -> None:
        """Kill the process."""
        self.alive = False
        for task in self._tasks:
            task.cancel()


@dataclass
class Node:
    """One broker's Replica process; `number` counts processes."""

    broker_id: int
    disk: FaultyDisk
    runtime: NodeRuntime
    actor: ReplicaActor
    number: int
    links: list[InprocLink]

    @property
    def address(self) -> str:
        return f"process:{self.broker_id}.{self.number}"

    @property
    def incarnation(self) -> str:
        return f"{self.broker_id}@{self.number}"


class Threads:
    """A process's executor that runs work when the test says so."""

    def __init__(self, node: Node) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        node.runtime.run_blocking = self._take  # type: ignore[method-assign]  # a fake

    async def _take(self, function: Callable[..., Any], *args: Any) -> Any:
        go = asyncio.get_running_loop().create_future()
        self.waiting.append(lambda: go.set_result(None))
        await go
        return function(*args)

    async def run_one(self) -> None:
        """Run the oldest work item."""
        self.waiting.popleft()()
        await settle()


class ReplicaWorld:
    """Brokers 1 to `brokers`, each with a replica of every partition."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        partitions: int = 1,
        config: dict[str, str] | None = None,
        settings: ReplicationSettings = SETTINGS,
    ) -> None:
        self.clock = Clock()
        self.keys: list[PartitionKey] = [(TOPIC_ID, index) for index in range(partitions)]
        self.config = resolve_topic(config or {}, BrokerConfigs()) | {
            "producer.id.expiration.ms": "86400000",
            "transaction.partition.verification.enable": "true",
        }
        self.own = config or {}
        """The topic's own settings."""
        self.noted = TopicNote()
        self.settings = settings
        self.brokers = tuple(range(1, brokers + 1))
        self.disks = {one: FaultyDisk() for one in self.brokers}
        self.nodes: dict[int, Node] = {}
        self.metadata: dict[PartitionKey, PartitionLeadership] = {
            key: PartitionLeadership(*key, -1, -1, 0, self.brokers, self.brokers, {})
            for key in self.keys
        }
        self.controller_fails = 0
        """How many ISR change requests are lost; every other one loses only its response."""
        self.controller_silent_ms = 0.0
        """What brokers answer to `last_heartbeat`."""
        self.silence_asked = 0
        self.refusal: ErrorCode | None = None
        self.failed: list[tuple[int, list[PartitionKey]]] = []
        """(broker id, partitions) that a process reported as failed."""
        self.altered: list[tuple[int, ...]] = []
        self.transactions = ScriptedTransactions()
        self.sharers = 1
        """How many processes of a broker share the throttled rates."""
        self.shares_asked = 0
        self._numbers = itertools.count(1)
        self._links = itertools.count(1)
        self._callers: dict[InprocLink, NodeRuntime] = {}

    @staticmethod
    def directory(broker_id: int, partition: int) -> str:
        """Return a replica's directory on its broker's disk."""
        return f"/{broker_id}/t-{partition}"

    # ---- processes -----------------------------------------------------------------------

    async def start(self, broker_id: int) -> Node:
        """Start a broker's process, open its logs, and publish the metadata."""
        disk = self.disks[broker_id]
        runtime = NodeRuntime(self, disk)
        actor = ReplicaActor(
            runtime,  # type: ignore[arg-type]  # a fake
            name=f"replica {broker_id}",
            cluster_id=CLUSTER,
            broker_id=broker_id,
            replication=self.settings,
        )
        node = Node(broker_id, disk, runtime, actor, next(self._numbers), [])
        self.nodes[broker_id] = node
        opened = await actor.open_partitions(
            [
                OpenPartition(
                    key[0],
                    "t",
                    key[1],
                    self.directory(broker_id, key[1]),
                    self.config,
                    self.own,
                    noted=self.noted,
                )
                for key in self.keys
            ]
        )
        assert not [one.error for one in opened if one.error]
        for key in self.keys:
            state = self.metadata[key]
            known = {**state.incarnations, broker_id: node.incarnation}
            again = state.leader == broker_id
            self._commit(
                replace(
                    state,
                    incarnations=known,
                    leader_epoch=state.leader_epoch + again,
                    partition_epoch=state.partition_epoch + 1,
                )
            )
        await self.publish()
        return node

    async def start_all(self, leader: int = 1) -> None:
        """Start all brokers with `leader` leading every partition and all replicas in sync."""
        for broker_id in self.brokers:
            await self.start(broker_id)
        await self.elect(leader)
        await self.pass_ms(10)

    async def kill(self, broker_id: int, *, power: random.Random | None = None) -> None:
        """Kill a process; with `power`, its machine also loses what was not synced."""
        node = self.nodes.pop(broker_id)
        node.runtime.end()
        for link in list(node.links):
            link.break_off()
        for link in [one for one, caller in self._callers.items() if caller is node.runtime]:
            link.close()
        if power is None:
            node.disk.kill()
        else:
            node.disk.crash(power)
        await settle()

    async def pass_ms(self, ms: float) -> None:
        """Let time pass."""
        await self.clock.advance(ms)
        await settle()
        for node in self.nodes.values():
            assert not node.runtime.failures, node.runtime.failures

    # ---- metadata ------------------------------------------------------------------------

    def _commit(self, state: PartitionLeadership) -> None:
        self.metadata[(state.topic_id, state.partition)] = state

    async def publish(self, *broker_ids: int) -> None:
        """Send leaderships to some brokers, or to all."""
        for broker_id in broker_ids or tuple(self.nodes):
            node = self.nodes.get(broker_id)
            if node is not None:
                leaderships = [
                    state
                    for state in self.metadata.values()
                    if state.incarnations.get(broker_id) == node.incarnation
                ]
                await node.actor.lead_partitions(leaderships)

    def change(self, key: PartitionKey | None = None, **changes: Any) -> None:
        """Commit a change of one partition, or of all, without publishing it."""
        for one in [key] if key else self.keys:
            state = self.metadata[one]
            if "leader" in changes:
                changes["leader_epoch"] = state.leader_epoch + 1
            self._commit(replace(state, **changes, partition_epoch=state.partition_epoch + 1))

    async def configure(self, **changes: str) -> None:
        """Change the topic's settings on all brokers; in names, underscores stand for dots."""
        named = {name.replace("_", "."): text for name, text in changes.items()}
        self.config, self.own = self.config | named, self.own | named
        for node in self.nodes.values():
            await node.actor.configure([TopicConfig(TOPIC_ID, self.config, self.own)])

    async def elect(self, leader: int, **changes: Any) -> None:
        """Make a broker the leader of every partition."""
        self.change(leader=leader, **changes)
        await self.publish()

    async def call(self, peer: str, method: str, *args: Any) -> Any:
        """Answer a call to a broker."""
        broker_id = next((n for n in self.nodes if broker_name(CLUSTER, n) == peer), None)
        if broker_id is None:
            raise PeerLost(f"{peer} is gone")
        if method == "locate_leaders":
            node = self.nodes[broker_id]
            return [node.address if self._leads(broker_id, key) else "" for key in args[0]]
        if method == "partitions_failed":
            self.failed.append((broker_id, args[1]))
            return None
        if method == "find_transaction_coordinator":
            return self.transactions.find()
        if method == "throttle_shares":
            self.shares_asked += 1
            return self.sharers, self.sharers
        if method == "last_heartbeat":
            self.silence_asked += 1
            return self.controller_silent_ms, 0, 0
        if method in ("cleaning_turn", "cleaning_ended"):
            return True
        assert method == "alter_partitions", method
        return await self._alter(broker_id, args[0])

    def _leads(self, broker_id: int, key: PartitionKey) -> bool:
        try:
            return self._partition_of(broker_id, key).machine.is_leader
        except UnknownTopicOrPartition:
            return False

    async def _alter(self, broker_id: int, changes: list[IsrChange]) -> list[IsrOutcome]:
        if self.controller_fails:
            self.controller_fails -= 1
            if self.controller_fails % 2:
                self._altered(broker_id, changes)
            raise PeerLost("the controller is gone")
        outcomes = self._altered(broker_id, changes)
        await self.publish()
        return outcomes

    def _altered(self, broker_id: int, changes: list[IsrChange]) -> list[IsrOutcome]:
        found = []
        for asked in changes:
            key = (asked.topic_id, asked.partition)
            error = self._alter_one(broker_id, asked, self.metadata[key])
            state = self.metadata[key]
            found.append(
                IsrOutcome(
                    *key,
                    error,
                    None,
                    state.leader,
                    state.leader_epoch,
                    state.partition_epoch,
                    state.isr,
                )
            )
        return found

    def _alter_one(self, broker_id: int, asked: IsrChange, state: PartitionLeadership) -> ErrorCode:
        if self.refusal is not None:
            return self.refusal
        if asked.leader_epoch < state.leader_epoch or state.leader != broker_id:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked.partition_epoch != state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for one, incarnation in asked.isr:
            if one not in self.nodes or state.incarnations[one] != incarnation:
                return ErrorCode.INELIGIBLE_REPLICA
        isr = tuple([one for one, _ in asked.isr])
        if isr != state.isr:
            self.altered.append(isr)
            self._commit(replace(state, isr=isr, partition_epoch=state.partition_epoch + 1))
        return ErrorCode.NONE

    # ---- links ---------------------------------------------------------------------------

    def connect(self, address: str, caller: NodeRuntime | None = None) -> InprocLink:
        """Return a link to a live process; raise PeerLost if there is none."""
        if address == self.transactions.address:
            peer: Any = self.transactions
            asking = InprocLink(peer, next(self._links))
            asking.on_lost(lambda: self._forget_caller(asking))
            if caller is not None:
                self._callers[asking] = caller
            return asking
        node = next((one for one in self.nodes.values() if one.address == address), None)
        if node is None:
            raise PeerLost(f"nobody is at {address}")
        link = InprocLink(node.actor, next(self._links))
        node.links.append(link)
        link.on_lost(lambda: self._forget(node, link))
        if caller is not None:
            self._callers[link] = caller
        return link

    def _forget(self, node: Node, link: InprocLink) -> None:
        node.links.remove(link)
        self._forget_caller(link)

    def _forget_caller(self, link: InprocLink) -> None:
        self._callers.pop(link, None)

    # ---- clients -------------------------------------------------------------------------

    def _partition_of(self, broker_id: int, key: PartitionKey) -> Partition:
        return open_partition(self.nodes[broker_id].actor._partitions, *key)

    def replica(self, broker_id: int, partition: int = 0) -> Partition:
        """Return a broker's replica of a partition."""
        return self._partition_of(broker_id, (TOPIC_ID, partition))

    def produce(
        self,
        broker_id: int,
        *batches: bytes | bytearray,
        acks: int = ACKS_ALL,
        partition: int = 0,
        timeout_ms: int = 30_000,
        leader_epoch: int = -1,
        refused_sequence: int = NO_SEQUENCE,
    ) -> asyncio.Future[list[ProduceAnswer | ErrorCode]]:
        """Produce batches to one partition, one request each."""
        where = (TOPIC_ID, partition, leader_epoch)
        link = self.connect(self.nodes[broker_id].address)
        data = batches or (batch(),)
        asked = [
            link.ask(
                PRODUCE,
                [acks, timeout_ms, [ProducePart(*where, len(one), refused_sequence)]],
                [memoryview(bytearray(one))],
            )
            for one in data
        ]
        return asyncio.ensure_future(_outcomes(asked))

    def produce_in_transaction(
        self,
        broker_id: int,
        *batches: bytes | bytearray,
        transactional_id: str = "x",
        adds: bool = True,
        knows_abortable: bool = True,
        acks: int = ACKS_ALL,
        partitions: tuple[int, ...] = (),
    ) -> asyncio.Future[list[ProduceAnswer | ErrorCode]]:
        """Produce in one request, to partition 0 or one batch to each of `partitions`."""
        where = partitions or (0,) * len(batches)
        parts = [
            ProducePart(TOPIC_ID, index, -1, len(one), NO_SEQUENCE)
            for index, one in zip(where, batches, strict=True)
        ]
        asked = self.connect(self.nodes[broker_id].address).ask(
            PRODUCE_IN_TRANSACTION,
            [acks, 30_000, parts, TransactionalWrite(transactional_id, adds, knows_abortable)],
            [memoryview(bytearray(b"".join(batches)))],
        )
        return asyncio.ensure_future(_outcomes_of(asked))

    def write_markers(self, broker_id: int, *markers: Marker) -> asyncio.Future[list[list[int]]]:
        """Have a broker's process write markers."""
        link = self.connect(self.nodes[broker_id].address)
        return asyncio.ensure_future(_header_of(link.ask(WRITE_MARKERS, list(markers))))

    async def fetch(
        self,
        broker_id: int,
        offset: int = 0,
        *,
        any_replica: bool = False,
        committed: bool = False,
        wait: bool = False,
    ) -> FetchedPartition:
        """Fetch partition 0 as a consumer does; `wait` waits until there is data."""
        link = self.connect(self.nodes[broker_id].address)
        interest = Interest(TOPIC_ID, 0, offset, 1_000_000, -1, -1, any_replica)
        isolation = READ_COMMITTED if committed else 0
        ask = FetchAsk(1, True, not wait, isolation, 1_000_000, int(wait), wait, [interest], [])
        found: list[FetchedPartition] = await link.ask(FETCH, ask)
        return found[0]

    async def ask(self, broker_id: int, kind: str, *header: Any) -> Any:
        """Send a process a request about partition 0."""
        link = self.connect(self.nodes[broker_id].address)
        return await link.ask(kind, [TOPIC_ID, 0, *header])

    # ---- looking -------------------------------------------------------------------------

    def raw(self, broker_id: int, partition: int = 0) -> bytes:
        """Return the batches of a replica."""
        return raw_log(self.replica(broker_id, partition))

    def ends(self, partition: int = 0) -> list[tuple[int, int]]:
        """Return (log end offset, high watermark) of each live replica."""
        return [
            (one.log.log_end_offset, one.high_watermark)
            for one in (self.replica(broker_id, partition) for broker_id in sorted(self.nodes))
        ]

    def isr(self) -> tuple[int, ...]:
        """Return the committed ISR of partition 0."""
        return self.metadata[self.keys[0]].isr


def raw_log(partition: Partition, up_to: int | None = None) -> bytes:
    """Return the batches of a log, only those that end at or below `up_to` if given."""
    log = partition.log
    data = b""
    offset = log.log_start_offset
    while (found := log.read(offset, 1 << 20, log.log_end_offset)) is not None:
        loaded = log.reader.load(found)
        for header, one in iter_batches(loaded):
            if up_to is None or header.next_offset <= up_to:
                data += bytes(one)
        offset = found.next_offset
    return data


async def _header_of(asked: Any) -> Any:
    return await asked


async def _outcomes_of(asked: Any) -> list[ProduceAnswer | ErrorCode]:
    return [_outcome(one) for one in await asked]


def _outcome(answer: Any) -> ProduceAnswer | ErrorCode:
    try:
        return produced(answer)
    except KafkaError as failure:
        return failure.code


async def _outcomes(asked: list[Any]) -> list[ProduceAnswer | ErrorCode]:
    found: list[ProduceAnswer | ErrorCode] = []
    for one in asked:
        try:
            found.append(produced((await one)[0]))
        except KafkaError as failure:
            found.append(failure.code)
        except PeerLost:
            found.append(ErrorCode.NETWORK_EXCEPTION)
    return found


def run_world(
    scenario: Callable[[ReplicaWorld], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    """Run a scenario in a world of running brokers, led by broker 1."""

    async def run() -> None:
        world = ReplicaWorld(**settings)
        await world.start_all()
        await scenario(world)
        for broker_id in list(world.nodes):
            await world.kill(broker_id)

    asyncio.run(run())


def answers(*base_offsets: int) -> list[ProduceAnswer]:
    """Return the answers to successful writes with these base offsets."""
    return [ProduceAnswer(one, -1, 0) for one in base_offsets]
