"""One process of a cluster is killed, or stopped for a while, under load: the cluster recovers."""

import os
import signal
import time

import pytest

from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, REPLICA
from tests.support.load import Reader, Writer, assert_nothing_lost
from tests.support.ray_clusters import NewCluster, Note, RayCluster, create, slowness

SERVES_AGAIN_S = 5.0
TOPIC, PARTITIONS = "load", 2
SOME = 100
"""Records for each partition, before and after."""
PAUSE_S = 8.0
"""Longer than the session of a broker."""


@pytest.fixture(
    params=[pytest.param("true", marks=pytest.mark.long), "false"],
    ids=["gateway-in-replica", "gateway-apart"],
)
def cluster(new_cluster: NewCluster, request: pytest.FixtureRequest) -> RayCluster:
    """A broker in each of the arrangements of its processes."""
    made = new_cluster(settings={"gateway.in.replica.process": request.param})
    made.start()
    share = made.pid(GATEWAY) == made.pid(REPLICA)
    assert share is (request.param == "true")
    return made


@pytest.mark.parametrize(
    "role",
    [
        REPLICA,
        CONTROLLER,
        *(pytest.param(one, marks=pytest.mark.long) for one in (GATEWAY, BROKER)),
    ],
)
def test_a_killed_process(cluster: RayCluster, role: str, note: Note) -> None:
    create(cluster.bootstrap, TOPIC, PARTITIONS)
    slow = slowness()
    with (
        Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader,
        Writer(cluster.bootstrap, TOPIC, PARTITIONS) as writer,
    ):
        writer.until_acknowledged(SOME)
        killed = cluster.kill(role)
        began = time.monotonic()
        written_s = writer.until_acknowledged()
        create(cluster.bootstrap, "another")
        served_s = time.monotonic() - began
        cluster.until_succeeded(role, killed)
        writer.until_acknowledged(SOME)
        writer.finish()
        assert_nothing_lost(writer, reader)
    note("written_s", written_s)
    note("served_s", served_s)
    note("slowness", slow)
    assert max(written_s, served_s) < SERVES_AGAIN_S * slow


@pytest.mark.long
def test_a_replica_that_stands_still_for_a_while(cluster: RayCluster) -> None:
    create(cluster.bootstrap, TOPIC, PARTITIONS)
    with (
        Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader,
        Writer(cluster.bootstrap, TOPIC, PARTITIONS) as writer,
    ):
        writer.until_acknowledged(SOME)
        pid = cluster.pid(REPLICA)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)  # not a wait for something: it is what is done to the process
        os.kill(pid, signal.SIGCONT)
        writer.until_acknowledged(SOME)
        writer.finish()
        assert_nothing_lost(writer, reader)
    assert cluster.pid(REPLICA) == pid, "a pause is not an end"
