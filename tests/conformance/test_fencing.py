"""Producers that are replaced, sleep past their transaction's timeout, or die during one.

Each is a process with confluent-kafka or Apache Kafka's Java client. They must get the same errors
as from Apache Kafka (RAYLOG_CONFORMANCE_BOOTSTRAP names one to compare with).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench import jars
from raylog.client import BlockingClient, NewTopic
from raylog.testing import EmbeddedBroker
from tests.conformance.conftest import EXTERNAL
from tests.conformance.tools import java_tools

CALL_S = 30.0
TIMEOUT_MS = 1_500
LOOKS_EVERY_MS = 100
"""How often our coordinator looks for transactions past their timeout; an external one: 10 s."""
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(LOOKS_EVERY_MS)}
JAVA = Path(__file__).parents[1] / "support" / "java"
CONFLUENT = "confluent"

Open = Callable[..., "Opened"]


class Opened:
    """A process that holds a transaction open."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.line() == "open"

    def line(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def commit(self) -> str:
        """Have it commit; returns what came of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.line()

    def end(self) -> None:
        """Whatever it is doing."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster that looks for timeouts often."""
    if EXTERNAL:
        yield EXTERNAL
        return
    with EmbeddedBroker(settings=SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def made(bootstrap: str, topic: str) -> str:
    """A topic of one partition."""
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(topic, 1, 1)])
    return topic


@pytest.fixture(
    params=[CONFLUENT, pytest.param("java", marks=[pytest.mark.java, pytest.mark.long])]
)
def kind(request: pytest.FixtureRequest) -> str:
    """Whose producer it is."""
    name: str = request.param
    return name


@pytest.fixture
def open_transaction(bootstrap: str, made: str, kind: str) -> Iterator[Open]:
    """Opens a transaction of that kind's producer, with one record."""
    with ExitStack() as running:

        def start(timeout_ms: int = TIMEOUT_MS, value: str = "lost") -> Opened:
            given = [bootstrap, made, f"{made}-id", str(timeout_ms), value]
            if kind == CONFLUENT:
                command = [sys.executable, "-m", "tests.support.open_transaction", *given]
            else:
                java_tools()
                command = jars.fetch(JAVA).command("OpenTransaction", *given, heap="64M")
            opened = Opened(command)
            running.callback(opened.end)
            return opened

        yield start


def write(bootstrap: str, topic: str, value: str) -> None:
    """A record outside of any transaction, behind what is there."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(CALL_S) == 0


def read_until(bootstrap: str, topic: str, last: str) -> list[str]:
    """What a read_committed reader gets, up to a value."""
    found: list[str] = []
    with reading(bootstrap, topic, "read_committed") as messages:
        while last not in found:
            found.append((next(messages).value() or b"").decode())
    return found


def first_sent_at(bootstrap: str, topic: str) -> float:
    """When the first record was handed to its producer, committed or not; Unix time in seconds."""
    with reading(bootstrap, topic, "read_uncommitted") as messages:
        return next(messages).timestamp()[1] / 1e3


@contextmanager
def reading(bootstrap: str, topic: str, isolation: str) -> Iterator[Iterator[Message]]:
    """The records of a topic."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": isolation,
        "fetch.wait.max.ms": "50",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])

    def messages() -> Iterator[Message]:
        deadline = time.monotonic() + CALL_S
        while True:
            assert time.monotonic() < deadline, "no more records"
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                yield message

    try:
        yield messages()
    finally:
        consumer.close()


FENCED = {CONFLUENT: "_FENCED fatal", "java": "ProducerFencedException"}
TIMED_OUT = {CONFLUENT: "_FENCED fatal", "java": "InvalidTxnStateException"}
"""In version 2, which only Java speaks, the commit looks like a repeat of what ended otherwise."""


def test_a_second_producer_fences_the_first(
    bootstrap: str, made: str, kind: str, open_transaction: Open
) -> None:
    """facts.md, Producer client: the first's transaction is aborted, its commit refused."""
    first = open_transaction(60_000)
    second = open_transaction(60_000, "kept")
    assert first.commit() == FENCED[kind]
    assert second.commit() == "committed"
    assert read_until(bootstrap, made, "kept") == ["kept"]


def test_a_zombie_commits_nothing(
    bootstrap: str, made: str, kind: str, open_transaction: Open
) -> None:
    """facts.md, Transactions: stopped past its timeout, its transaction is aborted under a newer
    epoch; what it asks when it goes on is refused."""
    zombie = open_transaction()
    os.kill(zombie.process.pid, signal.SIGSTOP)
    write(bootstrap, made, "behind")
    assert read_until(bootstrap, made, "behind") == ["behind"]
    os.kill(zombie.process.pid, signal.SIGCONT)
    assert zombie.commit() == TIMED_OUT[kind]
    write(bootstrap, made, "last")
    assert read_until(bootstrap, made, "last") == ["behind", "last"]


def test_readers_move_on_past_a_producer_that_died(
    bootstrap: str, made: str, open_transaction: Open, request: pytest.FixtureRequest
) -> None:
    """facts.md, Transactions: it is aborted at its timeout, and readers go on, not before."""
    dead = open_transaction()
    os.kill(dead.process.pid, signal.SIGKILL)
    write(bootstrap, made, "behind")
    assert read_until(bootstrap, made, "behind") == ["behind"]
    waited_s = time.time() - first_sent_at(bootstrap, made)
    request.node.user_properties.append(("waited_s", waited_s))
    assert waited_s >= TIMEOUT_MS / 1e3
