"""A real TransactionCoordinator between a fake gateway, the fake log of its partition and leaders.

A killed coordinator does nothing more, whatever was in progress. Its successor finds the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raylog.actors.common_messages import PartitionKey, Route, RouteUpdate
from raylog.actors.controller.messages import ProducerIdBlock
from raylog.actors.coordination.requests import RequestHead
from raylog.actors.metadata.features import TRANSACTION_VERSION
from raylog.actors.metadata.records import FeatureChanged, Record
from raylog.actors.names import GROUP, OFFSETS_TOPIC, TRANSACTION, TRANSACTIONS_TOPIC, broker_name
from raylog.actors.runtime.links import InprocRequest
from raylog.actors.transaction.actor import TransactionCoordinatorActor
from raylog.actors.transaction.messages import (
    ADD_PARTITIONS,
    COMPLETE_TRANSACTION,
    WRITE_MARKERS,
    AddPartitions,
    Marker,
)
from raylog.wire.codec import encode
from raylog.wire.errors import BrokerNotAvailable, ErrorCode
from raylog.wire.schema import layout_of
from tests.worlds.group.actor import ADDRESS, BROKER, Asking, FakeLog, HoldingLink, PeerLink
from tests.worlds.metadata import id_of, snapshot_of, topic_records
from tests.worlds.runtime import FakeLink, FakeRequest, FakeRuntime, settle

CLUSTER = "test-cluster"
OTHER_BROKER = 2
LOCAL, REMOTE, GROUPS = "leader-1", "leader-2", "group-1"
"""Addresses of the processes that lead topic t, topic u and the groups' partition."""
Key = tuple[bytes, int]


class Killed(BaseException):
    """The coordinator died where the test wanted."""


class MortalRuntime:
    """The runtime of one process. After `kill`, nothing that it began continues."""

    def __init__(self, world: FakeRuntime) -> None:
        self.world = world
        self.killed = False
        self.random = world.random
        self._tasks: list[asyncio.Task[None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        return self.world.call_later(delay_ms, self.guard(callback))

    def guard(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Return a callback that does nothing once the process is dead."""

        def run(*args: Any) -> None:
            if not self.killed:
                try:
                    callback(*args)
                except Killed:
                    self.kill()

        return run

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await coroutine
            except Killed:
                self.kill()

        task = self.world.start(run(), name)
        task.add_done_callback(lambda _: coroutine.close())
        self._tasks.append(task)
        return task

    async def connect(self, address: str) -> Any:
        return _MortalLink(self, await self.world.connect(address))

    def kill(self) -> None:
        """Mark the process as dead and cancel its tasks."""
        self.killed = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def die(self) -> None:
        """Kill the process from within."""
        self.kill()
        raise Killed


class _MortalLink:
    """A link of a process that may die."""

    unsent_bytes = 0

    def __init__(self, process: MortalRuntime, link: FakeLink) -> None:
        self._process = process
        self._link = link

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def request(self, kind: str, header: Any, payload: Any, answered: Any, failed: Any) -> None:
        if not self._process.killed:
            guard = self._process.guard
            self._link.request(kind, header, payload, guard(answered), guard(failed))


class FakeLeader:
    """A process that leads partitions; it records the markers written to each."""

    def __init__(self, link: FakeLink, kind: str) -> None:
        self.link = link
        self.kind = kind
        self.markers: dict[Key, list[Marker]] = {}
        self.codes: list[ErrorCode] = []
        """The errors that the next partitions get instead of a write."""
        self.frames = 0
        link.answering = self._answer

    def _answer(self, request: FakeRequest) -> list[list[int]]:
        assert request.kind == self.kind
        self.frames += 1
        return [
            [self._write(marker, (one.topic_id, one.partition)) for one in marker.partitions]
            for marker in map(Marker.of, request.header)
        ]

    def _write(self, marker: Marker, key: Key) -> int:
        if self.codes:
            return int(self.codes.pop(0))
        taken = self.markers.setdefault(key, [])
        if taken and marker.coordinator_epoch < taken[-1].coordinator_epoch:
            return int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        taken.append(marker)
        return 0


@dataclass(slots=True)
class FakeBroker:
    """Answers a coordinator's calls to a broker."""

    address: str
    """The address of the process that leads its partitions."""
    next_id: int = 1_000
    leads: bool = True
    gives_ids: bool = True

    async def last_heartbeat(self) -> tuple[float, int, int]:
        raise BrokerNotAvailable("no controller has answered it")

    async def locate_leaders(self, keys: list[PartitionKey]) -> list[str]:
        return [self.address if self.leads else ""] * len(keys)

    async def coordinator_address(self, role: str) -> str:
        assert role == GROUP
        return GROUPS if self.leads else ""

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        first = self.next_id
        count = 1_000 if self.gives_ids else 0
        self.next_id += count
        return ProducerIdBlock(first, count)


@dataclass(slots=True)
class TransactionActorWorld:
    """Broker 1 coordinates all transactions and leads topic t and the offsets; broker 2 leads u."""

    path: Path
    settings: dict[str, str] = field(default_factory=dict)
    level: int = 2
    world: FakeRuntime = field(default_factory=FakeRuntime)
    link: HoldingLink = field(default_factory=HoldingLink)
    log: FakeLog = field(init=False)
    process: MortalRuntime = field(init=False)
    actor: TransactionCoordinatorActor = field(init=False)
    leaders: dict[str, FakeLeader] = field(default_factory=dict)
    brokers: dict[int, FakeBroker] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    """How often each failpoint was reached."""
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = FakeLog(self.path, self.link)
        self.world.links[ADDRESS] = self.link
        for address, kind in (
            (LOCAL, WRITE_MARKERS),
            (REMOTE, WRITE_MARKERS),
            (GROUPS, COMPLETE_TRANSACTION),
        ):
            link = self.world.links[address] = FakeLink()
            self.leaders[address] = FakeLeader(link, kind)
        for broker, address in ((BROKER, LOCAL), (OTHER_BROKER, REMOTE)):
            self.brokers[broker] = FakeBroker(address)
            self.world.peers[broker_name(CLUSTER, broker)] = self.brokers[broker]
        self.records = [
            *topic_records(TRANSACTIONS_TOPIC),
            *topic_records(OFFSETS_TOPIC),
            *topic_records("t", 2),
            *topic_records("u", leader=OTHER_BROKER),
            FeatureChanged(TRANSACTION_VERSION, self.level, 0),
        ]

    async def start(self) -> None:
        """Start a process of the coordinator and send it the metadata."""
        self.process = MortalRuntime(self.world)
        self.actor = TransactionCoordinatorActor(
            self.process,  # type: ignore[arg-type]  # a fake
            name="transaction",
            broker_id=BROKER,
            cluster_id=CLUSTER,
            settings=self.settings,
        )
        await self.actor.apply_metadata(*snapshot_of(len(self.records), self.records))

    async def route(self, leader_epoch: int = 0) -> None:
        """Route the coordinator's partition here, so that its shard is loaded."""
        route = Route(id_of(TRANSACTIONS_TOPIC), 0, leader_epoch, ADDRESS, ADDRESS, str(self.path))
        await self.actor.apply_routes(RouteUpdate([route]))
        await settle()

    async def begin(self) -> None:
        """Start the process and load the shard."""
        await self.start()
        await self.route()

    async def apply(self, *records: Record) -> None:
        """Apply new metadata records."""
        at = len(self.records)
        self.records.extend(records)
        await self.actor.apply_metadata(at, len(self.records), list(records))

    def send(self, request: Any, version: int) -> Asking:
        """Send a client's request."""
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        asking = Asking(api_key, version)
        head = RequestHead(int(api_key), version, 7, "client", "/127.0.0.1")
        body = memoryview(bytearray(encode(request, version)))
        self._receive(TRANSACTION, head, body, asking.reply, asking.fail)
        return asking

    def send_add(self, *asked: AddPartitions) -> list[Any]:
        """Send leaders' requests in one frame; return a list that receives the answer."""
        answer: list[Any] = []
        header = [tuple(one) for one in asked]
        self._receive(
            ADD_PARTITIONS,
            header,
            memoryview(b""),
            lambda codes, _: answer.extend(codes),
            answer.append,
        )
        return answer

    def _receive(self, kind: str, header: Any, body: memoryview, reply: Any, fail: Any) -> None:
        link: Any = PeerLink()
        request = InprocRequest(
            link, kind, header, body, self.process.guard(reply), self.process.guard(fail)
        )
        self.process.guard(self.actor.link_received)(request)

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request, wait for its append only, and return the response or None."""
        asking = self.send(request, version)
        await self.world.advance(1)
        await settle()
        return asking.answer

    async def ask_add(self, asked: AddPartitions) -> list[int] | None:
        """The same for a leader's request."""
        answer = self.send_add(asked)
        await self.world.advance(1)
        await settle()
        return answer[0] if answer else None

    def outcomes(self) -> dict[Key, list[bool]]:
        """Return the outcomes of the markers of each partition, in order."""
        return {
            key: [marker.committed for marker in markers]
            for leader in self.leaders.values()
            for key, markers in leader.markers.items()
        }


def run(
    scenario: Callable[[TransactionActorWorld], Coroutine[Any, Any, None]],
    path: Path,
    level: int = 2,
    **settings: str,
) -> None:
    """Run a scenario in a new world; fail if a task failed."""

    async def main() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        world = TransactionActorWorld(path / "partition", named, level)
        await scenario(world)
        await settle()
        if not world.process.killed:
            await world.actor.stop()
        world.process.kill()
        await settle()
        assert not world.world.failures

    asyncio.run(main())
