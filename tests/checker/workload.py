"""Real clients that write and read during faults, and the verdict on their history.

`python -m tests.checker.workload HOST:PORT --seconds 60` works on any cluster. Tests use `Workload`
and inject faults within its `with` block:

    with Workload(bootstrap, folder, Plan()) as workload:
        ...
    assert workload.verdict.valid
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic, sleep
from types import TracebackType
from typing import Annotated, Self
from uuid import uuid4

import typer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from tests.checker.anomalies import Options, Verdict
from tests.checker.check import DEFAULT, check
from tests.checker.confluent import ProducerEndedError, RecordingConsumer, RecordingProducer
from tests.checker.history import load
from tests.checker.java_clients import JavaClients
from tests.checker.operations import Outcome, Partition
from tests.checker.recorder import Recorder
from tests.checker.report import show, to_json
from tests.support.librdkafka import QUICK

PROBE_TIMEOUT_S = 5.0
"""How long the probe waits for a response. librdkafka's default is a minute."""
IN_FLIGHT_MAX = 500
"""The most records in flight per producer."""
TRANSACTION_RECORDS_MAX = 10
SEEK_CHANCE = 0.01
"""Probability that an assigned consumer seeks in a poll."""
WRITTEN_S = 5.0
"""The time to write records of a transaction that will be aborted."""
END_S = 120.0
"""The time for a client to end, and for the final read."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The number and rate of clients."""

    producers: int = 3
    transactional: int = 0
    """Producers that write in transactions."""
    consumers: int = 2
    """Consumers with all partitions assigned."""
    members: int = 3
    """Members of one group."""
    partitions: int = 6
    replicas: int = 1
    min_insync: int = 1
    records_per_s: float = 500.0
    """The approximate rate of each producer."""
    record_bytes: int = 100
    seed: int = 1
    java_producers: int = 0
    """Java clients in addition, this many of each kind above."""
    java_consumers: int = 0
    java_members: int = 0
    probe_s: float = 0.0
    """If above 0, an additional producer writes to every partition in this interval."""
    patience_s: float = END_S / 2
    """How long a record may take until its acknowledgement."""


USUAL = Plan()


class Workload:
    """Clients that work until the `with` block ends, followed by the final read and the check."""

    def __init__(
        self, bootstrap: str, folder: Path, plan: Plan, options: Options = DEFAULT
    ) -> None:
        """`folder` gets the history, `history.jsonl`."""
        self.topic = f"checked-{uuid4().hex[:8]}"
        self.path = folder / "history.jsonl"
        self.failures: list[str] = []
        """Errors from which clients do not recover."""
        self.producers_ended = 0
        """Transactional producers that failed fatally and were replaced."""
        self._bootstrap = bootstrap
        self._plan = plan
        self._options = options
        self._recorder = Recorder(self.path)
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._java: JavaClients | None = None
        self._verdict: Verdict | None = None

    @property
    def verdict(self) -> Verdict:
        """The findings, available after the `with` block."""
        assert self._verdict is not None, "the workload has ended"
        return self._verdict

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that are written."""
        return [(self.topic, index) for index in range(self._plan.partitions)]

    def __enter__(self) -> Self:
        self._create_topic()
        plan = self._plan
        for work, clients in (
            (self._produce, plan.producers),
            (self._produce_in_transactions, plan.transactional),
            (self._probe, 1 if plan.probe_s else 0),
            (self._consume, plan.consumers),
            (self._consume_as_member, plan.members),
        ):
            for number in range(clients):
                self._start(work, number)
        if plan.java_producers or plan.java_consumers or plan.java_members:
            self._java = self._start_java()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(END_S)
        if self._java is not None:
            self.failures += self._java.finish(END_S)
        try:
            still = [thread.name for thread in self._threads if thread.is_alive()]
            assert not still, f"clients that do not end: {still}"
            if kind is None:
                self._read_finally()
        finally:
            self._recorder.close()
        if kind is None:
            paths = [self.path] if self._java is None else [self.path, self._java.path]
            self._verdict = check(load(paths), self._options)

    def _create_topic(self) -> None:
        plan = self._plan
        config = {"min.insync.replicas": str(plan.min_insync)}
        new = NewTopic(self.topic, plan.partitions, plan.replicas, config=config)
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **QUICK})
        admin.create_topics([new])[self.topic].result(END_S)

    def _start(self, work: Callable[[str, Random], None], number: int) -> None:
        name = f"{work.__name__.strip('_')}-{number}"
        random = Random(f"{self._plan.seed} {name}")

        def run() -> None:
            try:
                work(name, random)
            except Exception as failure:
                self.failures.append(f"{name}: {failure!r}")
                raise

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _start_java(self) -> JavaClients:
        plan = self._plan
        counts = plan.partitions, plan.java_producers, plan.java_consumers, plan.java_members
        sizes = plan.records_per_s, plan.record_bytes, plan.seed
        given = [self._bootstrap, self.topic, *map(str, (*counts, *sizes))]
        return JavaClients(self.path.parent, given)

    # -- writing -------------------------------------------------------------------------------

    @contextmanager
    def _producer(self, name: str, **settings: str) -> Iterator[RecordingProducer]:
        common = {
            "bootstrap.servers": self._bootstrap,
            "linger.ms": "2",
            "message.timeout.ms": str(int(self._plan.patience_s * 1000)),
        }
        producer = RecordingProducer(
            self._recorder,
            name,
            common | QUICK | settings,
            record_bytes=self._plan.record_bytes,
        )
        try:
            yield producer
        finally:
            producer.close(END_S / 2)

    def _produce(self, name: str, random: Random) -> None:
        pace = Pace(self._plan.records_per_s)
        with self._producer(name) as producer:
            for number in count():
                if self._ending.is_set():
                    return
                while len(producer) >= IN_FLIGHT_MAX and not self._ending.is_set():
                    producer.poll(0.05)
                producer.send(random.choice(self.partitions), f"{name}:{number}")
                pace.rest(producer.poll)

    def _probe(self, name: str, random: Random) -> None:
        """Write to every partition at a rate that no other partition's delay changes.

        A request to a machine without power waits for the client's timeout, whoever leads by then.
        """
        pace = Pace(1 / self._plan.probe_s)
        settings = {"socket.timeout.ms": str(int(PROBE_TIMEOUT_S * 1000))}
        with self._producer(name, **settings) as producer:
            for number in count():
                if self._ending.is_set():
                    return
                for topic, index in random.sample(self.partitions, len(self.partitions)):
                    producer.send((topic, index), f"{name}:{number}.{index}")
                pace.rest(producer.poll)

    def _produce_in_transactions(self, name: str, random: Random) -> None:
        """Write in transactions. A client that failed fatally is replaced."""
        numbers = count()
        settings = {
            "transactional.id": f"{self.topic}-{name}",
            "transaction.timeout.ms": str(int(END_S / 2 * 1000)),
            # No longer than the transaction, or librdkafka refuses it.
            "message.timeout.ms": str(int(END_S / 2 * 1000)),
        }
        for life in count():
            with (
                suppress(ProducerEndedError),
                self._producer(f"{name}.{life}", **settings) as producer,
            ):
                producer.init_transactions(self._patient_s)
                self._write_transactions(producer, random, (f"{name}:{n}" for n in numbers))
            if self._ending.is_set():
                return
            self.producers_ended += 1

    @property
    def _patient_s(self) -> float:
        """The timeout to begin and to end a transaction."""
        return max(END_S, self._plan.patience_s)

    def _write_transactions(
        self, producer: RecordingProducer, random: Random, values: Iterator[str]
    ) -> None:
        pace = Pace(self._plan.records_per_s)
        while not self._ending.is_set():
            producer.begin()
            for _ in range(random.randint(1, TRANSACTION_RECORDS_MAX)):
                producer.send(random.choice(self.partitions), next(values))
                pace.rest(producer.poll)
            self._end_transaction(producer, commit=random.random() < 0.8)

    def _end_transaction(self, producer: RecordingProducer, *, commit: bool) -> None:
        """Commit or abort, with retries. A commit that failed is aborted.

        Before an abort everything is written, if possible, because librdkafka fails fatally if the
        coordinator does not know the transaction yet (its issue 4849).
        """
        deadline = monotonic() + self._patient_s
        while commit:
            outcome = producer.commit(END_S)
            if outcome is Outcome.OK:
                return
            commit = outcome is Outcome.UNKNOWN
            assert monotonic() < deadline, "the transaction cannot be committed"
        producer.flush(WRITTEN_S)
        while producer.abort(END_S) is not Outcome.OK:
            assert monotonic() < deadline, "the transaction cannot be aborted"

    # -- reading -------------------------------------------------------------------------------

    @contextmanager
    def _consumer(self, name: str, **settings: str) -> Iterator[RecordingConsumer]:
        common = {"bootstrap.servers": self._bootstrap}
        consumer = RecordingConsumer(self._recorder, name, common | QUICK | settings)
        try:
            yield consumer
        finally:
            consumer.close()
            self.failures += [f"{name}: {failure}" for failure in consumer.failures]

    def _consume(self, name: str, random: Random) -> None:
        """Read all partitions, sometimes from the beginning again."""
        with self._consumer(name) as consumer:
            consumer.assign(dict.fromkeys(self.partitions, 0))
            while not self._ending.is_set():
                consumer.poll()
                if random.random() < SEEK_CHANCE:
                    consumer.assign(dict.fromkeys(self.partitions, 0))

    def _consume_as_member(self, name: str, random: Random) -> None:
        """Read as a member of the group. Leave and rejoin now and then."""
        settings = {"group.id": self.topic, "auto.offset.reset": "earliest"}
        for life in count():
            with self._consumer(f"{name}.{life}", **settings) as consumer:
                consumer.subscribe([self.topic])
                leaves_at = monotonic() + random.uniform(5.0, 30.0)
                while monotonic() < leaves_at and not self._ending.is_set():
                    if consumer.poll():
                        consumer.commit()
            if self._ending.is_set():
                return

    def _read_finally(self) -> None:
        with self._consumer("final") as consumer:
            consumer.read_to_the_end(self.partitions, END_S)


class Pace:
    """A rate of steps. Short delays are caught up, long ones are not."""

    def __init__(self, per_second: float) -> None:
        self._step_s = 1 / per_second
        self._next = monotonic()

    def rest(self, poll: Callable[[float], object]) -> None:
        """Rest until the next step. `poll` works for the given seconds, or returns earlier."""
        self._next = max(self._next + self._step_s, monotonic() - 1.0)
        poll(max(0.0, self._next - monotonic()))
        while (left_s := self._next - monotonic()) > 0:
            poll(left_s)


def main(
    bootstrap: Annotated[str, typer.Argument(help="host:port,host:port")],
    *,
    seconds: Annotated[float, typer.Option(min=0)] = 60.0,
    producers: Annotated[int, typer.Option(min=0)] = USUAL.producers,
    transactional: Annotated[int, typer.Option(min=0)] = USUAL.transactional,
    consumers: Annotated[int, typer.Option(min=0)] = USUAL.consumers,
    members: Annotated[int, typer.Option(min=0)] = USUAL.members,
    partitions: Annotated[int, typer.Option(min=1)] = USUAL.partitions,
    replicas: Annotated[int, typer.Option(min=1)] = USUAL.replicas,
    min_insync: Annotated[int, typer.Option(min=1)] = USUAL.min_insync,
    records_per_s: Annotated[float, typer.Option(min=0.01)] = USUAL.records_per_s,
    record_bytes: Annotated[int, typer.Option(min=0)] = USUAL.record_bytes,
    folder: Annotated[
        Path | None, typer.Option(help="For the history; else it is dropped.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Run clients against a cluster for a while. Exit codes: 0 clean, 1 anomalies."""
    plan = Plan(
        producers,
        transactional,
        consumers,
        members,
        partitions,
        replicas,
        min_insync,
        records_per_s,
        record_bytes,
    )
    with tempfile.TemporaryDirectory() as temporary:
        home = folder or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        with Workload(bootstrap, home, plan) as workload:
            sleep(seconds)
    verdict = workload.verdict
    if as_json:
        typer.echo(to_json(verdict))
    else:
        show(verdict, Console())
    for failure in workload.failures:
        typer.echo(failure, err=True)
    raise typer.Exit(0 if verdict.valid and not workload.failures else 1)


if __name__ == "__main__":
    typer.run(main)
