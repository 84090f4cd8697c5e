"""A campaign of malformed frames against a live gateway, with a good client beside it.

`python -m tests.cluster.malformed --frames 100000` starts a cluster and runs it;
`--bootstrap HOST:PORT` aims it at any broker.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Annotated

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.__main__ import end_on_termination
from bench.peers import Peer, Raylog, Reachable
from tests.cluster.frames import Frame, FrameSource, frames
from tests.fuzz.processes import Sampler

MEMORY_GROWTH_MAX_BYTES = 64 * 1_048_576
ANSWER_TIMEOUT_S = 20.0
WAIT_TIMEOUT_S = 3.0
CONNECTIONS = 16
BOMBS = 100
"""Before memory is measured: the allocator keeps something of the first ones."""

ROUND = 20
"""Records of one round of the good client."""

PAUSE_S = 0.02
"""Between two rounds of the good client."""

AIMS: tuple[dict[str, str], ...] = (
    {},
    {"compression.type": "zstd"},
    {"cleanup.policy": "compact"},
)
"""Configurations of the topics aimed at; the last two make the broker look into batches."""


@dataclass(slots=True)
class GoodClient:
    """Writes and reads back in a group, round after round, until told to stop."""

    address: str
    topic: str
    rounds: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "GoodClient":
        """Start beside the caller."""
        self._thread = threading.Thread(target=self._work, name="good client")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop after the round at hand."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _work(self) -> None:
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True})
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": f"good-{self.topic}",
                "session.timeout.ms": 10_000,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([self.topic])
        try:
            while not self._stop.wait(PAUSE_S) and not self.failures:
                began = monotonic()
                self._round(producer, consumer)
                self.rounds += 1
                self.slowest_s = max(self.slowest_s, monotonic() - began)
        except KafkaException as failure:
            at = datetime.now().astimezone().isoformat(timespec="milliseconds")  # as logs have it
            self.failures.append(f"{at}, after {self.rounds} rounds: {failure}")
        finally:
            consumer.close()

    def _round(self, producer: Producer, consumer: Consumer) -> None:
        values = [b"%d/%d" % (self.rounds, n) for n in range(ROUND)]
        for value in values:
            producer.produce(self.topic, value, partition=0, on_delivery=self._delivered)
        if producer.flush(ANSWER_TIMEOUT_S):
            self.failures.append("records were not acknowledged in time")
        found = [m.value() for m in consumer.consume(ROUND, timeout=ANSWER_TIMEOUT_S)]
        if found != values:
            self.failures.append(f"read {found[:3]}…, wrote {values[:3]}…")
        consumer.commit(asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(self.topic, 0)], ANSWER_TIMEOUT_S)
        if committed.offset != (self.rounds + 1) * ROUND:
            self.failures.append(f"committed {committed.offset} after {self.rounds + 1} rounds")

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the frames, and of the broker."""

    outcomes: dict[str, Counter[str]]
    good_rounds: int
    good_slowest_s: float
    good_failures: list[str]
    growth: int
    """Bytes by which the process that grew most is above its start in the end.

    At their peak some decompress bombs at once, as far as a batch may swell (64 MiB).
    """
    memory: list[str]
    """Start, peak and end of each process."""
    died: list[str]
    alive_before: object
    alive_after: object
    seconds: float

    def check(self) -> None:
        """AssertionError naming the first promise that was broken."""
        silent = {kind: c["silence"] for kind, c in self.outcomes.items() if c["silence"]}
        assert not silent, f"no answer and no close within {ANSWER_TIMEOUT_S:.0f} s: {silent}"
        assert set(self.outcomes.get("sound", {})) <= {"answer"}, self.outcomes["sound"]
        assert self.good_failures == []
        assert self.good_rounds > 0
        assert self.alive_after == self.alive_before
        assert self.died == []
        assert self.growth < MEMORY_GROWTH_MAX_BYTES, f"grew by {self.growth / 2**20:.0f} MiB"


def run(peer: Peer, count: int, seed: int, alive: Callable[[], object]) -> Report:
    """Send `count` frames; `alive` describes the processes and must say the same at the end."""
    with _topics(peer.address) as topics:
        _coordinate(peer.address, topics[0])
        source = frames(seed, topics[:-1])
        began = monotonic()
        bombs = frames(seed, topics[:-1], ["decompression bomb"])
        for warm, frames_of in ((BOMBS, bombs), (max(200, count // 20), source)):
            asyncio.run(_campaign(peer.address, frames_of, warm, {}))
        alive_before = alive()
        outcomes: dict[str, Counter[str]] = {}
        with Sampler(peer.mark) as sampler, GoodClient(peer.address, topics[-1]) as good:
            sampler.start()
            asyncio.run(_campaign(peer.address, source, count, outcomes))
            sampler.settle(MEMORY_GROWTH_MAX_BYTES)
        return Report(
            outcomes=outcomes,
            good_rounds=good.rounds,
            good_slowest_s=good.slowest_s,
            good_failures=good.failures,
            growth=sampler.kept,
            memory=sampler.lines(),
            died=sampler.died,
            alive_before=alive_before,
            alive_after=alive(),
            seconds=monotonic() - began,
        )


def _coordinate(address: str, topic: str) -> None:
    """Have the group coordinator started, as a frame may do too: it is there from the beginning."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "early", "log_level": 0})
    deadline = monotonic() + 60
    while True:
        try:
            consumer.committed([TopicPartition(topic, 0)], timeout=60)
            break
        except KafkaException as error:  # librdkafka hands on what a starting coordinator says
            if error.args[0].code() != KafkaError.NOT_COORDINATOR or monotonic() > deadline:
                raise
    consumer.close()


@contextmanager
def _topics(address: str) -> Iterator[list[str]]:
    """The aims, and last the topic of the good client."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 4})
    stem = f"malformed-{os.getpid()}-{os.urandom(3).hex()}"
    new = [NewTopic(f"{stem}-{n}", 1, 1, config=config) for n, config in enumerate(AIMS)]
    new.append(NewTopic(f"{stem}-good", 1, 1))
    names = [topic.topic for topic in new]
    for future in admin.create_topics(new).values():
        future.result(ANSWER_TIMEOUT_S)
    try:
        yield names
    finally:
        for future in admin.delete_topics(names).values():
            future.result(ANSWER_TIMEOUT_S)


async def _campaign(
    address: str,
    source: FrameSource,
    count: int,
    outcomes: dict[str, Counter[str]],
) -> None:
    """Several connections at a time, one frame each."""
    left = count

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            frame = source.next()
            outcome = await _send(address, frame)
            outcomes.setdefault(frame.kind, Counter())[outcome] += 1

    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))


async def _send(address: str, frame: Frame) -> str:
    """Send one frame on its own connection and see: `answer`, `close`, `silence` or `wait`.

    After a frame that is not whole we close our half, or the broker would wait by right.
    """
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    patience = WAIT_TIMEOUT_S if frame.may_be_silent else ANSWER_TIMEOUT_S
    try:
        writer.write(frame.data)
        if not frame.is_whole:
            writer.write_eof()
        async with asyncio.timeout(patience):  # a `wait_for` may forget that it was cancelled
            answer = await reader.read(4)
    except TimeoutError:
        return "wait" if frame.may_be_silent else "silence"
    except OSError:  # reset, or closed before our half could be
        return "close"
    finally:
        writer.transport.abort()
    return "answer" if answer else "close"


def actor_processes(data: str) -> list[tuple[str, int, int]]:
    """Name, pid and restarts of every actor, as `raylog status` says."""
    done = subprocess.run(
        [sys.executable, "-m", "raylog.cli", "status", "--json", "--data", data],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    actors = json.loads(done.stdout)["actors"]
    return sorted((actor["name"], actor["pid"], actor["restarts"]) for actor in actors)


def main(
    count: Annotated[int, typer.Option("--frames", min=1)] = 100_000,
    seed: Annotated[int, typer.Option()] = 1,
    bootstrap: Annotated[str, typer.Option(help="Aim at this broker and start none.")] = "",
) -> None:
    """Run the campaign and print what happened."""
    end_on_termination()
    target = Reachable("external", bootstrap) if bootstrap else SHIELDED
    with target.run() as peer:
        report = run(peer, count, seed, lambda: actor_processes(peer.data) if peer.data else None)
    for kind, outcomes in sorted(report.outcomes.items()):
        typer.echo(f"{kind:20} {dict(outcomes)}")
    typer.echo("process, CPU time, MiB at the start / at its peak / at the end")
    for line in report.memory:
        typer.echo(line)
    typer.echo(f"good client: {report.good_rounds} rounds, slowest {report.good_slowest_s:.2f} s")
    typer.echo(f"{report.seconds:.0f} s")
    report.check()


SHIELDED = Raylog(settings={"auto.create.topics.enable": "false"})
"""Changed names must not create topics, whose memory would be counted."""

if __name__ == "__main__":
    typer.run(main)
