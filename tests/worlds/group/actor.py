"""A real GroupCoordinator between a fake gateway and the fake log of its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raylog.actors.common_messages import Route, RouteUpdate
from raylog.actors.coordination.requests import RequestHead
from raylog.actors.group.actor import GroupCoordinatorActor
from raylog.actors.group.hosting import ShardHost
from raylog.actors.metadata.records import PartitionChanged, Record
from raylog.actors.names import GROUP, OFFSETS_TOPIC
from raylog.actors.replica import messages as api
from raylog.actors.runtime.links import InprocRequest
from raylog.actors.transaction.messages import COMPLETE_TRANSACTION, Marker
from raylog.wire.api import ApiKey
from raylog.wire.codec import encode
from raylog.wire.errors import ErrorCode, InvalidProducerEpoch, KafkaError
from raylog.wire.frame import LENGTH_BYTES, decode_response
from raylog.wire.records import NO_PRODUCER_ID, BatchHeader, assign, iter_batches, read_header
from raylog.wire.schema import layout_of
from tests.worlds.group.pending_offsets import FakeTransactions
from tests.worlds.metadata import id_of, snapshot_of, topic_records
from tests.worlds.runtime import FakeLink, FakeRequest, FakeRuntime, settle

BROKER = 1
ADDRESS = "replica"
SEGMENT = "log"


class FakeLog:
    """The log of one partition, kept in a file, behind the link to its Replica actor."""

    def __init__(self, directory: Path, link: FakeLink) -> None:
        self.directory = directory
        self.end = 0
        self.batches: list[int] = []
        """How many records each append had."""
        self.failure: KafkaError | None = None
        """The error that all appends get from now on."""
        self.refusals: list[KafkaError] = []
        """The errors that the next appends get, in order."""
        self.writes_failing = False
        """Whether a failed append is in the log all the same."""
        self.epochs: dict[int, int] = {}
        """The newest epoch of each producer; batches of older epochs are refused."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / SEGMENT).touch()
        link.answering = self._answer

    def _answer(self, request: FakeRequest) -> Any:
        match request.kind:
            case api.CLAIM:
                return self.end
            case api.OFFSET_FOR:
                return (0, -1, 0)
            case api.FETCH:
                return [self._slice(request)]
            case api.PRODUCE:
                return self._append(request)
        raise AssertionError(request.kind)

    def _slice(self, request: FakeRequest) -> tuple[Any, ...]:
        topic_id, index, offset, *_ = request.header.changes[0]
        size = (self.directory / SEGMENT).stat().st_size
        length = size if offset < self.end else 0
        return (topic_id, index, 0, self.end, self.end, 0, SEGMENT, 0, length)

    def _append(self, request: FakeRequest) -> Any:
        if self.refusals:
            refused = self.refusals.pop(0)
            return [(int(refused.code), str(refused))]
        if self.failure is not None:
            if self.writes_failing:
                self._write(request)
            return [(int(self.failure.code), str(self.failure))]
        refusal = self._refusal(read_header(request.payload))
        if refusal is not None:
            return [(int(refusal.code), str(refusal))]
        self._write(request)
        return [(0, -1, 0)]

    def _refusal(self, header: BatchHeader) -> KafkaError | None:
        if header.producer_id == NO_PRODUCER_ID:
            return None
        known = self.epochs.get(header.producer_id, -1)
        if header.producer_epoch < known:
            return InvalidProducerEpoch(f"epoch {header.producer_epoch}, {known} was seen")
        self.epochs[header.producer_id] = header.producer_epoch
        return None

    def bytes(self) -> bytes:
        """Return all bytes of the log."""
        return (self.directory / SEGMENT).read_bytes()

    def headers(self) -> list[BatchHeader]:
        """Return the header of every batch."""
        return [header for header, _ in iter_batches(self.bytes())]

    def _write(self, request: FakeRequest) -> None:
        batch = bytearray(request.payload)
        header = read_header(batch)
        assign(batch, self.end, 0)
        with (self.directory / SEGMENT).open("ab") as segment:
            segment.write(batch)
        self.end += header.record_count
        self.batches.append(header.record_count)


class HoldingLink(FakeLink):
    """A link that holds appends until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = False
        self.held: list[tuple[Any, ...]] = []

    def request(self, kind: str, header: Any, payload: Any, answered: Any, failed: Any) -> None:
        if self.holding and kind == api.PRODUCE:
            self.held.append((kind, header, payload, answered, failed))
        else:
            super().request(kind, header, payload, answered, failed)

    def release_one(self) -> None:
        """Release the oldest held append."""
        super().request(*self.held.pop(0))

    def release(self) -> None:
        """Release all held appends, and hold no more."""
        self.holding = False
        held, self.held = self.held, []
        for one in held:
            super().request(*one)


@dataclass(slots=True)
class Asking:
    """One request of a client, with its response when it has arrived."""

    api_key: ApiKey
    version: int
    answer: Any = None
    failure: Exception | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the response has arrived."""
        return self.answer is not None

    def reply(self, _header: Any, frame: memoryview) -> None:
        assert self.answer is None, "answered twice"
        self.answer = decode_response(self.api_key, self.version, bytes(frame[LENGTH_BYTES:]))[1]

    def fail(self, failure: Exception) -> None:
        self.failure = failure


@dataclass(slots=True)
class Marking:
    """Markers that were sent, with their outcomes when they have arrived."""

    codes: list[list[int]] | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the outcomes have arrived."""
        return self.codes is not None

    def reply(self, codes: list[list[int]], _payload: memoryview) -> None:
        assert self.codes is None, "answered twice"
        self.codes = codes

    def fail(self, failure: Exception) -> None:
        raise AssertionError(failure)


class PeerLink:
    """The methods of a link that InprocRequest needs."""

    number = 1

    def forget(self, _request: InprocRequest) -> bool:
        return True


@dataclass(slots=True)
class CoordinatorWorld:
    """Broker 1 coordinates the groups of two partitions, of which it leads partition 0."""

    path: Path
    settings: dict[str, str] = field(default_factory=dict)
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    link: HoldingLink = field(default_factory=HoldingLink)
    transactions: FakeTransactions = field(default_factory=FakeTransactions)
    log: FakeLog = field(init=False)
    actor: GroupCoordinatorActor = field(init=False)

    def __post_init__(self) -> None:
        self.log = FakeLog(self.path, self.link)
        self.restart()

    def restart(self) -> None:
        """Start another process of the coordinator."""
        self.link.is_open = True
        self.runtime.links[ADDRESS] = self.link
        self.actor = GroupCoordinatorActor(
            self.runtime,  # type: ignore[arg-type]  # a fake
            name="group",
            broker_id=BROKER,
            cluster_id="c",
            settings={"group.initial.rebalance.delay.ms": "0", **self.settings},
        )
        self.actor._transactions = self.transactions  # type: ignore[assignment]  # a fake

    async def begin(self, partitions: int = 1, leader: int = BROKER) -> None:
        """Send metadata and routes, so that the shard is loaded."""
        records = [
            *topic_records(OFFSETS_TOPIC, partitions, leader=leader),
            *topic_records("t", 3),
        ]
        await self.actor.apply_metadata(*snapshot_of(len(records), records))
        if leader == BROKER:
            await self.route()

    async def apply(self, *records: Record) -> None:
        """Push metadata records, as the Broker does."""
        at = self.actor._image.offset
        await self.actor.apply_metadata(at, at + len(records), list(records))

    async def lead(self, leader: int) -> None:
        """Begin another leader epoch of partition 0."""
        await self.apply(PartitionChanged(id_of(OFFSETS_TOPIC), 0, leader=leader))

    async def route(self, leader_epoch: int = 0) -> None:
        """Route partition 0 here."""
        route = Route(id_of(OFFSETS_TOPIC), 0, leader_epoch, ADDRESS, ADDRESS, str(self.path))
        await self.actor.apply_routes(RouteUpdate([route]))
        await settle()

    def send(self, request: Any, version: int, *, client_id: str = "client") -> Asking:
        """Send a client's request."""
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        body = encode(request, version)
        return self.send_bytes(api_key, version, body, client_id=client_id)

    def send_bytes(
        self,
        api_key: ApiKey,
        version: int,
        body: bytes,
        *,
        kind: str = GROUP,
        client_id: str = "client",
    ) -> Asking:
        """Send a request with this body."""
        asking = Asking(api_key, version)
        head = RequestHead(int(api_key), version, 7, client_id, "/127.0.0.1")
        payload = memoryview(bytearray(body))
        link: Any = PeerLink()
        self.actor.link_received(
            InprocRequest(link, kind, head, payload, asking.reply, asking.fail)
        )
        return asking

    def mark(self, *markers: Marker) -> Marking:
        """Send markers as a transaction coordinator does."""
        marking = Marking()
        link: Any = PeerLink()
        header = [tuple(one) for one in markers]
        payload = memoryview(b"")
        self.actor.link_received(
            InprocRequest(link, COMPLETE_TRANSACTION, header, payload, marking.reply, marking.fail)
        )
        return marking

    async def end(self, *markers: Marker) -> list[list[str]]:
        """Send markers, wait for their appends only, and return their outcomes."""
        marking = self.mark(*markers)
        await self.runtime.advance(1)
        await settle()
        assert marking.codes is not None
        return [[ErrorCode(code).name for code in each] for each in marking.codes]

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request, wait for its append only, and return the response."""
        asking = self.send(request, version)
        await self.runtime.advance(1)
        await settle()
        return asking.answer


def run(
    scenario: Callable[[CoordinatorWorld], Coroutine[Any, Any, None]],
    path: Path,
    **settings: str,
) -> None:
    """Run a scenario in a new world; fail if a task failed."""

    async def main() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        world = CoordinatorWorld(path / "partition", named)
        await scenario(world)
        await settle()
        await world.actor.stop()
        assert not world.runtime.failures

    asyncio.run(main())


def host_of(world: CoordinatorWorld) -> ShardHost:
    """Return the shard of partition 0."""
    host = world.actor._shards.get(0)
    assert isinstance(host, ShardHost)
    return host
