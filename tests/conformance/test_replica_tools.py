"""Apache Kafka's tools for replicas and brokers, on three brokers; the same on Apache Kafka."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raylog.client import BlockingClient, NewTopic, Resource, ResourceType, TopicPartition
from tests.conformance.conftest import LARGEST, Target
from tests.conformance.tools import TOOLS, java

pytestmark = pytest.mark.java
DEADLINE_S = 30
REASSIGN = "reassign.ReassignPartitionsCommand"


@pytest.fixture
def target(targets: Callable[[str], Target]) -> Target:
    """A cluster of three brokers."""
    return targets(LARGEST)


@pytest.fixture
def client(target: Target) -> Iterator[BlockingClient]:
    with BlockingClient(target.bootstrap) as client:
        if len(client.describe_cluster().brokers) != 3:
            pytest.skip("needs three brokers")
        yield client


@pytest.fixture
def brokers(client: BlockingClient) -> list[int]:
    """Their ids."""
    return [broker.broker_id for broker in client.describe_cluster().brokers]


def tool(target: Target, name: str, *arguments: str, accept_failure: bool = False) -> str:
    """What one of the tools prints."""
    at = ("--bootstrap-server", target.bootstrap)
    return java(f"{TOOLS}.{name}", *at, *arguments, accept_failure=accept_failure)


def until(what: Callable[[], bool]) -> None:
    """Wait for what brokers come to a little later."""
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, "that did not happen"
        time.sleep(0.1)


def placed(client: BlockingClient, topic: str, *replicas: list[int]) -> list[TopicPartition]:
    """A topic with these replicas."""
    client.create_topics([NewTopic(topic, assignments=dict(enumerate(replicas)))])
    return [TopicPartition(topic, index) for index in range(len(replicas))]


def throttled(client: BlockingClient, topic: str) -> list[set[str]]:
    """A topic's throttled replicas: that lead, that follow (KIP-73)."""
    entries = client.describe_configs(Resource(ResourceType.TOPIC, topic))
    values = {entry.name: (entry.value or "").split(",") for entry in entries}
    lists = [values[f"{side}.replication.throttled.replicas"] for side in ("leader", "follower")]
    return [{one for one in pairs if one} for pairs in lists]


def test_topics_are_described(
    target: Target, client: BlockingClient, brokers: list[int], topic: str
) -> None:
    one, two, three = brokers
    placed(client, topic, [one, two], [three, one])
    said = tool(target, "TopicCommand", "--describe", "--topic", topic)
    head, *rows = said.splitlines()
    assert "PartitionCount: 2\tReplicationFactor: 2" in head
    for index, (row, replicas) in enumerate(zip(rows, ([one, two], [three, one]), strict=True)):
        fields = dict(re.findall(r"(\w+): (\S*)", row))
        assert (fields["Partition"], fields["Leader"]) == (f"{index}", f"{replicas[0]}")
        assert fields["Replicas"] == ",".join(map(str, replicas))
        assert sorted(fields["Isr"].split(",")) == sorted(map(str, replicas))
        assert (fields["Elr"], fields["LastKnownElr"]) == ("", "")
    for wrong in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert not tool(target, "TopicCommand", "--describe", "--topic", topic, wrong).strip()


def test_preferred_leaders_are_elected(
    target: Target, client: BlockingClient, brokers: list[int], topic: str
) -> None:
    (key,) = placed(client, topic, brokers[:2])
    elect = ("LeaderElectionCommand", "--election-type", "preferred")
    asked = ("--topic", topic, "--partition", "0")
    said = tool(target, *elect, *asked)
    assert f"Valid replica already elected for partitions {topic}-0" in said
    assert client.alter_reassignments({key: brokers[1::-1]}) == {key: None}
    said = tool(target, *elect, *asked)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in said
    until(lambda: client.describe_partitions([topic])[key].leader == brokers[1])
    assert "Error" not in tool(target, *elect, "--all-topic-partitions")


@pytest.mark.long
def test_partitions_are_reassigned(
    target: Target, client: BlockingClient, brokers: list[int], topic: str, tmp_path: Path
) -> None:
    one, two, three = brokers
    keys = placed(client, topic, [one], [two])
    with client.producer() as producer:
        for number in range(200):
            producer.send(topic, b"%d" % number, partition=number % 2)
    plan = tmp_path / "plan.json"
    wanted = {keys[0]: [two, three], keys[1]: [three, one, two]}
    moves = [
        {"topic": topic, "partition": key.partition, "replicas": replicas}
        for key, replicas in wanted.items()
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    reassign = (REASSIGN, "--reassignment-json-file", str(plan))
    said = tool(target, *reassign, "--execute", "--throttle", "50000000")
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in said
    assert throttled(client, topic) == [
        {f"0:{one}", f"1:{two}"},
        {f"0:{two}", f"0:{three}", f"1:{three}", f"1:{one}"},
    ]
    until(lambda: client.list_reassignments(keys) == {})
    said = tool(target, *reassign, "--verify")
    for key in keys:
        assert f"Reassignment of partition {key} is completed." in said
    assert "Clearing broker-level throttles" in said
    assert throttled(client, topic) == [set(), set()]
    found = client.describe_partitions([topic])
    assert {key: one.replicas for key, one in found.items()} == wanted
    assert all(sorted(one.isr) == sorted(one.replicas) for one in found.values())
    ends = client.list_offsets(dict.fromkeys(keys, -1))
    assert [ends[key].offset for key in keys] == [100, 100]
    assert "No partition reassignments found" in tool(target, REASSIGN, "--list")
    said = tool(target, *reassign, "--cancel")
    assert "None of the specified partition reassignments are active" in said


def test_a_plan_is_generated(
    target: Target, client: BlockingClient, brokers: list[int], topic: str, tmp_path: Path
) -> None:
    placed(client, topic, brokers)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = tool(
        target,
        REASSIGN,
        *("--generate", "--topics-to-move-json-file", str(topics)),
        *("--broker-list", ",".join(map(str, brokers))),
    )
    documents = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [sorted(one["partitions"][0]["replicas"]) for one in documents] == [brokers, brokers]


def test_the_metadata_quorum_is_described(target: Target, brokers: list[int]) -> None:
    said = tool(target, "MetadataQuorumCommand", "describe", "--status")
    fields = dict(re.findall(r"^(\w+): +(.*)$", said, re.MULTILINE))
    voters = [one["id"] for one in json.loads(fields["CurrentVoters"])]
    observers = [one["id"] for one in json.loads(fields["CurrentObservers"])]
    assert sorted(voters + observers) == brokers
    assert int(fields["LeaderId"]) in voters
    assert int(fields["HighWatermark"]) > 0
    assert int(fields["MaxFollowerLag"]) >= 0
    said = tool(target, "MetadataQuorumCommand", "describe", "--replication")
    rows = [line.split() for line in said.splitlines()[1:]]
    assert sorted(int(row[0]) for row in rows) == brokers
    assert sum(row[-1] == "Leader" for row in rows) == 1


def test_brokers_are_listed_and_a_stranger_is_not_unregistered(
    target: Target, brokers: list[int]
) -> None:
    at = ("--bootstrap-server", target.bootstrap)
    said = java(f"{TOOLS}.ClusterTool", "list-endpoints", *at)
    for broker in brokers:
        assert re.search(rf"^{broker} .*unfenced +broker", said, re.MULTILINE), said
    refused = java(f"{TOOLS}.ClusterTool", "unregister", *at, "--id", "977", accept_failure=True)
    assert "977 is no longer registered" not in refused
