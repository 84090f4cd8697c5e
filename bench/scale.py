"""`python -m bench.scale`: one controller with 100 brokers and 100,000 partitions in one process.

The controller and its voter are the real ones. The log is on a memory file system if there is one,
because other work on a disk would be measured, too. The brokers register, send heartbeats and
follow the metadata. Each answer to a follower is pickled, as Ray does in the controller's process.
A turn is one callback of the event loop. All times are CPU time of the loop's thread, so that other
work on the machine has little effect, and the best of several rounds counts.
"""

import asyncio
import logging
import os
import pickle
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from rich.table import Table

from bench import report
from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.broker.voter import Voter
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import (
    AlterPartitions,
    BrokerHeartbeat,
    CreateTopics,
    Follow,
    IsrChange,
    MetadataUpdate,
    NewTopic,
    OpenedReplica,
    PartitionsOpened,
    RegisterBroker,
)
from raylog.actors.controller.rules.index import PartitionIndex
from raylog.actors.controller.rules.machine import ControllerMachine
from raylog.actors.incarnations import name_of
from raylog.actors.metadata.entries import LogSnapshot
from raylog.actors.metadata.followed import DirectoryHistory
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import decode_record, encode_record
from raylog.actors.metadata.voting import (
    NewEpoch,
    VoterAppend,
    VoterAppended,
    VoterLog,
    VoterState,
)
from raylog.actors.names import BROKER, CONTROLLER, broker_name, controller_name
from raylog.actors.runtime.base import ActorSpec, LinkRequest, Runtime
from raylog.actors.runtime.inproc import InprocRuntime, InprocWorld
from raylog.storage.disk import OsDisk
from raylog.wire.errors import InvalidRequest, NotController

CLUSTER = "scale"
NAME = controller_name(CLUSTER)
SESSION_MS, HEARTBEAT_MS = 3_600_000, 2_000
TIMEOUT_MS = 120_000
MEMORY = "/dev/shm"
CHANGES = 50
OPENED_AT_ONCE = 200
REPLICAS = 3
SESSIONS = "sessions"
"""The controller's task that fences brokers and elects leaders of their partitions."""


class VotingBroker:
    """A broker as the controller's quorum sees it: its copy of the metadata log."""

    def __init__(self, runtime: Runtime, *, directory: Path) -> None:
        log = MetadataLog(directory / "metadata", OsDisk())
        self._voter = Voter(
            0,
            "d0",
            ((0, "d0"),),
            log,
            runtime.run_blocking,
            fsync=True,
            clock_ms=runtime.monotonic_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    async def start(self) -> None:
        """Do nothing: there is nothing to start."""

    async def stop(self) -> None:
        """Do nothing: there is nothing to stop."""

    def link_lost(self, peer: int) -> None:
        """Do nothing: there are no links."""

    def link_received(self, request: LinkRequest) -> None:
        """Do nothing: there are no links."""
        request.fail(InvalidRequest("no links here"))

    async def history(self) -> DirectoryHistory:
        """Return the history of a new directory."""
        return DirectoryHistory(0)

    async def voter_state(self) -> VoterState:
        """Return the state of the copy."""
        return self._voter.state()

    async def voter_new_epoch(self, asked: NewEpoch) -> VoterState:
        """Promise an epoch."""
        return await self._voter.new_epoch(asked)

    async def voter_fetch(self, epoch: int, offset: int) -> VoterLog:
        """Return the log."""
        return self._voter.fetch(epoch, offset)

    async def voter_append(self, asked: VoterAppend) -> VoterAppended:
        """Write and sync entries."""
        return await self._voter.append(asked)

    async def voter_install(
        self, epoch: int, snapshot: LogSnapshot, controller: str, directory_id: str
    ) -> None:
        """Install a snapshot in place of the entries below it."""
        await self._voter.install(epoch, snapshot, controller, directory_id)


@dataclass(slots=True)
class Turns:
    """CPU time of the event loop's turns, in ms."""

    total_ms: float = 0.0
    longest_ms: float = 0.0
    elections_ms: float = 0.0
    """The part of turns that elect leaders for a lost broker's partitions."""
    longest_election_ms: float = 0.0
    elections: int = 0

    def took(self, cpu_ms: float, task: str) -> None:
        """Record the end of a turn."""
        self.total_ms += cpu_ms
        self.longest_ms = max(self.longest_ms, cpu_ms)
        if task == SESSIONS:
            self.elections += 1
            self.elections_ms += cpu_ms
            self.longest_election_ms = max(self.longest_election_ms, cpu_ms)


@contextmanager
def turns() -> Iterator[Turns]:
    """Measure the turns of the event loop within the context."""
    found = Turns()
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # private
        name = task.get_name() if isinstance(task, asyncio.Task) else ""
        began = time.thread_time_ns()
        run(handle)
        found.took((time.thread_time_ns() - began) / 1e6, name)

    with patch.object(asyncio.Handle, "_run", measured):
        yield found


@dataclass(slots=True)
class Scale:
    """The cluster: a serving controller, and brokers that follow it."""

    world: InprocWorld
    brokers: int
    epochs: dict[int, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    runtime: InprocRuntime = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = self.world.runtime()

    @property
    def machine(self) -> ControllerMachine:
        """The controller's machine."""
        actor = self.world.resident(NAME).actor
        assert isinstance(actor, ControllerActor)
        term = actor._term
        assert term is not None, "it serves"
        return term.machine

    @property
    def image(self) -> MetadataImage:
        """The controller's metadata."""
        return self.machine.image

    async def call(self, method: str, *args: Any) -> Any:
        """Call the controller. Retries until it serves."""
        while True:
            try:
                return await self.runtime.call(NAME, method, *args, timeout_ms=TIMEOUT_MS)
            except NotController:
                await asyncio.sleep(0.01)

    async def join(self, broker_id: int, start: int = 1) -> None:
        """Register a broker and unfence it."""
        asked = RegisterBroker(
            broker_id, CLUSTER, f"d{broker_id}", f"i{broker_id}.{start}", "h", 9092
        )
        self.epochs[broker_id] = await self.call("register_broker", asked)
        await self.beat(broker_id)

    async def beat(self, broker_id: int) -> None:
        """Send the heartbeat of a broker that has applied all metadata."""
        await self.call(
            "heartbeat", BrokerHeartbeat(broker_id, self.epochs[broker_id], self.image.offset)
        )

    async def beat_forever(self) -> None:
        """Send all brokers' heartbeats, spread over the interval."""
        while True:
            for broker_id in range(self.brokers):
                if broker_id not in self.silent:
                    await self.beat(broker_id)
                await asyncio.sleep(HEARTBEAT_MS / 1_000 / self.brokers)

    async def follow_forever(self, broker_id: int) -> None:
        """Follow the metadata. Answers are pickled as for another process."""
        while True:
            asked = Follow(broker_id, self.offsets.get(broker_id, 0), 5_000)
            update: MetadataUpdate = await self.call("follow", asked)
            pickle.dumps(update, pickle.HIGHEST_PROTOCOL)
            self.offsets[broker_id] = update.to_offset

    async def all_up_to_date(self) -> None:
        """Wait until every broker has received all metadata."""
        while any(self.offsets.get(one, 0) < self.image.offset for one in range(self.brokers)):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.002)

    async def fill(self, partitions: int, topics: int) -> None:
        """Create the topics."""
        for number in range(topics):
            count = partitions // topics
            asked = CreateTopics([NewTopic(f"topic-{number}", count, REPLICAS)])
            (outcome,) = await self.call("create_topics", asked)
            assert outcome.error == 0, outcome.message
        opened: dict[int, list[OpenedReplica]] = {one: [] for one in range(self.brokers)}
        for topic in self.image.topics.values():
            for index, state in enumerate(topic.partitions):
                for broker_id in state.replicas:
                    name = name_of(f"{broker_id:032x}", f"{broker_id:022}", len(opened[broker_id]))
                    opened[broker_id].append(OpenedReplica(topic.topic_id, index, name))
        await asyncio.gather(*[self.open_all(*one) for one in opened.items()])

    async def open_all(self, broker_id: int, replicas: list[OpenedReplica]) -> None:
        """Report that a broker has opened the logs of its partitions."""
        for begin in range(0, len(replicas), OPENED_AT_ONCE):
            opened = replicas[begin : begin + OPENED_AT_ONCE]
            await self.call(
                "partitions_opened", PartitionsOpened(broker_id, self.epochs[broker_id], opened)
            )

    # ---- measurements --------------------------------------------------------------------

    async def change_one(self) -> Turns:
        """Change the ISR of a partition and wait until every broker has it. Returns the mean."""
        topic = next(iter(self.image.topics.values()))
        with turns() as found:
            for index in range(CHANGES):
                state = self.image.topics[topic.topic_id].partitions[index]
                isr = tuple([(one, state.incarnations.get(one, "")) for one in state.isr])
                if len(isr) > 1:
                    isr = tuple([one for one in isr if one[0] == state.leader])
                epochs = (state.leader_epoch, state.partition_epoch)
                change = IsrChange(topic.topic_id, index, *epochs, isr)
                asked = AlterPartitions(state.leader, self.epochs[state.leader], [change])
                (outcome,) = await self.call("alter_partitions", asked)
                assert outcome.error == 0, outcome.message
                await self.all_up_to_date()
        found.total_ms /= CHANGES
        return found

    async def lose(self, broker_id: int) -> tuple[int, Turns]:
        """Expire a broker's session.

        Returns its in-sync partitions and the turns until all know.
        """
        held = sum(
            broker_id in state.isr
            for topic in self.image.topics.values()
            for state in topic.partitions
        )
        self.silent.add(broker_id)
        contacts = self.machine.brokers._last_contact_ms
        with turns() as found:
            while not self.image.brokers[broker_id].fenced:
                contacts[broker_id] = -2 * SESSION_MS  # again: a last heartbeat may be in flight
                await asyncio.sleep(0.01)
            await self.all_up_to_date()
        return held, found

    async def one_behind(self) -> tuple[int, int]:
        """The number of records, and their bytes on Ray, that a broker gets if it lacks one."""
        await self.all_up_to_date()  # the image also has records that are not committed yet
        end = self.image.offset
        asked = Follow(0, end - 1, 0)
        update: MetadataUpdate = await self.call("follow", asked)
        assert (update.from_offset, update.parts) == (end - 1, ()), "it is no snapshot"
        return len(update.records), len(pickle.dumps(update, pickle.HIGHEST_PROTOCOL))


def memory_each(image: MetadataImage, partitions: int) -> tuple[float, float]:
    """Bytes per partition of a copy of the image, as every process decodes it, and of the index."""
    encoded = [encode_record(record) for record in image.snapshot()]
    tracemalloc.start()
    copy = MetadataImage()
    copy.apply_all(map(decode_record, encoded))
    alone, _ = tracemalloc.get_traced_memory()
    indexed = MetadataImage()
    index = PartitionIndex(indexed)
    for record in encoded:
        index.apply(decode_record(record))
    both, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert copy == indexed, "the first is kept while the second is made"
    return alone / partitions, (both - 2 * alone) / partitions


def resident_mib() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


async def measured(
    directory: Path, brokers: int, partitions: int, topics: int, rounds: int
) -> list[tuple[str, str]]:
    """Build the cluster and return the figures of each case."""
    world = InprocWorld({CONTROLLER: ControllerActor, BROKER: VotingBroker}.__getitem__)
    scale = Scale(world, brokers)
    await scale.runtime.spawn(ActorSpec(broker_name(CLUSTER, 0), BROKER, {"directory": directory}))
    settings = {
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
        "controller.quorum.auto.join.enable": "false",
    }
    args = {"cluster_id": CLUSTER, "broker_ids": [0], "settings": settings}
    await scale.runtime.spawn(ActorSpec(NAME, CONTROLLER, args))
    for broker_id in range(brokers):
        await scale.join(broker_id)
    tasks = [asyncio.ensure_future(scale.beat_forever())]
    await scale.fill(partitions, topics)
    scale.offsets = dict.fromkeys(range(brokers), scale.image.offset)
    tasks += [asyncio.ensure_future(scale.follow_forever(one)) for one in range(brokers)]
    rows = await figures(scale, partitions, rounds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await world.stop()
    assert world.failures == [], "no actor failed"
    return rows


async def figures(scale: Scale, partitions: int, rounds: int) -> list[tuple[str, str]]:
    """The figures of each case, the best of several rounds."""
    changes, losses = [], []
    for number in range(rounds):
        changes.append(await scale.change_one())
        lost = scale.brokers - 1 - number
        losses.append(await scale.lose(lost))
        scale.silent.discard(lost)
        await scale.join(lost)
    changed = min(changes, key=lambda one: one.total_ms)
    held, loss = min(losses, key=lambda one: one[1].longest_election_ms)
    records, sent = await scale.one_behind()
    resident = resident_mib()
    image_bytes, index_bytes = memory_each(scale.image, partitions)
    return [
        ("one change of the in-sync replicas, all brokers told", f"{changed.total_ms:.1f} ms"),
        ("- its longest turn", f"{min(one.longest_ms for one in changes):.1f} ms"),
        (f"loss of a broker in sync for {held:,}: elections", f"{loss.elections_ms:.0f} ms"),
        ("- turns", f"{loss.elections}"),
        ("- the longest of them", f"{loss.longest_election_ms:.1f} ms"),
        ("- everything, all brokers told", f"{loss.total_ms:.0f} ms"),
        ("- the longest turn of all", f"{loss.longest_ms:.1f} ms"),
        ("a broker that is one record behind gets", f"{records} record, {sent} bytes"),
        ("a partition in a copy of the metadata", f"{image_bytes:.0f} bytes"),
        ("- and in the controller's index", f"{index_bytes:.0f} bytes"),
        ("this process: controller and voter", f"{resident} MiB"),
    ]


def main(
    brokers: Annotated[int, typer.Option(min=REPLICAS)] = 100,
    partitions: Annotated[int, typer.Option(min=CHANGES)] = 100_000,
    topics: Annotated[int, typer.Option(min=1, help="They share the partitions.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Of each measurement; the best counts.")] = 3,
) -> None:
    """Print the cost of changes for the controller of a large cluster."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="raylog-scale-", dir=memory))
    try:
        rows = asyncio.run(measured(directory, brokers, partitions, topics, rounds))
    finally:
        shutil.rmtree(directory)
    title = (
        f"{brokers} brokers, {partitions:,} partitions of {topics:,} topics, {REPLICAS} replicas"
    )
    table = Table("CPU of the controller's thread, or memory", "", title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    Console(stderr=True).print(report.circumstances(), soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
