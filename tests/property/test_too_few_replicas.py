"""A real cluster of two brokers with min.insync.replicas 2, while one of them is gone.

Apache Kafka behaves the same (4.3.1, three brokers): commits fail with COORDINATOR_NOT_AVAILABLE,
always after five seconds, and OffsetFetch returns committed offsets at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raylog.actors.coordination.rules.placement import java_hash
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.wire_client import WireClient
from tests.unit.actors.group.test_offsets import committing
from tests.worlds.embedded.killable_cluster import KillableCluster

VERSION = 8
SHARDS = 2
PATIENCE_S = 30.0
PAUSE_S = 0.02


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KillableCluster]:
    made = KillableCluster(
        tmp_path,
        brokers=2,
        offsets_topic_num_partitions=str(SHARDS),
        offsets_topic_replication_factor="2",
        min_insync_replicas="2",
        broker_session_timeout_ms="1000",
        offsets_commit_timeout_ms="1000",
    )
    yield made
    made.stop()


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that takes a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(PAUSE_S)


def groups_at(client: WireClient, broker_id: int) -> list[str]:
    """The groups that a broker coordinates, once that is known."""
    names = [f"g{number}" for number in range(20)]
    found = client.ask(FindCoordinatorRequest(coordinator_keys=names), 4).coordinators
    return [one.key for one in found if one.node_id == broker_id]


def is_alone(cluster: KillableCluster) -> bool:
    """Whether broker 0 is the only in-sync replica of everything that it leads."""
    led = [one.machine.progress for one in cluster.replicas("__consumer_offsets").values()]
    return all(one is not None and set(one.isr) == {0} for one in led)


def commit(client: WireClient, group: str, offset: int) -> str:
    answer = client.ask(committing({0: offset}, group=group), VERSION)
    return ErrorCode(answer.topics[0].partitions[0].error_code).name


def fetch(client: WireClient, group: str) -> int | str:
    """The committed offset, or the error."""
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    asked = OffsetFetchRequestGroup(group_id=group, topics=[topic])
    (found,) = client.ask(OffsetFetchRequest(groups=[asked]), VERSION).groups
    if found.error_code:
        return ErrorCode(found.error_code).name
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset


def test_refused_commits_trouble_nobody_else(
    cluster: KillableCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient(*cluster.address(0)) as client:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        until(lambda: len(groups_at(client, 0)) >= 2)
        group, other = groups_at(client, 0)[:2]
        shards = tuple(f"group shard {java_hash(one) % SHARDS} is loaded" for one in (group, other))
        until(lambda: commit(client, group, 1) == "NONE")
        assert commit(client, other, 7) == "NONE"
        cluster.kill(1)
        assert commit(client, group, 2) == "COORDINATOR_NOT_AVAILABLE", "written, but no more"
        assert fetch(client, group) == 1
        until(lambda: is_alone(cluster))
        caplog.set_level("INFO", "raylog.actors.coordination.hosting")
        answers: Counter[object] = Counter()
        for offset in range(10, 40):
            answers[commit(client, group, offset)] += 1
            answers[fetch(client, group)] += 1
            answers[fetch(client, other)] += 1
        assert answers == {"COORDINATOR_NOT_AVAILABLE": 30, 1: 30, 7: 30}
        assert not [one for one in caplog.messages if one.startswith(shards)]
        cluster.start(1)
        until(lambda: commit(client, group, 3) == "NONE")
        assert fetch(client, group) == 3
