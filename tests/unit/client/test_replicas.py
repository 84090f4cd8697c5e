"""Replicas, elections and moves through both clients, on three embedded brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.client import (
    AsyncClient,
    BlockingClient,
    NewTopic,
    PartitionReplicas,
    QuorumMember,
    QuorumView,
    TopicPartition,
)
from raylog.client.admin.replicas import ReplicaAdmin
from raylog.client.errors import NotSupported
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import (
    BrokerIdNotRegistered,
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from tests.worlds.decorators import in_loop


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(brokers=3) as brokers:
        yield brokers.bootstrap


def made(client: BlockingClient, name: str, *replicas: tuple[int, ...]) -> list[TopicPartition]:
    client.create_topics([NewTopic(name, assignments=dict(enumerate(replicas)))])
    return [TopicPartition(name, index) for index in range(len(replicas))]


def test_partitions_are_described(client: BlockingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = made(client, "described", (2, 0), (1, 2))
    found = client.describe_partitions(["described"])
    assert list(found) == [first, second]
    assert found[first] == PartitionReplicas(
        "described", 0, 2, found[first].leader_epoch, [2, 0], [2, 0], [], [], []
    )
    assert not found[first].is_under_replicated
    assert found[first].key == first
    assert first in client.describe_partitions()
    assert client.describe_partitions([]) == {}
    with pytest.raises(UnknownTopicOrPartition):
        client.describe_partitions(["nope"])

    async def not_there(*_: object) -> None:
        raise NotSupported("the broker does not serve DESCRIBE_TOPIC_PARTITIONS")

    monkeypatch.setattr(ReplicaAdmin, "_described", not_there)
    older = client.describe_partitions(["described"])
    assert older[second].elr is None
    assert (older[second].leader, older[second].replicas) == (1, [1, 2])
    assert first in client.describe_partitions()


def test_leaders_are_elected(client: BlockingClient) -> None:
    (key,) = made(client, "elected", (0, 1))
    (outcome,) = client.elect_leaders([key]).values()
    assert isinstance(outcome, ElectionNotNeeded)
    assert client.alter_reassignments({key: [1, 0]}) == {key: None}
    assert client.elect_leaders([key]) == {key: None}
    (unclean,) = client.elect_leaders([key], unclean=True).values()
    assert isinstance(unclean, ElectionNotNeeded)
    assert client.elect_leaders() == {}


def test_invalid_reassignments_are_refused(client: BlockingClient) -> None:
    first, second = made(client, "moved", (0,), (1,))
    nowhere = TopicPartition("moved", 9)
    outcomes = client.alter_reassignments({first: [0, 77], second: None, nowhere: [1]})
    assert isinstance(outcomes[first], InvalidReplicaAssignment)
    assert isinstance(outcomes[second], NoReassignmentInProgress)
    assert isinstance(outcomes[nowhere], UnknownTopicOrPartition)
    assert client.list_reassignments([first, second, nowhere]) == {}


def test_the_quorum_and_forgetting_brokers(client: BlockingClient) -> None:
    quorum = client.describe_quorum()
    members = [*quorum.voters, *quorum.observers]
    assert sorted(one.broker_id for one in members) == [0, 1, 2]
    assert quorum.leader in {one.broker_id for one in quorum.voters}
    assert quorum.epoch >= 1
    with pytest.raises(BrokerIdNotRegistered):
        client.unregister_broker(9)


def test_the_lag_of_a_copy() -> None:
    ahead, behind, unknown = (QuorumMember(at, end, 0, 0) for at, end in ((1, 9), (2, 7), (3, -1)))
    view = QuorumView(1, 3, 7, [ahead, behind], [unknown])
    assert [view.lag(one) for one in (ahead, behind, unknown)] == [0, 2, None]
    assert QuorumView(5, 3, 8, [behind], []).lag(behind) == 1


@in_loop
async def test_the_same_with_asyncio(bootstrap: str) -> None:
    async with AsyncClient(bootstrap) as client:
        await client.create_topics([NewTopic("aio", 1, 3)])
        (found,) = (await client.describe_partitions(["aio"])).values()
        assert sorted(found.replicas) == [0, 1, 2]
        assert await client.list_reassignments() == {}
        assert (await client.describe_quorum()).high_watermark > 0
