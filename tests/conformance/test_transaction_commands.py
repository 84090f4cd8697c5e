"""`raylog transactions`, and Kafka's own tool, with open, hanging and prepared transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from raylog.cli.app import app
from raylog.client import (
    EARLIEST,
    BlockingClient,
    BlockingProducer,
    ConsumerSettings,
    NewTopic,
    ProducerSettings,
    ProducerUnusable,
    Record,
    Resource,
    ResourceType,
    TopicPartition,
)
from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import ErrorCode, TransactionalIdNotFound, TransactionCoordinatorFenced
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raylog.wire.records import encode_batch
from tests.conformance.conftest import EXTERNAL, OF_KAFKA, Target
from tests.conformance.tools import TOOLS, java

pytestmark = pytest.mark.timeout(300)  # an Apache Kafka starts within the first test's time

VERIFIED = "transaction.partition.verification.enable"
"""Off, it lets a batch into a partition that its transaction does not hold: so these hang."""
A_WHILE_MS = 1_000
AT_ONCE = ("--max-transaction-timeout", "0")
"""Finds what is open and silent now."""
_TWO_PHASE_VERSION = 6
STRANGER = 4_711
"""A producer id that no transactional id has."""


@dataclass(frozen=True)
class Shell:
    """Runs `raylog transactions` on one cluster."""

    bootstrap: str

    def invoke(self, *arguments: str) -> Result:
        environment = {"RAYLOG_BOOTSTRAP": self.bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}
        command = ["transactions", *arguments]
        return CliRunner().invoke(app, command, env=environment, catch_exceptions=False)

    def run(self, *arguments: str) -> str:
        result = self.invoke(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        found = json.loads(self.run(*arguments, "--json"))
        assert isinstance(found, list)
        return found


def test_list_and_describe(target: Target, topic: str) -> None:
    shell = Shell(target.bootstrap)
    with BlockingClient(target.bootstrap) as client:
        client.create_topics([NewTopic(topic, 2, 1)])
    settings = {"bootstrap.servers": target.bootstrap, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(20)

    listed = shell.rows("list", "--state", "Ongoing")
    (own,) = [one for one in listed if one["transactional_id"] == topic]
    described = json.loads(shell.run("describe", topic, "--json"))
    assert described["state"] == own["state"] == "Ongoing"
    assert described["coordinator"] == own["coordinator"]
    assert (described["producer_id"], described["producer_epoch"]) == (own["producer_id"], 0)
    assert described["partitions"] == [f"{topic}-1"]
    assert described["start_ms"] > 0
    assert topic in shell.run("list")
    assert f"{topic}-1" in shell.run("describe", topic)

    producer.abort_transaction(20)
    assert topic not in shell.run("list", "--state", "Ongoing")
    with pytest.raises(TransactionalIdNotFound):
        shell.run("describe", f"{topic}-unknown")


# ---- transactions that hang --------------------------------------------------------------


@pytest.fixture(params=["raylog", pytest.param("kafka", marks=OF_KAFKA)])
def shell(request: pytest.FixtureRequest, own_clusters: Callable[[str], str]) -> Iterator[Shell]:
    """A cluster that does not verify for the moment."""
    address = own_clusters(request.param)
    everyone = Resource(ResourceType.BROKER, "")
    with BlockingClient(address) as client:
        client.alter_configs(everyone, {VERIFIED: "false"})
        yield Shell(address)
        client.alter_configs(everyone, {VERIFIED: None})


@pytest.fixture
def client(shell: Shell) -> Iterator[BlockingClient]:
    with BlockingClient(shell.bootstrap) as client:
        yield client


@pytest.fixture
def made(client: BlockingClient, topic: str) -> str:
    """A topic of three partitions with a replica on every broker."""
    brokers = len(client.describe_cluster().brokers)
    client.create_topics([NewTopic(topic, 3, brokers)])
    return topic


def producer_of(client: BlockingClient, transactional_id: str) -> BlockingProducer[bytes, bytes]:
    producer = client.producer(ProducerSettings(transactional_id=transactional_id))
    producer.init_transactions()
    return producer


def write_raw(
    bootstrap: str,
    key: TopicPartition,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    *,
    at_most: int = 11,
) -> None:
    """A record of a while ago; up to Produce 11 nobody adds the partition to the transaction."""
    a_while_ago = int(time.time() * 1_000) - A_WHILE_MS
    batch = encode_batch(
        [Record(0, a_while_ago, None, b"hanging", [])],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = PartitionProduceData(index=key.partition, records=batch)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=key.topic, partition_data=[data])],
    )
    core = Core(BlockingIo(), ClientSettings(parse_bootstrap(bootstrap)))
    (leader,) = run_blocking(core.by_leader([key]))
    for _ in range(1_000):  # brokers hear of the setting a little later
        answer = run_blocking(core.ask(leader, request, ProduceResponse, at_most=at_most))
        if answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
            break
    else:
        pytest.fail(f"not written: {answer}")
    core.close()


def leave_hanging(
    bootstrap: str, client: BlockingClient, topic: str
) -> BlockingProducer[bytes, bytes]:
    """What hangs in partitions 0 and 1, and an old transaction in 2 that does not."""
    producer = producer_of(client, f"{topic}-id")
    producer.begin_transaction()
    a_while_ago = int(time.time() * 1_000) - A_WHILE_MS
    producer.send(topic, b"open", partition=2, timestamp_ms=a_while_ago)
    producer.flush()
    own = client.describe_transaction(f"{topic}-id")
    write_raw(bootstrap, TopicPartition(topic, 0), "nobody", STRANGER, 0)
    write_raw(
        bootstrap, TopicPartition(topic, 1), f"{topic}-id", own.producer_id, own.producer_epoch
    )
    return producer


def committed(client: BlockingClient, topic: str) -> list[bytes]:
    """What committed readers find of two partitions that end with b"end"."""
    consumer = client.consumer(ConsumerSettings(read_committed=True, max_wait_ms=50))
    consumer.assign({TopicPartition(topic, index): EARLIEST for index in (0, 1)})
    found: list[bytes] = []
    for _ in range(100):
        found += [record.value or b"" for group in consumer.poll(200) for record in group.records]
        if found.count(b"end") == 2:
            break
    consumer.close()
    return found


@pytest.mark.long
def test_hanging_transactions_are_found_and_aborted(
    shell: Shell, client: BlockingClient, made: str
) -> None:
    producer = leave_hanging(shell.bootstrap, client, made)
    found = shell.rows("hanging", "--topic", made, *AT_ONCE)
    assert [(row["partition"], row["start_offset"]) for row in found] == [(0, 0), (1, 0)]
    assert found[0]["producer_id"] == STRANGER
    assert found[0]["coordinator_epoch"] == -1
    assert found[0]["minutes"] == 0
    assert "4711" in shell.run("hanging", "-t", made, "-p", "0", *AT_ONCE)
    assert shell.rows("hanging", "-t", made, "-p", "2", *AT_ONCE) == []
    assert "no hanging transactions in 3 partitions" in shell.invoke("hanging", "-t", made).stderr
    for replica in client.describe_partitions([made])[TopicPartition(made, 0)].replicas:
        rows = shell.rows("hanging", "-t", made, "--broker", str(replica), *AT_ONCE)
        of_broker = [(row["partition"], row["producer_id"]) for row in rows]
        assert of_broker == [(row["partition"], row["producer_id"]) for row in found]
    (stranger,) = shell.rows("describe-producers", made, "0")
    assert (stranger["producer_id"], stranger["start_offset"]) == (STRANGER, 0)
    assert "4711" in shell.run("describe-producers", made, "0")

    other = [str(found[1][name]) for name in ("producer_id", "producer_epoch")]
    shell.run("abort", "-t", made, "-p", "0", "--start-offset", "0")
    explicit = ("--producer-id", other[0], "--producer-epoch", other[1], "--coordinator-epoch")
    shell.run("abort", "-t", made, "-p", "1", *explicit, str(found[1]["coordinator_epoch"]))
    assert shell.rows("hanging", "--topic", made, *AT_ONCE) == []
    (stranger,) = shell.rows("describe-producers", made, "0")
    assert stranger["start_offset"] is None
    with client.producer() as plain:
        for partition in (0, 1):
            plain.send(made, b"end", partition=partition)
    assert committed(client, made) == [b"end", b"end"]
    producer.close()


def test_an_older_coordinator_is_refused(shell: Shell, client: BlockingClient, made: str) -> None:
    write_raw(shell.bootstrap, TopicPartition(made, 0), "nobody", STRANGER, 0)
    explicit = ("--producer-id", str(STRANGER), "--producer-epoch", "0", "--coordinator-epoch")
    shell.run("abort", "-t", made, "-p", "0", *explicit, "7")
    with pytest.raises(TransactionCoordinatorFenced):
        shell.run("abort", "-t", made, "-p", "0", *explicit, "6")


@pytest.mark.parametrize("shell", ["raylog"], indirect=True)
def test_impossible_abort_is_refused_with_the_reason(
    shell: Shell, client: BlockingClient, made: str
) -> None:
    def fails(*arguments: str) -> str:
        result = CliRunner().invoke(
            app,
            ["transactions", *arguments],
            env={"RAYLOG_BOOTSTRAP": shell.bootstrap, "COLUMNS": "200", "NO_COLOR": "1"},
        )
        assert result.exit_code != 0
        return result.output + str(result.exception)

    at = ("-t", made, "-p", "0")
    assert "no open transaction starts at offset 5" in fails("abort", *at, "--start-offset", "5")
    assert "give --start-offset, or" in fails("abort", *at)
    assert "give --start-offset, or" in fails("abort", *at, "--producer-id", "5")
    explicit = ("--producer-id", "5", "--producer-epoch", "0", "--coordinator-epoch", "0")
    assert "give --start-offset, or" in fails("abort", *at, *explicit, "--start-offset", "5")
    assert "give --transactional-id, or" in fails("abort", "-t", made)
    assert "takes no other options" in fails("abort", *at, "--transactional-id", "x")
    assert f"'{made}-x'" in fails("abort", "--transactional-id", f"{made}-x")
    assert "has partitions 0 to 2" in fails("abort", "-t", made, "-p", "9", "--start-offset", "0")
    assert "has partitions 0 to 2" in fails("describe-producers", made, "9")
    assert "has partitions 0 to 2" in fails("hanging", "-t", made, "-p", "9")
    assert "give --topic or --broker" in fails("hanging")
    assert "--partition needs --topic" in fails("hanging", "-p", "0", "--broker", "0")


def test_a_transactional_id_is_ended_and_fenced(
    shell: Shell, client: BlockingClient, made: str
) -> None:
    producer = producer_of(client, f"{made}-id")
    assert "had no open" in shell.invoke("abort", "--transactional-id", f"{made}-id").stderr
    with pytest.raises(ProducerUnusable):
        _open(producer, made)
    producer = producer_of(client, f"{made}-id")
    _open(producer, made)
    said = shell.invoke("abort", "--transactional-id", f"{made}-id").stderr
    assert said == f"aborted the transaction of {made}-id; its producers are fenced\n"
    with pytest.raises(ProducerUnusable):
        producer.commit_transaction()
    assert json.loads(shell.run("describe", f"{made}-id", "--json"))["partitions"] == []


def _open(producer: BlockingProducer[bytes, bytes], topic: str) -> None:
    producer.begin_transaction()
    producer.send(topic, b"lost", partition=0)
    try:
        producer.flush()
    except Exception:
        producer.abort_transaction()
        raise


def prepared(bootstrap: str, topic: str) -> None:
    """Leave a transaction that only who knows of the preparation would commit."""
    core = Core(BlockingIo(), ClientSettings(parse_bootstrap(bootstrap)))
    coordinators = Coordinators(core, KeyType.TRANSACTION)
    node_id = run_blocking(core.repeat(lambda: coordinators.find([topic])))[topic]
    channel = run_blocking(core._channel(node_id))
    request = InitProducerIdRequest(
        transactional_id=topic, transaction_timeout_ms=1, enable_2pc=True
    )
    pending, chunks = channel.connection.request(
        request, InitProducerIdResponse, _TWO_PHASE_VERSION, core.io.now_ms() + 10_000
    )
    channel.transport.send(chunks)
    given = run_blocking(core.answer(pending))
    core.close()
    assert given.error_code == ErrorCode.NONE
    key = TopicPartition(topic, 0)
    write_raw(bootstrap, key, topic, given.producer_id, given.producer_epoch, at_most=12)


def test_a_prepared_transaction_is_ended(topic: str) -> None:
    """KIP-939: it outlives its timeout, and its producer may be gone for good."""
    if EXTERNAL:
        pytest.skip("an external cluster's settings are left as they are")
    settings = {"transaction.two.phase.commit.enable": "true"}
    with EmbeddedBroker(settings=settings) as broker, BlockingClient(broker.bootstrap) as client:
        client.create_topics([NewTopic(topic, 1, 1)])
        prepared(broker.bootstrap, topic)
        shell = Shell(broker.bootstrap)
        assert [row["state"] for row in shell.rows("list")] == ["Ongoing"]
        said = shell.invoke("abort", "--transactional-id", topic).stderr
        assert said == f"aborted the transaction of {topic}; its producers are fenced\n"
        assert client.describe_transaction(topic).partitions == []
        (row,) = shell.rows("describe-producers", topic, "0")
        assert row["start_offset"] is None


# ---- Kafka's tool ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.java
def test_output_matches_kafkas_transactions_tool(
    shell: Shell, client: BlockingClient, made: str
) -> None:
    def table(*arguments: str) -> list[list[str]]:
        command = ("--bootstrap-server", shell.bootstrap, *arguments)
        said = java(f"{TOOLS}.TransactionsCommand", *command)
        return [line.split() for line in said.splitlines()[1:]]

    def ours(*arguments: str) -> list[list[str]]:
        return [
            ["None" if value is None else str(value) for value in row.values()]
            for row in shell.rows(*arguments)
        ]

    producer = leave_hanging(shell.bootstrap, client, made)
    follower = str(client.describe_partitions([made])[TopicPartition(made, 0)].replicas[-1])
    at = ("--topic", made, "--partition", "0")
    scope = ("--topic", made, *AT_ONCE)
    assert sorted(table("find-hanging", "--broker-id", follower, *scope)) == ours(
        "hanging", "--broker", follower, *scope
    )
    (row,) = table("describe-producers", *at)
    (own,) = ours("describe-producers", made, "0")
    assert row == own
    described = json.loads(shell.run("describe", f"{made}-id", "--json"))
    (row,) = table("describe", "--transactional-id", f"{made}-id")
    assert row[:6] == [
        str(described[name])
        for name in (
            "coordinator",
            "transactional_id",
            "producer_id",
            "producer_epoch",
            "state",
            "timeout_ms",
        )
    ]
    assert row[8] == ",".join(described["partitions"])
    producer.close()
