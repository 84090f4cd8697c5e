"""Apache Kafka's own console and performance tools against a broker."""

import json

import pytest

from tests.conformance.clients.aio import AiokafkaClient
from tests.conformance.clients.confluent import ConfluentClient
from tests.conformance.conftest import LARGEST, Target
from tests.conformance.scenarios import (
    CODECS,
    EVENT_TIME_MS,
    KEEP,
    Message,
    WriteOptions,
)
from tests.conformance.tools import TOOLS, has_groups, java

pytestmark = [
    pytest.mark.java,
    pytest.mark.parametrize("target", [LARGEST], indirect=True),
]

reader = AiokafkaClient()
writer = ConfluentClient()


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_writes_what_others_read(target: Target, topic: str, codec: str) -> None:
    reader.create_topic(target.bootstrap, topic, 1)
    lines = [f"h1:v{n},h2:x\tkey-{n}\tvalue {n} größer".encode() for n in range(50)]
    java(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", target.bootstrap, "--topic", topic),
        *("--compression-codec", codec),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        given=b"\n".join(lines) + b"\n",
    )
    found = reader.read(target.bootstrap, topic, {0: 0}, {0: 50})
    assert [(r.key, r.value, r.headers) for r in found] == [
        (
            b"key-%d" % n,
            f"value {n} größer".encode(),
            (("h1", b"v%d" % n), ("h2", b"x")),
        )
        for n in range(50)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_console_consumer_reads_what_others_wrote(target: Target, topic: str, codec: str) -> None:
    writer.create_topic(target.bootstrap, topic, 2, KEEP)
    messages = [
        Message(
            1, EVENT_TIME_MS + n, b"k%d" % n, None if n == 3 else b"v%d" % n, (("h", b"%d" % n),)
        )
        for n in range(20)
    ]
    writer.write(target.bootstrap, topic, messages, WriteOptions(codec=codec))
    printed = [f"print.{what}=true" for what in ("timestamp", "offset", "headers", "key")]
    said = java(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", target.bootstrap, "--topic", topic),
        *("--partition", "1", "--offset", "5", "--max-messages", "15"),
        *(word for setting in printed for word in ("--formatter-property", setting)),
    )
    assert said.splitlines() == [
        f"CreateTime:{EVENT_TIME_MS + n}\tOffset:{n}\th:{n}\tk{n}\tv{n}" for n in range(5, 20)
    ]


def test_performance_tools_carry_every_record(target: Target, topic: str) -> None:
    writer.create_topic(target.bootstrap, topic, 3)
    said = java(
        f"{TOOLS}.ProducerPerformance",
        *("--bootstrap-server", target.bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", "20000", "--record-size", "200", "--command-property", "acks=all"),
    )
    assert "20000 records sent" in said
    said = java("AssignedConsumer", target.bootstrap, topic, "3", "20000")
    answer = json.loads(said)
    assert (answer["records"], answer["bytes"]) == (20_000, 4_000_000)


@pytest.mark.long
def test_end_to_end_tool(target: Target, topic: str) -> None:
    writer.create_topic(target.bootstrap, topic, 1)
    said = java(
        f"{TOOLS}.EndToEndLatency",
        *("--bootstrap-server", target.bootstrap, "--topic", topic, "--num-records", "200"),
        *("--producer-acks", "all", "--record-size", "100"),
        accept_failure=not has_groups(target.bootstrap),  # it commits offsets at the very end
    )
    assert "Avg latency" in said


@pytest.mark.long
def test_topic_and_config_tools(target: Target, topic: str) -> None:
    at = ("--bootstrap-server", target.bootstrap)
    java(
        f"{TOOLS}.TopicCommand",
        *(*at, "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=-1"),
    )
    assert topic in java(f"{TOOLS}.TopicCommand", *at, "--list").splitlines()
    described = java(f"{TOOLS}.TopicCommand", *at, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=-1" in described
    entity = ("--entity-type", "topics", "--entity-name", topic)
    java(
        "kafka.admin.ConfigCommand",
        *(*at, "--alter", *entity, "--add-config", "max.message.bytes=70000"),
    )
    assert "max.message.bytes=70000" in java(
        "kafka.admin.ConfigCommand", *at, "--describe", *entity
    )
    messages = [Message(p, EVENT_TIME_MS, b"k", b"v") for p in (0, 0, 2)]
    writer.write(target.bootstrap, topic, messages, WriteOptions())
    offsets = java(f"{TOOLS}.GetOffsetShell", *at, "--topic", topic)
    assert sorted(offsets.splitlines()) == [f"{topic}:0:2", f"{topic}:1:0", f"{topic}:2:1"]
    java(f"{TOOLS}.TopicCommand", *at, "--delete", "--topic", topic)


def test_api_versions_tool_knows_every_answer(target: Target) -> None:
    said = java(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", target.bootstrap)
    assert "Produce(0)" in said
    assert "Fetch(1)" in said


def test_verifiable_producer_is_acknowledged_in_full(target: Target, topic: str) -> None:
    writer.create_topic(target.bootstrap, topic, 2, KEEP)
    said = java(
        f"{TOOLS}.VerifiableProducer",
        *("--bootstrap-server", target.bootstrap, "--topic", topic, "--max-messages", "500"),
        *("--acks", "-1", "--message-create-time", str(EVENT_TIME_MS)),
    )
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    acknowledged = {
        (row["partition"], row["offset"]): row["value"]
        for row in rows
        if row["name"] == "producer_send_success"
    }
    assert len(acknowledged) == 500
    ends = {p: 1 + max(o for q, o in acknowledged if q == p) for p, _ in acknowledged}
    found = reader.read(target.bootstrap, topic, dict.fromkeys(ends, 0), ends)
    assert {(r.partition, r.offset): (r.value or b"").decode() for r in found} == acknowledged
    assert min(r.timestamp_ms for r in found) == EVENT_TIME_MS
