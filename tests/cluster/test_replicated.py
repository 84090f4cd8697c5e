"""Three brokers that replicate: one process at a time ends or is stopped, and nothing is lost.

Topics have three replicas of which two must be in sync. The history checker judges what its clients
saw; another writer measures how long each partition could not be written.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from raylog.actors.names import BROKER, CONTROLLER, REPLICA
from tests.checker.workload import Plan, Workload
from tests.support.load import Reader, Writer, assert_nothing_lost
from tests.support.ray_clusters import (
    DEADLINE_S,
    NewCluster,
    Note,
    RayCluster,
    slowness,
    wait_until,
)

BROKERS, PARTITIONS = 3, 3
TOPIC = "timed"
SOME = 20
FAILOVER_S = 3.0
"""Until all partitions of a lost leader can be written again, its session not waited for."""
PAUSE_S = 8.0
"""Longer than the session of a broker: others lead meanwhile, and it comes back as a zombie."""
PLAN = Plan(
    producers=2, consumers=1, members=2, partitions=6, replicas=3, min_insync=2, records_per_s=100
)


@pytest.fixture
def cluster(new_cluster: NewCluster) -> RayCluster:
    """Three brokers on one Ray node."""
    made = new_cluster(brokers=BROKERS)
    made.start()
    return made


@contextmanager
def checked(cluster: RayCluster, folder: Path) -> Iterator[Writer]:
    """Clients at work on a replicated cluster; at the end all they saw is judged."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": "0"})
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS, config=config)])[TOPIC].result(
        DEADLINE_S
    )
    with (
        Workload(cluster.bootstrap, folder, PLAN) as workload,
        Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader,
        Writer(cluster.bootstrap, TOPIC, PARTITIONS, pause_s=0.01) as writer,
    ):
        writer.until_acknowledged(SOME)
        yield writer
        writer.until_acknowledged(SOME)
        writer.finish()
        assert_nothing_lost(writer, reader)
    assert workload.failures == []
    assert workload.verdict.valid, workload.verdict


def until_all_in_sync(cluster: RayCluster) -> None:
    """Wait until every replica is in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": "0"})

    def level() -> bool:
        topics = admin.list_topics(timeout=DEADLINE_S).topics.values()
        return all(len(p.isrs) == BROKERS for topic in topics for p in topic.partitions.values())

    wait_until(level, "all replicas to be in sync")


def test_processes_of_replicas_are_killed(cluster: RayCluster, tmp_path: Path, note: Note) -> None:
    longest_s, slow = 0.0, slowness()
    with checked(cluster, tmp_path) as writer:
        for broker_id in range(BROKERS):
            until_all_in_sync(cluster)
            killed = cluster.kill(REPLICA, broker_id)
            longest_s = max(longest_s, writer.until_acknowledged())
            cluster.until_succeeded(REPLICA, killed, broker_id)
        until_all_in_sync(cluster)
    note("failover_s", longest_s)
    note("slowness", slow)
    assert longest_s < FAILOVER_S * slow


@pytest.mark.long
def test_brokers_and_the_controller_are_killed(
    cluster: RayCluster, tmp_path: Path, note: Note
) -> None:
    with checked(cluster, tmp_path) as writer:
        for role in (BROKER, CONTROLLER):
            until_all_in_sync(cluster)
            killed = cluster.kill(role, 1)
            note(f"{role}_s", writer.until_acknowledged())
            cluster.until_succeeded(role, killed, 1)
        until_all_in_sync(cluster)


@pytest.mark.long
@pytest.mark.parametrize("role", [REPLICA, BROKER])
def test_a_process_stands_still_for_a_while(cluster: RayCluster, tmp_path: Path, role: str) -> None:
    with checked(cluster, tmp_path) as writer:
        until_all_in_sync(cluster)
        pid = cluster.pid(role, 2)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)  # not a wait for something: it is what is done to the process
        os.kill(pid, signal.SIGCONT)
        writer.until_acknowledged(SOME)
        until_all_in_sync(cluster)
