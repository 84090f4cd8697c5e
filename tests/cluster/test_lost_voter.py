"""A broker whose directory is destroyed comes back empty and votes again; then another may fail."""

import asyncio
import contextlib
import os
import shutil
import signal

import pytest

from raylog.actors.names import BROKER, CONTROLLER, broker_name
from raylog.client import BlockingClient, NewTopic, QuorumMember, TopicPartition
from raylog.wire.errors import UnknownTopicOrPartition
from tests.support.ray_clusters import NewCluster, RayCluster, wait_until

LOST, ENDED = 2, 1


@pytest.fixture
def cluster(new_cluster: NewCluster) -> RayCluster:
    """Three brokers on one Ray node, all of them voters."""
    made = new_cluster(brokers=3)
    made.start()
    return made


def end_children(cluster: RayCluster, broker_id: int) -> None:
    """End all processes of a broker but its own."""
    begins = tuple(f"{cluster.cluster_id}/{role}/{broker_id}/" for role in ("gateway", "replica"))
    for pid in {actor.pid for actor in cluster.actors() if actor.name.startswith(begins)} - {0}:
        with contextlib.suppress(ProcessLookupError):  # the death of one ends others
            os.kill(pid, signal.SIGKILL)


def destroy(cluster: RayCluster, broker_id: int) -> None:
    """End all processes of a broker and take its directory away; Ray restarts the broker."""
    broker = cluster.pid(BROKER, broker_id)
    shutil.rmtree(cluster.data / f"broker-{broker_id}")
    os.kill(broker, signal.SIGKILL)
    end_children(cluster, broker_id)


def copies(client: BlockingClient, broker_id: int) -> dict[str, list[QuorumMember]]:
    """A broker's copies of the metadata log, by what they do."""
    quorum = client.describe_quorum()
    return {
        "vote": [one for one in quorum.voters if one.broker_id == broker_id],
        "follow": [one for one in quorum.observers if one.broker_id == broker_id],
    }


def topics(client: BlockingClient) -> set[str]:
    """What the broker that happens to be asked knows of."""
    try:
        return {key.topic for key in client.describe_partitions()}
    except UnknownTopicOrPartition:
        return set()


def test_a_destroyed_voter_is_replaced_and_then_another_may_end(cluster: RayCluster) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic("before", 2, 3)])
        [before] = copies(client, LOST)["vote"]
        destroy(cluster, LOST)
        wait_until(lambda: copies(client, LOST)["follow"], "the broker with a new directory")
        wait_until(
            lambda: (
                [one.directory_id for one in copies(client, LOST)["vote"]]
                not in ([], [before.directory_id])
            ),
            "it to vote by itself in the lost one's place",
        )
        keys = [TopicPartition("before", index) for index in range(2)]
        wait_until(
            lambda: all(len(client.describe_partitions(["before"])[key].isr) == 3 for key in keys),
            "its replicas to be copied",
        )
    asyncio.run(cluster.runtime.end_for_good(broker_name(cluster.cluster_id, ENDED)))
    end_children(cluster, ENDED)
    cluster.kill(CONTROLLER)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic("after", assignments={0: [LOST], 1: [0]})])
        wait_until(lambda: topics(client) == {"before", "after"}, "what the new controller made")
        assert [one.broker_id for one in client.describe_quorum().voters] == [0, 1, 2]
