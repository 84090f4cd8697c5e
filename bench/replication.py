"""`python -m bench.replication`: a leader and two followers alone, in CPU time per process.

Three processes with a replica each, connected by links, without Ray, gateways and Kafka's protocol.
A producer keeps a few batches in flight to each partition, acks=all. The CPU time of a batch says
more than its latency if other work runs on the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, process_time
from typing import Annotated, Any

import typer
import uvloop

from bench import report
from bench.micro import batch_of
from raylog.actors.common_messages import OpenPartition, PartitionKey, PartitionLeadership, TopicId
from raylog.actors.config import BrokerConfigs, BrokerSettings
from raylog.actors.metadata.configs import replica_config
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.replica.actor import ReplicaActor
from raylog.actors.replica.messages import PRODUCE, ProducePart, produced
from raylog.actors.runtime.base import ActorRef, Link
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.stream import StreamLink, connect_link, serve_links

BROKERS = (0, 1, 2)
TOPIC = TopicId(b"t" * 16)
SECRET = LinkSecrets(b"s" * 32)
INSTANCE = "one for all"
LINK_TIMEOUT_S = 10.0
MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
"""The environment of actors on Ray."""
IN_FLIGHT = 5
"""Batches in flight per partition, as many as a producer usually has."""
VALUE_BYTES = 1024


def address_of(name: str, broker_id: int) -> str:
    """The address of a replica's process for links."""
    return f"unix:{name}/{broker_id}"


class ReplicaRuntime(LoopRuntime):
    """The part of a runtime that a replica needs. The leader is always broker 0."""

    def __init__(self, name: str) -> None:
        super().__init__(INSTANCE, lambda failure: sys.exit(str(failure)))
        self._name = name

    async def connect(self, peer: ActorRef | str) -> Link:
        """Open a link."""
        return await connect_link(str(peer), SECRET, INSTANCE, LINK_TIMEOUT_S)

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Answer the only calls: who leads, and that the controller is reachable."""
        if method == "last_heartbeat":
            return 0.0, 0, 0
        assert method == "locate_leaders", method
        return [address_of(self._name, 0)] * len(args[0])


def keys(partitions: int) -> list[PartitionKey]:
    """All partitions."""
    return [(TOPIC, index) for index in range(partitions)]


async def serve(name: str, broker_id: int, directory: Path, partitions: int) -> None:
    """Run a replica until standard input ends, then print the CPU seconds of the load."""
    runtime = ReplicaRuntime(name)
    actor = ReplicaActor(
        runtime,  # type: ignore[arg-type]  # nobody spawns, finds or ends here
        name=f"{name}/replica/{broker_id}/0",
        cluster_id=name,
        broker_id=broker_id,
    )
    links: set[Any] = set()
    server = await serve_links(address_of(name, broker_id), SECRET, INSTANCE, actor, links)
    await actor.start()
    broker = BrokerConfigs(BrokerSettings({"min.insync.replicas": "2"}))
    config = replica_config(MetadataImage(), "t", broker)
    await actor.open_partitions(
        [
            OpenPartition(topic, "t", index, str(directory / f"{broker_id}-{index}"), config)
            for topic, index in keys(partitions)
        ]
    )
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await actor.lead_partitions(
        [
            PartitionLeadership(*key, 0, 1, 1, BROKERS, BROKERS, dict.fromkeys(BROKERS, "a"))
            for key in keys(partitions)
        ]
    )
    print("led", flush=True)
    for _ in range(2):
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps({"cpu_s": process_time()}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    server.close()


async def load(link: StreamLink, partitions: int, batch: bytearray, count: int) -> float:
    """Write `count` batches to each partition. Returns the seconds that it took."""
    began = monotonic()

    async def produce(index: int) -> None:
        header = (-1, 30_000, [ProducePart(TOPIC, index, -1, len(batch))])
        for outcome in await link.ask(PRODUCE, header, [batch]):
            produced(outcome)

    async def partition(index: int) -> None:
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one() -> None:
            try:
                await produce(index)
            finally:
                gate.release()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                await gate.acquire()
                tasks.create_task(one())

    await asyncio.gather(*(partition(index) for index in range(partitions)))
    return monotonic() - began


class Replicas:
    """The three processes."""

    def __init__(self, name: str, directory: Path, partitions: int) -> None:
        command = [sys.executable, "-m", "bench.replication", "serve", name]
        self._processes = [
            subprocess.Popen(
                [*command, str(broker_id), str(directory), str(partitions)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | MALLOC,
                text=True,
            )
            for broker_id in BROKERS
        ]

    def read_lines(self) -> list[str]:
        """Read a line from each process."""
        found = []
        for process in self._processes:
            assert process.stdout is not None
            found.append(process.stdout.readline())
        return found

    def wake_and_read(self) -> list[str]:
        """Wake each process and read its answer."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return self.read_lines()

    def cpu_s(self) -> list[float]:
        """CPU seconds of each process so far."""
        return [float(json.loads(line)["cpu_s"]) for line in self.wake_and_read()]

    def end(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.communicate()


async def measure(partitions: int, batch_kib: int, megabytes: int) -> dict[str, float]:
    """Microseconds of leader and follower per batch, and MB/s."""
    batch = batch_of(batch_kib << 10, min(VALUE_BYTES, batch_kib << 10))
    count = max(1, megabytes * 1_000_000 // (len(batch) * partitions))
    with tempfile.TemporaryDirectory(prefix="raylog-replication-") as folder:
        name = Path(folder).name
        replicas = Replicas(name, Path(folder), partitions)
        try:
            assert replicas.read_lines() == ["open\n"] * len(BROKERS)
            assert replicas.wake_and_read() == ["led\n"] * len(BROKERS)
            link = await connect_link(address_of(name, 0), SECRET, INSTANCE, LINK_TIMEOUT_S)
            await load(link, partitions, batch, max(1, count // 10))
            before = replicas.cpu_s()
            took_s = await load(link, partitions, batch, count)
            used = [after - first for first, after in zip(before, replicas.cpu_s(), strict=True)]
            link.close()
        finally:
            replicas.end()
    batches = count * partitions
    return {
        "leader_us": 1e6 * used[0] / batches,
        "follower_us": 1e6 * (used[1] + used[2]) / 2 / batches,
        "mb_per_s": batches * len(batch) / 1e6 / took_s,
    }


app = typer.Typer()


@app.command("serve")
def serve_command(name: str, broker_id: int, directory: Path, partitions: int) -> None:
    """Run one of the replicas."""
    uvloop.run(serve(name, broker_id, directory, partitions))


@app.command()
def run(
    partitions: Annotated[list[int] | None, typer.Option(min=1)] = None,
    batch_kib: Annotated[list[int] | None, typer.Option(min=1)] = None,
    megabytes: Annotated[int, typer.Option(min=1, help="Written in each case.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="The best counts.")] = 3,
) -> None:
    """Print the CPU time of leader and follower per batch."""
    typer.echo(report.circumstances())
    for count in partitions or [1, 6]:
        for size in batch_kib or [1, 64]:
            amount = max(1, megabytes * min(size, 16) // 16)
            found = [uvloop.run(measure(count, size, amount)) for _ in range(rounds)]
            least = {key: min(one[key] for one in found) for key in ("leader_us", "follower_us")}
            typer.echo(
                f"{count} partitions, {size} KiB: leader {least['leader_us']:.0f} us, follower "
                f"{least['follower_us']:.0f} us a batch, "
                f"{max(one['mb_per_s'] for one in found):.0f} MB/s"
            )


if __name__ == "__main__":
    app()
